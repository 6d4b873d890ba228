"""`sandbox/*`: sandboxes that outlive one command."""

from __future__ import annotations

from sandboxd.rpc.call import Call
from sandboxd.rpc.dispatch import later
from sandboxd.rpc.handlers.execution import NOTHING
from sandboxd.rpc.wishes import wish_of
from sandboxd_proto.errors import NotFound
from sandboxd_proto.messages.execution import NoParams, Nothing
from sandboxd_proto.messages.sandbox import (
    SandboxCreated,
    SandboxCreateParams,
    SandboxInfo,
    SandboxList,
    SandboxRef,
)


@later
async def create(call: Call, params: SandboxCreateParams) -> SandboxCreated:
    if params.session is not None:
        raise NotFound(f"there is no session {params.session!r}", field="session")
    plan = call.service.plans.plan_for(wish_of(params))
    made = await call.service.supervisor.create_sandbox(plan, params.idle_secs)
    return SandboxCreated(sandbox=made.id)


def list_(call: Call, params: NoParams) -> SandboxList:
    return SandboxList(
        sandboxes=[
            SandboxInfo(
                sandbox=found.id,
                backend=found.backend.name,
                created_ms=round(found.created_at * 1000, 3),
                executions=found.running,
            )
            for found in call.service.supervisor.sandboxes.all()
        ]
    )


@later
async def destroy(call: Call, params: SandboxRef) -> Nothing:
    await call.service.supervisor.sandboxes.destroy(params.sandbox)
    return NOTHING
