"""An unexpected exception in the callback that reads output ends the command; it never hangs."""

from __future__ import annotations

import os

import anyio
import anyio.lowlevel
import pytest

from sandboxd import event_loop
from sandboxd.supervisor.execution.stdio import pumps


class Broken:
    """A stream that fails at once, or after its scan has waited for a thread."""

    def __init__(self, *, later: bool) -> None:
        self._later = later

    def keep(self, data: bytes) -> bytes:
        return data

    async def scan(self, data: bytes) -> list[object]:
        if self._later:
            await event_loop.enter_task()
            await anyio.lowlevel.checkpoint()
        raise LookupError(f"cannot scan {data!r}")


@pytest.mark.parametrize("later", [False, True])
def test_a_failure_while_output_is_read_is_told(later: bool) -> None:
    async def main() -> list[Exception]:
        reader, writer = os.pipe2(os.O_NONBLOCK)
        told: list[Exception] = []
        heard = anyio.Event()

        def broken(error: Exception) -> None:
            told.append(error)
            heard.set()

        pump = pumps.CollectingPump(Broken(later=later), reader, broken)  # type: ignore[arg-type]
        pumps.CollectingPump.begin([pump], lambda: None)
        try:
            os.write(writer, b"output")
            with anyio.fail_after(30):
                await heard.wait()
            os.write(writer, b"more")
            await pump.finish()  # reads nothing any more, and does not wait
        finally:
            os.close(reader)
            os.close(writer)
        return told

    (error,) = anyio.run(main)
    assert "cannot scan b'output'" in str(error)
