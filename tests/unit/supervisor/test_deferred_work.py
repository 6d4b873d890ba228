"""What follows an answer is done once, also where a part of it fails."""

from __future__ import annotations

import anyio
import pytest

from sandboxd.supervisor import deferred_work
from sandboxd.supervisor.deferred_work import DeferredWork

pytestmark = pytest.mark.anyio


def fail() -> None:
    raise ValueError("broken")


async def test_it_is_done_later_and_in_order() -> None:
    done: list[int] = []
    later = DeferredWork()
    later.add(lambda: done.append(1))
    later.add(fail)
    later.add(lambda: done.append(2))
    last = anyio.Event()
    later.add(last.set)
    assert done == []
    with anyio.fail_after(10):
        await last.wait()
    assert done == [1, 2]


async def test_the_next_request_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_work, "AFTER_S", 3600)
    done: list[int] = []
    later = DeferredWork()
    later.add(lambda: done.append(1))
    later.run()
    later.run()
    assert done == [1]
