"""The pipes of a command."""

from __future__ import annotations

import os

from sandboxd.supervisor.execution.stdio.pipes import NOTHING_PASSED, Pipes


def test_an_empty_input_ends_at_once_and_is_each_commands_own() -> None:
    """A pipe that two commands share is a way from one to the other: it can be opened to write."""
    one, other = (Pipes(NOTHING_PASSED, empty=True) for _ in range(2))
    try:
        assert one.stdin_write == -1
        assert os.read(one.child.stdin, 1) == b""
        assert not os.path.samestat(os.fstat(one.child.stdin), os.fstat(other.child.stdin))
    finally:
        one.close()
        other.close()
