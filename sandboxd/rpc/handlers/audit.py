"""`audit/*`: read the trail, and check its chain."""

from __future__ import annotations

import anyio

from sandboxd.audit.chain import verify
from sandboxd.audit.query import MOST_RECORDS, matches_type, page
from sandboxd.rpc.dispatch import later
from sandboxd.rpc.handlers.event import check_types, cursor, trail_of
from sandboxd.rpc.request_context import RequestContext
from sandboxd_proto.errors import InvalidParams
from sandboxd_proto.messages.audit import AuditPage, AuditQueryParams, Record, Verified
from sandboxd_proto.messages.execution import NoParams


@later
async def query(call: RequestContext, params: AuditQueryParams) -> AuditPage:
    if not 0 < params.limit <= MOST_RECORDS:
        raise InvalidParams(f"limit must be 1 to {MOST_RECORDS}", field="limit")
    check_types(params.types)
    trail = trail_of(call)
    everything = call.is_approver and params.session is None
    family = None if everything else call.any_session(params.session).family

    def wanted(record: Record) -> bool:
        return (
            (family is None or record.session in family)
            and matches_type(record.type, params.types)
            and params.execution_id in (None, record.execution_id)
        )

    after = cursor(params.after, 0)
    before = cursor(params.before, trail.head.seq + 1, "before")
    return await anyio.to_thread.run_sync(
        page, trail.folder, after, before, params.limit, wanted, trail.head
    )


@later
async def verify_(call: RequestContext, params: NoParams) -> Verified:
    return await anyio.to_thread.run_sync(verify, trail_of(call).folder)
