"""Signals and command lines that Windows does not know, refused before anything starts."""

from __future__ import annotations

import pytest

from sandboxd.platform.windows.commands import MAX_UNITS, signal_number, too_long
from sandboxd.windows.processes.quoting import MAX_CMD_UNITS, QuotingError, batch_line


@pytest.mark.parametrize(
    ("given", "number"),
    [("INT", 2), ("sigterm", 15), ("SIGBREAK", 21), ("KILL", 9), (9, 9), (15, 15), (21, 21)],
)
def test_what_ends_a_command(given: int | str, number: int) -> None:
    assert signal_number(given) == number


@pytest.mark.parametrize("given", ["HUP", "SIGUSR1", "", "SIG", 1, 0, -9, 64, "CTRL_C_EVENT"])
def test_other_signals_do_not_exist(given: int | str) -> None:
    assert signal_number(given) is None


def test_a_command_line_that_windows_does_not_pass() -> None:
    assert too_long(["x", "a" * (MAX_UNITS - 2)]) is None
    found = too_long(["x", "a" * (MAX_UNITS - 1)])
    assert found is not None
    assert found[0] == "argv"
    assert str(MAX_UNITS + 1) in found[1]


def test_quotes_and_wide_characters_count() -> None:
    assert too_long(["x", '"' * (MAX_UNITS // 2)]) is not None
    assert too_long(["x", "\U0001f600" * (MAX_UNITS // 2)]) is not None


def test_cmd_takes_less() -> None:
    with pytest.raises(QuotingError, match=str(MAX_CMD_UNITS)):
        batch_line("C:\\cmd.exe", "C:\\x.bat", ["a" * MAX_CMD_UNITS])
