"""Before a request is planned: the mounts that its paths lie on must answer, and a thread makes
plans with many paths."""

from __future__ import annotations

import anyio
import anyio.to_thread

from sandboxd.policy.plan_cache import has_many_paths, key_of
from sandboxd.policy.request import PolicyRequest
from sandboxd.rpc.request_context import RequestContext
from sandboxd.supervisor.execution.result import new_secrets
from sandboxd.supervisor.hanging_mount_checks import Wait


def wait_for_plan(call: RequestContext, wish: PolicyRequest) -> Wait | None:
    """What to await before `plan_for` may run on the event loop; None if it may at once."""
    plans, mounts = call.service.plans, call.service.supervisor.mounts
    if mounts.none and not has_many_paths(wish.manifest):
        return None
    if plans.is_prepared(wish):
        return None
    if not mounts.none:
        wait = mounts.pending(
            key_of(wish), lambda: plans.rehearse(wish), folders=plans.looked_at(wish),
            paths=(call.service.machine.home,),
        )  # fmt: skip
        if wait is not None:
            return wait
    return (lambda: _prepare(call, wish)) if plans.takes_long(wish) else None


async def _prepare(call: RequestContext, wish: PolicyRequest) -> None:
    """One at a time: several busy threads would keep the event loop waiting for its turn."""
    plans = call.service.plans
    async with call.service.planning:
        made = await anyio.to_thread.run_sync(plans.attempt, wish)
    plans.prepare(wish, made)


async def plan_answers(call: RequestContext, wish: PolicyRequest) -> None:
    while (wait := wait_for_plan(call, wish)) is not None:
        await wait()


def wait_for_sandbox(call: RequestContext, sandbox_id: str) -> Wait | None:
    """The same for a command in a sandbox that is up: its secrets are looked for again."""
    supervisor = call.service.supervisor
    plan = supervisor.sandboxes.find(sandbox_id).plan
    return supervisor.mounts.pending(
        ("secrets", sandbox_id), lambda: new_secrets(plan), paths=plan.absent_secrets
    )
