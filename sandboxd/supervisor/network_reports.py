"""What the gate noted of an execution, in the words of the classifier and of the result."""

from __future__ import annotations

from sandboxd.denials import Connection, GateEvent
from sandboxd.egress.book import exact_addresses
from sandboxd.policy.hosts import parse_rule
from sandboxd.policy.plan import Plan
from sandboxd.traffic import Refusal, Traffic
from sandboxd_proto.messages.execute import HostUsage


def gate_event(refusal: Refusal) -> GateEvent:
    return GateEvent(
        refusal.host, refusal.port, refusal.reason, refusal.operation, refusal.allow
    )


def named_connections(plan: Plan, noted: tuple[Connection, ...]) -> tuple[Connection, ...]:
    """An allowed host's own loopback address stands for it: at a port that is not allowed nobody
    listens there, so only the kernel saw the attempt."""
    if plan.sandbox.network.kind != "allow_hosts" or not noted:
        return noted
    addresses = exact_addresses(map(parse_rule, plan.sandbox.network.hosts))
    names = {str(address): name for name, address in addresses.items()}
    return tuple(Connection(names.get(one.address, one.address), one.port) for one in noted)


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
