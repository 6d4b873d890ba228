"""Prepare a request's plan outside the event loop: wait until the mounts of its paths answer, and
make plans that name folders in a thread."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import anyio.to_thread

from sandboxd.platform.current import files
from sandboxd.policy.plan_cache import key_of, names_folders
from sandboxd.policy.request import PolicyRequest
from sandboxd.rpc.request_context import RequestContext
from sandboxd.supervisor.hanging_mount_checks import Wait


def wait_for_plan(
    call: RequestContext, policy: PolicyRequest, absent: Iterable[str] = ()
) -> Wait | None:
    """What to await before `plan_for` may run on the event loop; None if it may at once. `absent`:
    secrets that are looked for as well."""
    plans, mounts = call.service.plans, call.service.supervisor.mounts
    some_hang = not mounts.none
    if not some_hang and not names_folders(policy.manifest, policy.workspace):
        return None
    if call.prepared and key_of(policy) in call.prepared:
        return None
    if some_hang:

        def rehearse() -> None:
            for path in absent:
                files.lexists(path)
            plans.rehearse(policy)

        wait = mounts.pending(
            key_of(policy), rehearse, folders=plans.looked_at(policy),
            paths=(call.service.machine.home, *absent),
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
