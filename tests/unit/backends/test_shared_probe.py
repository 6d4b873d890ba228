"""Who asks gets a probe that began after the question; a thousand who ask at once share one."""

from __future__ import annotations

import asyncio

from sandboxd.backends.interface import Available, Probe
from sandboxd.backends.shared_probe import SharedProbe


class Counted:
    def __init__(self) -> None:
        self.count = 0
        self.running = 0
        self.most = 0
        self.go_on = asyncio.Event()

    async def __call__(self) -> Probe:
        self.count += 1
        self.running += 1
        self.most = max(self.most, self.running)
        number = self.count
        await self.go_on.wait()
        self.running -= 1
        return Available((str(number),), ())


def test_many_who_ask_at_once_share_one() -> None:
    async def work() -> None:
        counted = Counted()
        shared = SharedProbe(counted)
        first = asyncio.create_task(shared())
        await asyncio.sleep(0)
        others = [asyncio.create_task(shared()) for _ in range(1000)]
        await asyncio.sleep(0)
        counted.go_on.set()
        assert (await first).layers == ("1",)  # type: ignore[union-attr]
        assert {(await one).layers for one in others} == {("2",)}  # type: ignore[union-attr]
        assert (counted.count, counted.most) == (2, 1)

    asyncio.run(work())


def test_no_result_is_kept() -> None:
    async def work() -> None:
        counted = Counted()
        counted.go_on.set()
        shared = SharedProbe(counted)
        for number in (1, 2, 3):
            assert (await shared()).layers == (str(number),)  # type: ignore[union-attr]

    asyncio.run(work())


def test_one_that_was_cancelled_is_made_again() -> None:
    async def work() -> None:
        counted = Counted()
        shared = SharedProbe(counted)
        first = asyncio.create_task(shared())
        await asyncio.sleep(0)
        second = asyncio.create_task(shared())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        counted.go_on.set()
        assert (await second).layers == ("2",)  # type: ignore[union-attr]

    asyncio.run(work())
