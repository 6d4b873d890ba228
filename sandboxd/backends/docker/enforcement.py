"""How each field is enforced in a container, with our init and over attach."""

from __future__ import annotations

from typing import Literal

import msgspec

from sandboxd.backends.enforcement import ENFORCED
from sandboxd.policy.plan import Plan
from sandboxd_proto.errors import PolicyNotSupported
from sandboxd_proto.messages.execute import Tier

Way = Literal["init", "attach"]
MEMORY_MIN = 6 << 20  # the engine refuses less

_LIMITS = ("image", "max_memory_bytes", "max_cpu_secs", "max_cpus", "max_processes")
_WITH_INIT: dict[str, Tier] = {**ENFORCED, **dict.fromkeys(_LIMITS, "enforced")}
_ATTACHED: dict[str, Tier] = {
    **_WITH_INIT,
    # The init sums the tree, which can overshoot.
    "max_cpu_secs": "best_effort",
}


class _Refused(msgspec.Struct, frozen=True):
    field: str
    reason: str
    remedy: str


_NO_GATE = _Refused(
    "network",
    "this engine does not share this machine's sockets, so that its containers' network cannot be "
    "limited to named hosts",
    "use an engine on this machine (DOCKER_HOST=unix://…), or the bubblewrap backend",
)


def container_tiers(plan: Plan, way: Way) -> dict[str, Tier]:
    """PolicyNotSupported names all fields that cannot be enforced this way."""
    refused = _refused(plan, way)
    if refused:
        raise _not_supported(refused)
    tiers = _WITH_INIT if way == "init" else _ATTACHED
    found = {field: tier for field, tier in tiers.items() if field in plan.asked}
    if plan.sandbox.shared_tmp is not None and "tmp_bytes" in found:
        found["tmp_bytes"] = "best_effort"
    return found


def no_gate() -> PolicyNotSupported:
    """allow_hosts on an engine that turned out to be unable to enforce it."""
    return _not_supported([_NO_GATE])


def _not_supported(refused: list[_Refused]) -> PolicyNotSupported:
    fields = ", ".join(one.field for one in refused)
    reasons = "; ".join(one.reason for one in refused)
    return PolicyNotSupported(
        f"the docker backend cannot enforce {fields}: {reasons}",
        field=refused[0].field,
        remedy="; ".join(dict.fromkeys(one.remedy for one in refused)),
    )


def _refused(plan: Plan, way: Way) -> list[_Refused]:
    found: list[_Refused] = []
    if way == "attach" and plan.sandbox.network.kind == "allow_hosts":
        found.append(_NO_GATE)
    memory = plan.limits.memory_bytes
    if memory is not None and memory < MEMORY_MIN:
        least = f"an engine's least is {MEMORY_MIN} bytes"
        found.append(_Refused("max_memory_bytes", least, f"ask for {MEMORY_MIN} or more"))
    if way == "attach" and "base" in plan.asked and plan.sandbox.base == "host":
        found.append(
            _Refused(
                "base", "this engine does not have this machine's files",
                "leave it out: the image is the base",
            )
        )  # fmt: skip
    return found
