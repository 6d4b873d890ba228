"""What the gate noted of an execution, in the words of the classifier and of the result."""

from __future__ import annotations

from sandboxd.denials import GateEvent
from sandboxd.traffic import Refusal, Traffic
from sandboxd_proto.messages.execute import HostUsage


def gate_event(refusal: Refusal) -> GateEvent:
    return GateEvent(
        refusal.host, refusal.port, refusal.reason, refusal.operation, refusal.allow
    )


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
