"""A sandbox whose network goes through a gate, whatever it is made of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sandboxd.egress.gate import Gate
from sandboxd.egress.service import EgressService
from sandboxd.policy.environment import overlay
from sandboxd.policy.plan import NetworkRule
from sandboxd.traffic import Traffic
from sandboxd.types import Command, Process, Sandbox, Stdio
from sandboxd.wrappers import WrappedSandbox

if TYPE_CHECKING:
    from sandboxd.linux.init_client.launch import Launch


class GatedSandbox(WrappedSandbox[Sandbox]):
    """The execution is bound to the gate when its command starts, not before: it may be warm."""

    def __init__(self, inner: Sandbox, gate: Gate) -> None:
        super().__init__(inner)
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


@asynccontextmanager
async def open_gated(
    plan: Launch, release: Callable[[], None], rule: NetworkRule, egress: EgressService
) -> AsyncIterator[Sandbox]:
    # Not at the top: on macOS these modules cannot be imported.
    from sandboxd.linux.init_client.launch import launch
    from sandboxd.linux.netns.sockets import sockets_below

    pids: list[int] = []
    async with (
        launch(replace(plan, started=pids.append), release) as inner,
        egress.gate(rule, partial(sockets_below, pids[0])) as gate,
    ):
        yield GatedSandbox(inner, gate)
