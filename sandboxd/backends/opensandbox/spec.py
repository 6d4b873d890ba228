"""What a sandbox is made from: the body of a create request. Pure."""

from __future__ import annotations

import re
from typing import Any

from sandboxd.policy.plan import NetworkRule, SandboxSpec

TIMEOUT_S = 300  # a sandbox that is not renewed ends; the server's least is 60
ENTRYPOINT = ("tail", "-f", "/dev/null")
_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.)*[a-z]([a-z0-9-]*[a-z0-9])?", re.I)


def create_body(
    spec: SandboxSpec, image: str, metadata: dict[str, str], *, host_volumes: bool = True
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "image": {"uri": spec.image or image},
        "entrypoint": list(ENTRYPOINT),
        "timeout": TIMEOUT_S,
        "metadata": metadata,
        "resourceLimits": resource_limits(spec),
    }
    policy = network_policy(spec.network)
    if policy is not None:
        body["networkPolicy"] = policy
    if host_volumes and spec.grants:
        body["volumes"] = volumes(spec)
    return body


def resource_limits(spec: SandboxSpec) -> dict[str, str]:
    limits: dict[str, str] = {}
    if spec.limits is not None and spec.limits.memory_bytes is not None:
        limits["memory"] = str(spec.limits.memory_bytes)
    if spec.limits is not None and spec.limits.cpus is not None:
        limits["cpu"] = f"{max(1, int(spec.limits.cpus * 1000))}m"
    return limits


def network_policy(rule: NetworkRule) -> dict[str, Any] | None:
    """None: the network of the server's runtime, unrestricted."""
    if rule.kind == "inherit":
        return None
    allowed = rule.hosts if rule.kind == "allow_hosts" else ()
    egress = [{"action": "allow", "target": host} for host in allowed]
    return {"defaultAction": "deny", "egress": egress}


def is_plain_host(host: str) -> bool:
    """A name or `*.domain`: what a networkPolicy takes. No address, no port."""
    return _NAME.fullmatch(host) is not None


def volumes(spec: SandboxSpec) -> list[dict[str, Any]]:
    """Granted folders at their own paths; what is protected in them is read-only, and the deeper
    path comes later, so that it lies on top."""
    read_only = {grant.path: grant.access == "read" for grant in spec.grants}
    read_only |= {one.path: True for one in spec.protected if one.present}
    return [
        {
            "name": f"grant-{number}",
            "host": {"path": path},
            "mountPath": path,
            "readOnly": read_only[path],
        }
        for number, path in enumerate(sorted(read_only))
    ]
