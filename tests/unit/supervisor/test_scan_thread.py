"""The thread that scans output: hung work is given up, and threads that hang are counted."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sandboxd.supervisor.scan_thread import MOST_HUNG, GivenUp, ScanThread


def test_work_that_hangs_is_given_up_and_the_rest_is_done() -> None:
    release = threading.Event()

    async def work() -> None:
        scans = ScanThread(patience_s=0.2)
        hung = scans.submit(release.wait)
        behind = [scans.submit(lambda n=n: n) for n in range(20)]  # type: ignore[misc]
        with pytest.raises(GivenUp):
            await hung
        assert [await one for one in behind] == list(range(20))
        scans.close()

    try:
        asyncio.run(work())
    finally:
        release.set()


def test_only_a_few_threads_are_left_hanging() -> None:
    release = threading.Event()
    before = threading.active_count()

    async def work() -> None:
        scans = ScanThread(patience_s=0.02)
        for _ in range(3 * MOST_HUNG):
            with pytest.raises(GivenUp):
                await scans.submit(release.wait)
        assert threading.active_count() - before <= MOST_HUNG + 2
        scans.close()

    try:
        asyncio.run(work())
    finally:
        release.set()


def test_what_work_raises_comes_back() -> None:
    async def work() -> None:
        scans = ScanThread()
        with pytest.raises(ZeroDivisionError):
            await scans.submit(lambda: 1 // 0)
        scans.close()

    asyncio.run(work())
