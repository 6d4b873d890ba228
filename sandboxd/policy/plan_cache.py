"""Earlier plans, reused while the facts that they depend on have not changed.

What a plan costs depends on the folders that it names, and commands decide what is in these: a
thread makes such a plan before the event loop needs it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from sandboxd.platform.current import files
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.notices import FolderNotices
from sandboxd.policy.paths.revalidation import Basis, TakesLong
from sandboxd.policy.plan import Identity, Plan, SandboxSpec
from sandboxd.policy.request import Machine, PolicyRequest
from sandboxd.policy.resolve import plan_for
from sandboxd_proto.errors import PathDenied
from sandboxd_proto.manifest import Manifest

MAX_PLANS = 48
_MOST_ATTEMPTS = 8
_CHECKED_S = 0.005  # for `plan_for` of the same request, which follows at once

Key = tuple[object, ...]


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


def key_of(request: PolicyRequest) -> Key:
    return (
        msgspec.json.encode(request.manifest), request.preset, request.workspace, request.cwd,
        request.backend, request.manifest_given, request.dry,
    )  # fmt: skip


def names_folders(manifest: Manifest | None, workspace: str | None) -> bool:
    if workspace is not None:
        return True
    if manifest is None:
        return False
    return bool(manifest.fs_read_allow or manifest.fs_write_allow or manifest.fs_deny)


class PlanCache:
    """One for each daemon. Refusals are not cached: their cause may have been fixed. `notices`:
    what tells about changed folders, where the system can."""

    def __init__(self, machine: Machine, notices: FolderNotices | None = None) -> None:
        self._machine = machine
        self._notices = notices
        self._kept: OrderedDict[Key, _CachedPlan] = OrderedDict()
        self._specs: OrderedDict[SandboxSpec, SandboxSpec] = OrderedDict()
        self._checked: tuple[_CachedPlan | None, float] = (None, 0.0)

    def rehearse(self, request: PolicyRequest) -> None:
        """Make every look at the host that `plan_for` makes. For a thread: nothing is kept."""
        kept = self._kept.get(key_of(request))
        if kept is not None and kept.basis.holds_now() and _same_files(kept.plan):
            return
        plan = plan_for(request, self._machine)
        for grant in plan.sandbox.grants:
            _identity(grant.path)

    def looked_at(self, request: PolicyRequest) -> list[str]:
        """The paths that planning starts from."""
        manifest = request.manifest
        named = [request.workspace, request.cwd, *(manifest.fs_read_allow or ())]
        named += [*(manifest.fs_write_allow or ()), *(manifest.fs_deny or ())]
        named.append(dict(manifest.env or ()).get("HOME"))
        return [files.internal(files.expanduser(path)) for path in named if path]

    def takes_long(self, request: PolicyRequest) -> bool:
        """Whether a thread should `attempt` the plan before `plan_for` is called."""
        if not names_folders(request.manifest, request.workspace):
            return False
        kept = self._kept.get(key_of(request))
        if kept is None:
            return True
        try:
            valid = kept.basis.holds(briefly=True, notices=self._notices) and _same_files(kept.plan)
        except TakesLong:
            return True
        if valid:
            self._checked = kept, time.monotonic()
        return not valid

    def attempt(self, request: PolicyRequest) -> MadePlan | Exception:
        """For a thread."""
        kept = self._kept.get(key_of(request))
        try:
            if kept is not None and _is_valid(kept):
                return MadePlan(*kept)
            return self._make(request)
        except Exception as error:  # `keep` raises it
            return error

    def look(self, request: PolicyRequest) -> Plan:
        """The plan, for a thread."""
        made = self.attempt(request)
        if isinstance(made, Exception):
            raise made
        return made.plan

    def keep(self, request: PolicyRequest, made: MadePlan | Exception) -> Plan:
        """What a thread has made for this request."""
        if isinstance(made, Exception):
            raise made
        made = made._replace(plan=self._with_known_spec(made.plan))
        key = key_of(request)
        before = self._kept.pop(key, None)
        if before is not None and before.basis is not made.basis:
            before.basis.close()
        if made.basis is not None:
            self._kept[key] = _CachedPlan(made.plan, made.basis)
            if len(self._kept) > MAX_PLANS:
                self._kept.popitem(last=False)[1].basis.close()
        return made.plan

    def _with_known_spec(self, plan: Plan) -> Plan:
        """With the spec object of an equal plan: a spec is a key at many places, and two objects
        are compared grant by grant each time."""
        spec = self._specs.setdefault(plan.sandbox, plan.sandbox)
        self._specs.move_to_end(spec)
        if len(self._specs) > MAX_PLANS:
            self._specs.popitem(last=False)
        return plan if spec is plan.sandbox else replace(plan, sandbox=spec)

    def plan_for(self, request: PolicyRequest) -> Plan:
        key = key_of(request)
        kept = self._kept.get(key)
        if kept is not None and (self._was_checked(kept) or _is_valid(kept)):
            self._kept.move_to_end(key)
            return kept.plan
        return self.keep(request, self._make(request))

    def _was_checked(self, kept: _CachedPlan) -> bool:
        checked, at = self._checked
        return checked is kept and time.monotonic() - at < _CHECKED_S

    def _make(self, request: PolicyRequest) -> MadePlan:
        for _ in range(_MOST_ATTEMPTS):
            with recording_fs.recording() as notes:
                plan = plan_for(request, self._machine)
            grants = (grant.path for grant in plan.sandbox.grants)
            basis = Basis(notes, grants, self.looked_at(request))
            # A plan of which one part was made before a change and another one after it fits
            # neither: it may protect less than both.
            holds = basis.holds()
            if not notes.torn and (holds or basis.is_same()):
                return MadePlan(plan, basis if holds and not notes.fleeting else None)
        raise PathDenied(
            "what has to be hidden or protected changed again and again while it was looked at",
            remedy="send the request again",
            again=True,
        )
