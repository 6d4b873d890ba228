"""A sandbox whose network goes through a gate, whatever it is made of."""

from __future__ import annotations

from dataclasses import replace

from sandboxd.egress.gate import Gate
from sandboxd.policy.environment import overlay
from sandboxd.sandbox import Command, Process, Sandbox, Stdio
from sandboxd.traffic import Traffic


class GatedSandbox:
    """The execution is bound to the gate when its command starts, not before: it may be warm."""

    def __init__(self, inner: Sandbox, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate

    @property
    def alive(self) -> bool:
        return self._inner.alive and self._gate.serving

    def verify(self) -> bool:
        return self._inner.verify() and self._gate.serving

    def spawn_now(self, command: Command, stdio: Stdio | None) -> Process | None:
        return self._inner.spawn_now(self._bound(command), stdio)

    async def spawn(self, command: Command, stdio: Stdio | None) -> Process:
        return await self._inner.spawn(self._bound(command), stdio)

    def _bound(self, command: Command) -> Command:
        variables = self._gate.bind(command.traffic or Traffic())
        # What the caller set itself wins.
        return replace(command, env=overlay(variables, command.env))
