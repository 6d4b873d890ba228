"""`grant/*`: what was approved for a session or a workspace."""

from __future__ import annotations

from sandboxd.rpc.dispatch import later
from sandboxd.rpc.request_context import RequestContext
from sandboxd_proto.messages.approval import GrantList, GrantListParams, GrantRef
from sandboxd_proto.messages.execution import Nothing


def list_(call: RequestContext, params: GrantListParams) -> GrantList:
    grants = call.service.admission.grants
    if params.session is None:
        found = grants.all()
    else:
        found = grants.all(call.any_session(params.session).downwards())
    return GrantList(grants=[grant.info() for grant in found])


@later
async def remove(call: RequestContext, params: GrantRef) -> Nothing:
    admission = call.service.admission
    await admission.grants.remove(params.grant)
    admission.recorder.write("grant.removed", {"grant": params.grant}, client=call.requester)
    await admission.recorder.durable()
    return Nothing()
