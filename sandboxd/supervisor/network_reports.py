"""What the gate noted of an execution, in the words of the classifier and of the result."""

from __future__ import annotations

from sandboxd.denials import GateEvent
from sandboxd.policy.hosts import HostInvalid, parse_rule
from sandboxd.traffic import Refusal, Traffic
from sandboxd_proto.messages.execute import HostUsage


def gate_event(refusal: Refusal) -> GateEvent:
    allow = refusal.allow
    if allow is None and not _can_be_allowed(refusal.host):
        allow = ()
    return GateEvent(refusal.host, refusal.port, refusal.reason, refusal.operation, allow)


def _can_be_allowed(host: str) -> bool:
    """A command can ask for anything; only what a manifest could say is proposed."""
    try:
        parse_rule(host)
    except HostInvalid:
        return False
    return True


def host_usage(traffic: Traffic | None) -> list[HostUsage]:
    if traffic is None:
        return []
    return [
        HostUsage(
            host=entry.host, port=entry.port, connections=entry.connections, refused=entry.refused,
            sent_bytes=entry.sent_bytes, received_bytes=entry.received_bytes,
        )
        for entry in traffic.hosts
    ]  # fmt: skip
