"""What every backend is: how it is probed, what it can enforce, how a sandbox of it is opened.

The supervisor knows only this module; `registry` lists the implementations. A backend never
imports the supervisor.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from sandboxd.policy.plan import Plan, SandboxSpec
from sandboxd.sandbox import Sandbox
from sandboxd_proto.messages.execute import Tier

Enforcement = Mapping[str, Tier]


@dataclass(frozen=True, slots=True)
class Available:
    """The backend has brought a sandbox up just now. `layers`: what isolates, for people."""

    layers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unavailable:
    """`reason` is the fact that was observed, `remedy` what to do about it."""

    reason: str
    remedy: str


Probe = Available | Unavailable


class Backend(Protocol):
    """A way to isolate commands.

    `mounts`: what it hides is covered by mounts, so it reads as empty, and /tmp is its own.
    Otherwise the host's own files are there, and refused.
    """

    name: str
    mounts: bool

    async def probe(self) -> Probe:
        """Do the real thing on a trivial sandbox. Called for `status` and when selecting."""

    def enforcement(self, plan: Plan) -> Enforcement:
        """How each field that the plan was asked for would be enforced here and now.

        PolicyNotSupported, naming everything that cannot be enforced, if there is any such field.
        """

    def command_line(self, plan: Plan) -> list[str]:
        """What would be started, for people. Pure: runs and changes nothing."""

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A sandbox that is up. On leaving, for whatever reason, nothing it started is alive.

        SandboxUnavailable if it cannot be brought up, PathDenied if a path changed meanwhile.
        """


def explains(backend: Backend) -> bool:
    """Whether its sandboxes record refused accesses: those whose commands run below our init."""
    return bool(getattr(backend, "explains", False))
