"""Find a sandbox that is up, and look before each use whether it still hides and protects what a
new one would. Otherwise it is ended. Its request is planned again, through the plan cache."""

from __future__ import annotations

from sandboxd.policy.renewal import first_uncovered
from sandboxd.rpc.handlers.plan_preparation import wait_for_plan
from sandboxd.rpc.request_context import RequestContext
from sandboxd.supervisor.execution.result import new_secrets
from sandboxd.supervisor.hanging_mount_checks import Wait
from sandboxd.supervisor.sandboxes.persistent import PersistentSandbox
from sandboxd.supervisor.sessions.modes import decide
from sandboxd_proto.errors import SandboxdError, SandboxUnavailable


def may_see(call: RequestContext, kept: PersistentSandbox) -> bool:
    """A sandbox of a session or a connection is visible to that session's connections; one of the
    user to sessions whose mode or grants would allow to make it."""
    if call.is_approver:
        return True
    admission, session, creator = call.service.admission, call.session(), kept.session
    if creator is None or creator.id in session.family or session.is_below(creator):
        return True
    if kept.scope != "user":
        return False
    found = admission.judge(session, kept.plan)
    if found.decision == "refuse":  # a refusal by plan mode does not hide the sandbox
        return decide(found.effect, admission.mode_of(session), False) == "run"
    return found.decision == "run"


def find_sandbox(call: RequestContext, name: str) -> PersistentSandbox:
    return call.service.supervisor.sandboxes.find(name, lambda kept: may_see(call, kept))


def look_again(call: RequestContext, name: str) -> PersistentSandbox | Wait | SandboxdError:
    """The sandbox; or what to await first; or why it cannot be used."""
    try:
        kept = find_sandbox(call, name)
        if not kept.backend.capabilities.isolates:
            return kept
        if kept.watched is not None:
            kept.watched.check_place()
        wait = wait_for_plan(call, kept.made_from.policy, kept.plan.absent_secrets)
        if wait is not None:
            return wait
        _check(call, kept)
        return kept
    except SandboxdError as error:
        return error


async def find_usable(call: RequestContext, name: str) -> PersistentSandbox:
    """For a handler that may wait. What was planned for it before counts no more."""
    call.prepared.clear()
    while callable(found := look_again(call, name)):
        await found()
    if isinstance(found, SandboxdError):
        raise found
    return found


def _check(call: RequestContext, kept: PersistentSandbox) -> None:
    secrets = new_secrets(kept.plan)
    if secrets:
        raise _end(call, kept, f"{secrets[0]} was created after it, so it is not masked in it")
    made_from = kept.made_from
    now = call.plan_for(made_from.policy)
    if now is made_from.compared:
        return
    uncovered = first_uncovered(made_from.plan, now, call.service.machine.host)
    if uncovered is not None:
        raise _end(call, kept, f"{uncovered}: that changed after it was made")
    made_from.compared = now


def _end(call: RequestContext, kept: PersistentSandbox, why: str) -> SandboxUnavailable:
    call.service.supervisor.sandboxes.end(kept, why)
    return SandboxUnavailable(
        f"the sandbox is ended: {why}", remedy="make another one with sandbox/create"
    )
