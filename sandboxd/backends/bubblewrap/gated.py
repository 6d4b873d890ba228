"""A sandbox of bwrap's with its gate: opened together, closed together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from sandboxd.backends.gated import GatedSandbox
from sandboxd.egress.service import EgressService
from sandboxd.linux.launch import Launch, launched
from sandboxd.linux.netns_sockets import sockets_below
from sandboxd.policy.plan import NetworkRule
from sandboxd.sandbox import Sandbox


@asynccontextmanager
async def gated(
    plan: Launch, release: Callable[[], None], rule: NetworkRule, egress: EgressService
) -> AsyncIterator[Sandbox]:
    pids: list[int] = []
    async with (
        launched(replace(plan, started=pids.append), release) as inner,
        egress.gate(rule, partial(sockets_below, pids[0])) as gate,
    ):
        yield GatedSandbox(inner, gate)
