"""`audit/*`: read the trail, and check its chain."""

from __future__ import annotations

from fnmatch import fnmatchcase

import anyio

from sandboxd.audit.query import MOST_RECORDS, matches_type, page
from sandboxd.audit.verify_chain import verify
from sandboxd.rpc.dispatch import later
from sandboxd.rpc.handlers.event import check_types, cursor, trail_of
from sandboxd.rpc.request_context import RequestContext
from sandboxd_proto.errors import InvalidParams
from sandboxd_proto.messages.audit import (
    RECORD_TYPES,
    AuditPage,
    AuditQueryParams,
    Record,
    Verified,
)
from sandboxd_proto.messages.execution import NoParams
from sandboxd_proto.wording import nearest, shortened


@later
async def query(call: RequestContext, params: AuditQueryParams) -> AuditPage:
    if not 0 < params.limit <= MOST_RECORDS:
        raise InvalidParams(f"limit must be 1 to {MOST_RECORDS}", field="limit")
    check_types(params.types)
    for name in params.types or ():
        _check_known(name)
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


def _check_known(name: str) -> None:
    """A misspelt type would look like a trail without such records."""
    if not any(fnmatchcase(known, name) for known in RECORD_TYPES):
        families = dict.fromkeys(f"{known.partition('.')[0]}.*" for known in RECORD_TYPES)
        near = f"{name}.*" if f"{name}.*" in families else None
        near = near or nearest(name, [*RECORD_TYPES, *families])
        raise InvalidParams(
            f"no type of record is called {shortened(name)!r}", field="types",
            remedy=f"did you mean {near}?" if near else f"they are {', '.join(families)}; "
            "docs/audit.md has each name",
        )  # fmt: skip


@later
async def verify_(call: RequestContext, params: NoParams) -> Verified:
    return await anyio.to_thread.run_sync(verify, trail_of(call).folder)
