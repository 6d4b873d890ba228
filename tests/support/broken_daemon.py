"""`python -m support.broken_daemon`: sandboxd with a mistake in it, to see what a mistake costs.

`SANDBOXD_TEST_BREAK` names the place. There a call fails when it comes to the word BREAK.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from sandboxd.cli import main

VARIABLE = "SANDBOXD_TEST_BREAK"
WORD = b"BREAK"


def broken_options(place: str) -> dict[str, Any]:
    """For `running_daemon`."""
    tests = str(Path(__file__).parents[1])
    return {"module": "support.broken_daemon", "env": {VARIABLE: place, "PYTHONPATH": tests}}


def _breaks(function: Any, position: int) -> Any:
    def call(*args: Any, **more: Any) -> Any:
        if WORD in bytes(args[position]):
            raise RuntimeError("broken on purpose")
        return function(*args, **more)

    return call


def _break(place: str) -> None:
    if place == "output":
        from sandboxd.supervisor.execution.stdio.output import Stream

        Stream.keep = _breaks(Stream.keep, 1)  # type: ignore[method-assign]
    elif place == "frames":
        from sandboxd_proto.framing import FrameDecoder

        FrameDecoder.feed = _breaks(FrameDecoder.feed, 1)  # type: ignore[method-assign]
    elif place == "reports":
        from sandboxd.linux.init_client import codec

        decode = codec.decode_channel
        count = iter(range(1_000_000))

        def decoded(data: bytes) -> Any:
            if next(count) >= 2 and os.path.exists(os.environ["HOME"] + "/break"):
                raise RuntimeError("broken on purpose")
            return decode(data)

        codec.decode_channel = decoded
    else:
        raise LookupError(place)


if __name__ == "__main__":
    _break(os.environ[VARIABLE])
    sys.exit(main())
