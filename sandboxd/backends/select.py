"""Which backends may run a plan, best first. `Supervisor._take` opens the first that comes up.

No path leads from "cannot enforce" to "runs anyway": a backend that was named is used or refused,
and without a sandbox nothing runs unless both keys are set.
"""

from __future__ import annotations

from collections.abc import Iterator

from sandboxd.backends.interface import Available, Backend, Enforcement
from sandboxd.backends.registry import Registry
from sandboxd.backends.unsandboxed_keys import both_keys, keys_missing_error
from sandboxd.config.config import Config
from sandboxd.config.setting_words import setting_words
from sandboxd.policy.plan import Plan
from sandboxd_proto.errors import (
    CeilingExceeded,
    InvalidParams,
    PolicyNotSupported,
    SandboxUnavailable,
)
from sandboxd_proto.wording import nearest, shortened

Selected = tuple[Backend, Enforcement]


def candidates(config: Config, registry: Registry) -> list[Backend]:
    """What would be tried for a request that names no backend, best first."""
    if config.backend != "auto":
        return [registry[config.backend]] if config.backend in registry else []
    permitted = config.ceiling.backends
    return [registry[n] for n in registry.automatic if permitted is None or n in permitted]


def shares_session_tmp(config: Config, registry: Registry) -> bool:
    """Whether every backend that may be tried can give a session's commands one /tmp."""
    found = candidates(config, registry)
    return bool(found) and all(backend.capabilities.session_tmp for backend in found)


def select(plan: Plan, config: Config, registry: Registry) -> Iterator[Selected]:
    """The backends that may run this plan, best first, and how each would enforce it; raises where
    there is none.

    Opening a sandbox is the probe: who opens one goes on to the next when it does not come up and
    `works_here` says no, and raises `refusal` when none does. A backend that was named stands
    alone. A backend is asked only when it is its turn: whether Landlock could take a plan costs
    more than a warm start.
    """
    name = plan.backend or (config.backend if config.backend != "auto" else None)
    if name is not None:
        named = _named(name, config, registry)
        yield named, named.enforcement(plan)
        return
    able = False
    unsupported: PolicyNotSupported | None = None
    for backend in candidates(config, registry):
        try:
            enforcement = backend.enforcement(plan)
        except PolicyNotSupported as error:
            unsupported = unsupported or error
        else:
            able = True
            yield backend, enforcement
    if not able:
        raise unsupported or refusal([])


async def find_working(plan: Plan, config: Config, registry: Registry) -> Selected:
    """The backend that would run this plan now, each one probed for real; else the refusal."""
    failures: list[SandboxUnavailable] = []
    for backend, _ in select(plan, config, registry):
        probe = await backend.probe()
        if isinstance(probe, Available):
            # An engine that was met only now may enforce other fields.
            return backend, backend.enforcement(plan)
        failures.append(SandboxUnavailable(probe.reason, remedy=probe.remedy))
    raise refusal(failures)


async def works_here(backend: Backend) -> bool:
    """Whether the machine lets the backend work at all: only that decides about the next one."""
    return isinstance(await backend.probe(), Available)


def refusal(failures: list[SandboxUnavailable]) -> SandboxUnavailable:
    """Nothing came up: every reason, and what to install or set."""
    if len(failures) == 1:
        return failures[0]
    reasons = "; ".join(failure.message for failure in failures) or "no backend is permitted"
    remedies = "; or ".join(failure.remedy for failure in failures if failure.remedy)
    return SandboxUnavailable(
        f"no sandbox works here, so nothing was run: {reasons}",
        remedy=remedies
        or "install bubblewrap, or choose another backend; `sandboxctl doctor` says more",
    )


def _named(name: str, config: Config, registry: Registry) -> Backend:
    if name == "none":
        if not both_keys(config):
            raise keys_missing_error(config)
        return registry["none"]
    if name not in registry:
        sandboxed = [one for one in registry.names() if one != "none"]
        near = nearest(name, sandboxed)
        hint = f"did you mean {near}? " if near else ""
        raise InvalidParams(
            f"there is no backend {shortened(name)!r}", field="backend",
            remedy=f"{hint}The backends are {', '.join(registry.names())}",
        )  # fmt: skip
    permitted = config.ceiling.backends
    if permitted is not None and name not in permitted:
        line, says, _ = setting_words("ceiling.backends", permitted)
        raise CeilingExceeded(
            f"the backend {name} is not permitted by this daemon's config", field="backend",
            remedy=says, config_line=line,
        )  # fmt: skip
    if config.backend not in ("auto", name) and permitted is None:
        raise CeilingExceeded(
            f"this daemon's config names the backend {config.backend}, not {name}",
            field="backend",
            remedy=f'leave "backend" out, or add {name} to [ceiling] backends',
        )
    return registry[name]
