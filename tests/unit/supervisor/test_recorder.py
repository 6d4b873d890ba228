"""What the recorder keeps of a command line between commands."""

from __future__ import annotations

import pytest

from sandboxd.supervisor import recorder
from sandboxd.supervisor.recorder import LONG_LINE, Recorder
from sandboxd_proto.errors import SandboxUnavailable
from sandboxd_proto.messages.approval import Requester


@pytest.mark.parametrize("words", [("x" * LONG_LINE,), ("",) * LONG_LINE])
def test_a_long_command_line_is_not_kept(words: tuple[str, ...]) -> None:
    before = recorder._known_line.cache_info().misses
    with pytest.raises(SandboxUnavailable):
        Recorder(None, required=True).started(
            "ex", None, Requester(name="test", pid=None), ("echo", *words), (), {}
        )
    assert recorder._known_line.cache_info().misses == before


def test_of_very_many_words_the_first_are_recorded() -> None:
    words = recorder._recorded(("echo", *("x",) * 100_000), ())
    assert words[:2] == ["echo", "x"]
    assert len(words) == recorder.MOST_WORDS + 1
    assert words[-1] == f"[{100_001 - recorder.MOST_WORDS} more words]"
