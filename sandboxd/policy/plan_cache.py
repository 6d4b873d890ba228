"""Plans that were worked out before, for as long as nothing that they rest on has changed."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from sandboxd.policy import hostfs
from sandboxd.policy.plan import Identity, Plan
from sandboxd.policy.resolve import Machine, Wish, plan_for

MAX_PLANS = 128


class _Kept(NamedTuple):
    plan: Plan
    basis: hostfs.Basis


def _same_files(plan: Plan) -> bool:
    """A file that was mounted over is another one, and no ctime tells."""
    files = (grant for grant in plan.sandbox.grants if not grant.identity.is_dir)
    return all(_identity(grant.path) == grant.identity for grant in files)


def _identity(path: str) -> Identity | None:
    try:
        return Identity.of(os.lstat(path))
    except OSError:
        return None


class PlanCache:
    """One for each daemon. A refusal is never kept: it may have been mended."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._kept: OrderedDict[tuple[object, ...], _Kept] = OrderedDict()

    def plan_for(self, wish: Wish) -> Plan:
        key = (
            msgspec.json.encode(wish.manifest), wish.preset, wish.workspace, wish.cwd, wish.backend,
            wish.manifest_given,
        )  # fmt: skip
        kept = self._kept.get(key)
        if kept is not None:
            if kept.basis.holds() and _same_files(kept.plan):
                self._kept.move_to_end(key)
                return kept.plan
            del self._kept[key]
        with hostfs.noting() as notes:
            plan = plan_for(wish, self._machine)
        if not notes.fleeting:
            basis = hostfs.Basis(notes, (grant.path for grant in plan.sandbox.grants))
            # What changed and changed back while it was made does not count as seen.
            if basis.holds():
                self._kept[key] = _Kept(plan, basis)
                if len(self._kept) > MAX_PLANS:
                    self._kept.popitem(last=False)
        return plan
