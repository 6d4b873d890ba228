"""How a command ended: exact exit codes, exact signals, never one guessed from the other."""

from __future__ import annotations

import signal

import pytest
from support.subject import Subject


@pytest.mark.parametrize("code", [0, 1, 2, 42, 126, 127, 128, 137, 159, 255])
def test_exit_code_is_exact(subject: Subject, code: int) -> None:
    ran = subject.shell(f"exit {code}")
    assert (ran.outcome, ran.exit_code, ran.signal) == ("exited", code, None)


@pytest.mark.parametrize("name", ["SIGHUP", "SIGKILL", "SIGSEGV", "SIGTERM", "SIGSYS", "SIGXCPU"])
def test_signal_is_exact(subject: Subject, name: str) -> None:
    number = signal.Signals[name].value
    ran = subject.shell(f"kill -{number} $$; sleep 60")
    assert (ran.outcome, ran.exit_code, ran.signal) == ("signaled", None, number)


def test_a_signal_without_a_filter_or_a_limit_is_no_denial(subject: Subject) -> None:
    """SIGSYS and SIGXCPU mean a denial only where a filter or a limit could have sent them."""
    for number in (signal.SIGSYS, signal.SIGXCPU, signal.SIGXFSZ):
        ran = subject.shell(f"kill -{number} $$; sleep 60")
        assert ran.outcome == "signaled"
        assert ran.denials == []


def test_a_child_that_fails_does_not_speak_for_the_command(subject: Subject) -> None:
    ran = subject.shell("sh -c 'kill -9 $$'; exit 7")
    assert (ran.outcome, ran.exit_code) == ("exited", 7)


def test_the_result_names_the_backend_and_what_it_cost(subject: Subject) -> None:
    ran = subject.python("x = sum(range(10**6))")
    assert ran.raw["backend"] == subject.product_name
    assert ran.raw["usage"]["cpu_ms"] > 0
    assert ran.raw["usage"]["max_rss_bytes"] > 1 << 20
    assert ran.raw["duration_ms"] > 0
