"""The stand-in for execd: faults of its own would be blamed on whatever test runs by then."""

from __future__ import annotations

import gc
from typing import Any

from support.execd import Commands


def test_a_command_whose_reader_is_gone_is_reaped() -> None:
    """An unreaped process or an open pipe is a warning, and so an error of some test."""

    def send(event: dict[str, Any]) -> None:
        raise BrokenPipeError

    Commands().run({"argv": ["echo", "hi"]}, send)
    Commands().run({"argv": ["/no/such/program"]}, send)
    gc.collect()


def test_output_that_comes_late_is_not_lost() -> None:
    """The command has ended; what it left running holds its output for a moment, and prints."""
    sent: list[dict[str, Any]] = []
    Commands().run({"argv": ["sh", "-c", "(sleep 4; echo late) & exit 3"]}, sent.append)
    said = [event["text"] for event in sent if event["type"] == "stdout"]
    assert said == ["late"]
    assert sent[-1]["error"]["evalue"] == "3"
