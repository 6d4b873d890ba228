"""Which backend runs a plan: the table of the design, in one function for each row.

No path leads from "cannot enforce" to "runs anyway": a backend that was named is used or refused,
and without a sandbox nothing runs unless both keys are set.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from sandboxd.backends.interface import Available, Backend
from sandboxd.backends.registry import Registry
from sandboxd.config import BACKENDS, Config, both_keys
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


def select(plan: Plan, config: Config, registry: Registry) -> Iterator[Backend]:
    """The backends that may run this plan, best first; raises where there is none.

    Opening a sandbox is the probe: whoever opens one goes on to the next when it does not come up,
    and raises `refusal` when none does. A backend that was named stands alone. A backend is asked
    only when it is its turn: whether Landlock could take a plan costs more than a warm start.
    """
    name = plan.backend or (config.backend if config.backend != "auto" else None)
    if name is not None:
        yield _named(name, config, registry)
        return
    able = False
    unsupported: PolicyNotSupported | None = None
    for backend in candidates(config, registry):
        try:
            backend.enforcement(plan)
        except PolicyNotSupported as error:
            unsupported = unsupported or error
        else:
            able = True
            yield backend
    if not able:
        raise unsupported or refusal([])


async def working(plan: Plan, config: Config, registry: Registry) -> Backend:
    """The backend that would run this plan now, each one probed for real; else the refusal."""
    failures: list[SandboxUnavailable] = []
    for backend in select(plan, config, registry):
        probe = await backend.probe()
        if isinstance(probe, Available):
            return backend
        failures.append(SandboxUnavailable(probe.reason, remedy=probe.remedy))
    raise refusal(failures)


def refusal(failures: list[SandboxUnavailable]) -> SandboxUnavailable:
    """Nothing came up: every reason, and what to install or set."""
    if len(failures) == 1:
        return failures[0]
    reasons = "; ".join(failure.message for failure in failures) or "no backend is permitted"
    remedies = "; or ".join(failure.remedy for failure in failures if failure.remedy)
    return SandboxUnavailable(
        f"no sandbox works here, so nothing was run: {reasons}",
        remedy=remedies
        or "install bubblewrap, or set SANDBOXD_BACKEND=docker; `sandboxctl doctor` says more",
    )


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
    if not both_keys(config):
        raise SandboxUnavailable(
            "running without a sandbox needs both keys, and "
            + ("the second" if config.backend == "none" else "the first")
            + " is not set",
            remedy="start sandboxd with SANDBOXD_BACKEND=none and SANDBOXD_ALLOW_NO_SANDBOX=1 "
            "to accept NO isolation; better: install bubblewrap and leave both unset",
        )
    return registry["none"]
