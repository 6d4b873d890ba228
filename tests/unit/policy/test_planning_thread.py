"""Which plans are made or compared on the event loop, and which by a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from sandboxd.policy import plan_cache
from sandboxd.policy.paths import revalidation
from sandboxd.policy.plan_cache import PlanCache
from sandboxd.policy.request import Machine, PolicyRequest
from sandboxd.policy.resolve import plan_for
from sandboxd.rpc.handlers.plan_preparation import prepare_plan
from sandboxd.rpc.plan_limiter import MOST_AT_ONCE, PlanLimiter
from sandboxd.rpc.request_context import RequestContext
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.manifest import Manifest


def outcome(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except SandboxdError as error:
        return error.message


class Asked:
    """Requests as a handler sees them; `threads`: those that made the plans."""

    def __init__(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.plans = PlanCache(machine)
        self._machine = machine

        def made(wish: PolicyRequest, machine: Machine) -> Any:
            self.threads.append(threading.get_ident())
            return plan_for(wish, machine)

        monkeypatch.setattr(plan_cache, "plan_for", made)

    def ask(self, wish: PolicyRequest) -> object:
        """The outcome. What is made now must be the same."""
        service: Any = SimpleNamespace(
            plans=self.plans, supervisor=SimpleNamespace(mounts=SimpleNamespace(none=True)),
            planning=PlanLimiter(),
        )  # fmt: skip
        connection: Any = None
        call = RequestContext(service, connection, 0)

        async def answered() -> object:
            await prepare_plan(call, wish)
            return outcome(lambda: call.plan_for(wish))

        found = anyio.run(answered)
        assert found == outcome(lambda: plan_for(wish, self._machine))
        return found


@pytest.fixture
def asked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(machine, monkeypatch)


def test_a_thread_makes_plans_that_name_folders(asked: Asked, home: Path, workspace: Path) -> None:
    """What commands left there decides how long that takes. A refusal is a plan, too."""
    here = threading.get_ident()
    asked.ask(PolicyRequest(manifest=Manifest()))
    assert asked.threads == [here]  # the control
    wishes = [
        PolicyRequest(manifest=Manifest(), preset="workspace-write", workspace=str(workspace)),
        PolicyRequest(manifest=Manifest(fs_read_allow=[str(workspace)])),
        PolicyRequest(manifest=Manifest(fs_write_allow=[str(workspace)])),
        PolicyRequest(manifest=Manifest(fs_deny=[str(workspace)])),
        PolicyRequest(manifest=Manifest(fs_read_allow=["/no/such/path"])),
    ]
    for wish in wishes:
        asked.ask(wish)
    # One that changes something itself, or learns where a link leads, is made again.
    assert len(asked.threads) >= 1 + len(wishes)
    assert here not in asked.threads[1:]


def ask_until_kept(asked: Asked, wish: PolicyRequest) -> None:
    """What changed a moment ago is not relied on."""
    until = time.monotonic() + 20
    while asked.plans.takes_long(wish):
        assert time.monotonic() < until
        asked.ask(wish)
    asked.threads.clear()


def test_a_kept_plan_is_compared_where_that_is_little(
    asked: Asked, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = PolicyRequest(manifest=Manifest(), preset="workspace-write", workspace=str(workspace))
    ask_until_kept(asked, wish)
    compared: list[int] = []
    plainly = revalidation.Basis.holds

    def holds(self: revalidation.Basis, *, briefly: bool = False, notices: object = None) -> bool:
        found = plainly(self, briefly=briefly)
        compared.append(threading.get_ident())
        return found

    monkeypatch.setattr(revalidation.Basis, "holds", holds)
    asked.ask(wish)
    assert compared == [threading.get_ident()]  # once
    monkeypatch.setattr(revalidation, "MANY_LOOKS", 1)
    asked.ask(wish)
    assert len(compared) == 2
    assert compared[1] != threading.get_ident()
    assert asked.threads == []


def test_a_changed_folder_with_many_names_is_compared_by_a_thread(
    asked: Asked, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = PolicyRequest(manifest=Manifest(), preset="workspace-write", workspace=str(workspace))
    ask_until_kept(asked, wish)
    (workspace / "file").touch()
    assert not asked.plans.takes_long(wish)  # the control: it is compared at once, and still holds
    monkeypatch.setattr(revalidation, "LARGE_BYTES", 0)
    (workspace / "another").touch()
    assert asked.plans.takes_long(wish)
    asked.ask(wish)
    assert asked.threads == []


def test_a_slow_workspace_delays_only_its_own_plans() -> None:
    """And of all workspaces a few are planned at once."""

    async def take_turns() -> list[str]:
        turns, order = PlanLimiter(), []
        free = anyio.Event()

        async def plan(workspace: str, name: str, *, slow: bool) -> None:
            async with turns.slot(workspace):
                if slow:
                    await free.wait()
                order.append(name)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: plan("/slow", "slow", slow=True))
            tasks.start_soon(lambda: plan("/slow", "behind it", slow=False))
            for _ in range(MOST_AT_ONCE - 2):
                tasks.start_soon(lambda: plan(str(object()), "slow too", slow=True))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(lambda: plan("/other", "other", slow=False))
            await anyio.wait_all_tasks_blocked()
            assert order == ["other"]
            free.set()
        return order

    assert anyio.run(take_turns)[0] == "other"
