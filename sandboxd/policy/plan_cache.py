"""Earlier plans, reused while the facts that they depend on have not changed.

A plan with many paths takes long to make: a thread makes it before the event loop needs it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from sandboxd.platform.current import files
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.basis import Basis
from sandboxd.policy.plan import Identity, Plan
from sandboxd.policy.request import Machine, PolicyRequest
from sandboxd.policy.resolve import plan_for
from sandboxd_proto.manifest import Manifest

MAX_PLANS = 64
MANY_PATHS = 64
PREPARED_S = 1.0
_MOST_PREPARED = 64


class _CachedPlan(NamedTuple):
    plan: Plan
    basis: Basis


class MadePlan(NamedTuple):
    """`basis`: None if the plan cannot be reused."""

    plan: Plan
    basis: Basis | None


def _same_files(plan: Plan) -> bool:
    """A bind mount over a file does not change its ctime, so granted files are stat'ed again."""
    files = (grant for grant in plan.sandbox.grants if not grant.identity.is_dir)
    return all(_identity(grant.path) == grant.identity for grant in files)


def _is_valid(kept: _CachedPlan | None) -> bool:
    return kept is not None and kept.basis.holds() and _same_files(kept.plan)


def _identity(path: str) -> Identity | None:
    try:
        return Identity.of(files.lstat(path))
    except OSError:
        return None


def key_of(wish: PolicyRequest) -> tuple[object, ...]:
    return (
        msgspec.json.encode(wish.manifest), wish.preset, wish.workspace, wish.cwd, wish.backend,
        wish.manifest_given, wish.dry,
    )  # fmt: skip


def has_many_paths(manifest: Manifest) -> bool:
    lists = (manifest.fs_read_allow, manifest.fs_write_allow, manifest.fs_deny)
    return sum(len(one or ()) for one in lists) > MANY_PATHS


class PlanCache:
    """One for each daemon. Refusals are not cached: their cause may have been fixed."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._kept: OrderedDict[tuple[object, ...], _CachedPlan] = OrderedDict()
        self._prepared: dict[tuple[object, ...], tuple[float, MadePlan | Exception]] = {}

    def rehearse(self, wish: PolicyRequest) -> None:
        """Make every look at the host that `plan_for` makes. For a thread: nothing is kept."""
        kept = self._kept.get(key_of(wish))
        if kept is not None and kept.basis.holds_now() and _same_files(kept.plan):
            return
        plan = plan_for(wish, self._machine)
        for grant in plan.sandbox.grants:
            _identity(grant.path)

    def looked_at(self, wish: PolicyRequest) -> list[str]:
        """The paths that planning starts from."""
        manifest = wish.manifest
        named = [wish.workspace, wish.cwd, *(manifest.fs_read_allow or ())]
        named += [*(manifest.fs_write_allow or ()), *(manifest.fs_deny or ())]
        return [files.internal(files.expanduser(path)) for path in named if path]

    def takes_long(self, wish: PolicyRequest) -> bool:
        """Whether a thread should `attempt` the plan before `plan_for` is called."""
        return has_many_paths(wish.manifest) and not _is_valid(self._kept.get(key_of(wish)))

    def is_prepared(self, wish: PolicyRequest) -> bool:
        until, _ = self._prepared.get(key_of(wish), (0.0, None))
        return time.monotonic() < until

    def attempt(self, wish: PolicyRequest) -> MadePlan | Exception:
        """For a thread."""
        try:
            return self._make(wish)
        except Exception as error:  # `plan_for` raises it
            return error

    def prepare(self, wish: PolicyRequest, made: MadePlan | Exception) -> None:
        """For the next `plan_for` of the same request, which follows at once."""
        if len(self._prepared) >= _MOST_PREPARED:
            self._prepared.clear()
        self._prepared[key_of(wish)] = time.monotonic() + PREPARED_S, made

    def plan_for(self, wish: PolicyRequest) -> Plan:
        key = key_of(wish)
        until, made = self._prepared.pop(key, (0.0, None))
        if isinstance(made, Exception) and time.monotonic() < until:
            raise made
        if not isinstance(made, MadePlan) or time.monotonic() >= until:
            kept = self._kept.get(key)
            if kept is not None and _is_valid(kept):
                self._kept.move_to_end(key)
                return kept.plan
            self._kept.pop(key, None)
            made = self._make(wish)
        if made.basis is not None:
            self._kept[key] = _CachedPlan(made.plan, made.basis)
            if len(self._kept) > MAX_PLANS:
                self._kept.popitem(last=False)
        return made.plan

    def _make(self, wish: PolicyRequest) -> MadePlan:
        with recording_fs.recording() as notes:
            plan = plan_for(wish, self._machine)
        if notes.fleeting:
            return MadePlan(plan, None)
        basis = Basis(notes, (grant.path for grant in plan.sandbox.grants))
        # What changed and changed back while it was made does not count as seen.
        return MadePlan(plan, basis if basis.holds() else None)
