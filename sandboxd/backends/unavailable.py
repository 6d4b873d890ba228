"""Backends that this daemon knows by name and that cannot work here: each says why, and refuses."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from sandboxd.backends.interface import Capabilities, Enforcement, Probe, Unavailable
from sandboxd.policy.plan import Plan, SandboxSpec
from sandboxd.types import Sandbox
from sandboxd_proto.errors import SandboxUnavailable


class UnavailableBackend:
    """Fail closed: probing says the reason, everything else raises it."""

    capabilities = Capabilities()

    def __init__(self, name: str, reason: str, remedy: str) -> None:
        self.name = name
        self._why = Unavailable(reason, remedy)

    async def probe(self) -> Probe:
        return self._why

    def enforcement(self, plan: Plan) -> Enforcement:
        raise self._refusal()

    def command_line(self, plan: Plan) -> list[str]:
        raise self._refusal()

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        raise self._refusal()

    def _refusal(self) -> SandboxUnavailable:
        return SandboxUnavailable(self._why.reason, remedy=self._why.remedy)
