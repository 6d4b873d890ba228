"""Which backend runs a plan: the table of the design, in one function for each row.

No path leads from "cannot enforce" to "runs anyway": a backend that was named is used or refused,
and without a sandbox nothing runs unless both keys are set.
"""

from __future__ import annotations

import sys

from sandboxd.backends.interface import Available, Backend
from sandboxd.backends.registry import Registry
from sandboxd.config import BACKENDS, Config
from sandboxd.policy.plan import Plan
from sandboxd_proto.errors import (
    CeilingExceeded,
    InvalidParams,
    PolicyNotSupported,
    SandboxUnavailable,
)

_AUTO = {
    "linux": ("bubblewrap", "landlock"),
    "darwin": ("sandbox-exec",),
    "win32": ("appcontainer",),
}


def candidates(config: Config, registry: Registry) -> list[Backend]:
    """What would be tried for a request that names no backend, best first."""
    if config.backend != "auto":
        return [registry[config.backend]] if config.backend in registry else []
    names = [name for name in _AUTO.get(sys.platform, ()) if name in registry]
    permitted = config.ceiling.backends
    return [registry[n] for n in names if permitted is None or n in permitted]


async def select(plan: Plan, config: Config, registry: Registry) -> Backend:
    """The backend for this plan, or the refusal that says what to install or set.

    A backend that cannot enforce the plan is PolicyNotSupported; one that does not come up is
    found out when a sandbox is opened, which is the probe.
    """
    if plan.backend is not None:
        return _named(plan.backend, config, registry)
    if config.backend != "auto":
        return _named(config.backend, config, registry)
    return await _automatic(plan, config, registry)


def _named(name: str, config: Config, registry: Registry) -> Backend:
    if name == "none":
        return _without(config, registry)
    if name not in BACKENDS or name == "auto":
        raise InvalidParams(
            f"there is no backend {name!r}", field="backend",
            remedy=f"the backends are {', '.join(BACKENDS[1:])}",
        )  # fmt: skip
    permitted = config.ceiling.backends
    if permitted is not None and name not in permitted:
        line = f"[ceiling] backends = {permitted!r}".replace("'", '"')
        raise CeilingExceeded(
            f"the backend {name} is not permitted by this daemon's config", field="backend",
            remedy=f"the config says: {line}", config_line=line,
        )  # fmt: skip
    if config.backend not in ("auto", name) and permitted is None:
        raise CeilingExceeded(
            f"this daemon's config names the backend {config.backend}, not {name}",
            field="backend",
            remedy=f'leave "backend" out, or add {name} to [ceiling] backends',
        )
    if name not in registry:
        raise SandboxUnavailable(
            f"the backend {name} does not exist on this platform",
            remedy=f"use one of {', '.join(registry.names())}",
        )
    return registry[name]


def _without(config: Config, registry: Registry) -> Backend:
    """Unsandboxed: two keys, both in the daemon's own config or environment."""
    if config.backend != "none" or not config.allow_no_sandbox:
        raise SandboxUnavailable(
            "running without a sandbox needs both keys, and "
            + ("the second" if config.backend == "none" else "the first")
            + " is not set",
            remedy="start sandboxd with SANDBOXD_BACKEND=none and SANDBOXD_ALLOW_NO_SANDBOX=1 "
            "to accept NO isolation; better: install bubblewrap and leave both unset",
        )
    return registry["none"]


async def _automatic(plan: Plan, config: Config, registry: Registry) -> Backend:
    """The first backend that comes up here. A single candidate is proved by opening it."""
    tried = candidates(config, registry)
    if len(tried) == 1:
        return tried[0]
    reasons: list[str] = []
    remedies: list[str] = []
    unsupported: PolicyNotSupported | None = None
    for backend in tried:
        probe = await backend.probe()
        if not isinstance(probe, Available):
            reasons.append(f"{backend.name}: {probe.reason}")
            remedies.append(probe.remedy)
            continue
        try:
            backend.enforcement(plan)
        except PolicyNotSupported as error:
            unsupported = unsupported or error
            continue
        return backend
    if unsupported is not None:
        raise unsupported
    raise SandboxUnavailable(
        "no sandbox works here, so nothing was run: " + ("; ".join(reasons) or "none is permitted"),
        remedy="; or ".join(remedies)
        or "install bubblewrap, or set SANDBOXD_BACKEND=docker; `sandboxctl doctor` says more",
    )
