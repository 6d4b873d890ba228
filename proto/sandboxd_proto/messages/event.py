"""`events/*`: follow the audit trail from a cursor on."""

from __future__ import annotations

from typing import Literal

from sandboxd_proto.messages.approval import ApprovalInfo
from sandboxd_proto.messages.audit import Record
from sandboxd_proto.secret import Secret
from sandboxd_proto.wire import Reported, WireStruct

Role = Literal["observer", "approver"]


class SubscribeParams(WireStruct, frozen=True, kw_only=True):
    """`types` takes names of records and patterns as `approval.*`."""

    role: Role = "observer"
    token: Secret | None = None
    after: str | None = None
    types: list[str] | None = None
    session: str | None = None


class Subscribed(Reported, frozen=True, kw_only=True):
    """`gap`: records after `after` are gone already."""

    subscription: str
    role: Role
    cursor: str
    gap: bool
    pending: list[ApprovalInfo]


class UnsubscribeParams(WireStruct, frozen=True, kw_only=True):
    subscription: str


class Event(Reported, frozen=True, kw_only=True):
    subscription: str
    cursor: str
    record: Record
