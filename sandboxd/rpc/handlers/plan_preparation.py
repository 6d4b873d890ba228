"""Prepare a request's plan outside the event loop: wait until the mounts of its paths answer, and
make plans that name folders in a thread."""

from __future__ import annotations

import anyio
import anyio.to_thread

from sandboxd.policy.plan_cache import key_of, names_folders
from sandboxd.policy.request import PolicyRequest
from sandboxd.rpc.request_context import RequestContext
from sandboxd.supervisor.execution.result import new_secrets
from sandboxd.supervisor.hanging_mount_checks import Wait


def wait_for_plan(call: RequestContext, policy: PolicyRequest) -> Wait | None:
    """What to await before `plan_for` may run on the event loop; None if it may at once."""
    plans, mounts = call.service.plans, call.service.supervisor.mounts
    some_hang = not mounts.none
    if not some_hang and not names_folders(policy.manifest, policy.workspace):
        return None
    if call.prepared and key_of(policy) in call.prepared:
        return None
    if some_hang:
        wait = mounts.pending(
            key_of(policy), lambda: plans.rehearse(policy), folders=plans.looked_at(policy),
            paths=(call.service.machine.home,),
        )  # fmt: skip
        if wait is not None:
            return wait
    return (lambda: _prepare(call, policy)) if plans.takes_long(policy) else None


async def _prepare(call: RequestContext, policy: PolicyRequest) -> None:
    """Of each workspace one at a time, and of all a few: many busy threads would keep the event
    loop waiting for its turn."""
    async with call.service.planning.slot(policy.workspace):
        made = await anyio.to_thread.run_sync(call.service.plans.attempt, policy)
    call.prepared[key_of(policy)] = made


async def prepare_plan(call: RequestContext, policy: PolicyRequest) -> None:
    while (wait := wait_for_plan(call, policy)) is not None:
        await wait()


def wait_for_sandbox(call: RequestContext, sandbox_id: str) -> Wait | None:
    """The same for a command in a sandbox that is up: its secrets are looked for again."""
    supervisor = call.service.supervisor
    if supervisor.mounts.none:
        return None
    plan = supervisor.sandboxes.find(sandbox_id).plan
    return supervisor.mounts.pending(
        ("secrets", sandbox_id), lambda: new_secrets(plan), paths=plan.absent_secrets
    )
