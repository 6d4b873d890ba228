"""Reading costs a bounded number of steps, whatever is printed and however much of it."""

from __future__ import annotations

import threading

import pytest
from denials.settings import denials, host, setting
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.denials import HostView, RunEvidence, StreamScanner
from sandboxd.denials.text import scanner, subjects
from sandboxd.policy.plan import Access

EROFS = b": Read-only file system\n"
QUOTED = b" ".join(b"'n%d'" % n for n in range(700))[:4000] + EROFS
ABSOLUTE = b" ".join(b"/w/out/%d" % n for n in range(500))[:4000] + EROFS
MOST = scanner.MOST_STEPS + scanner.TAIL_STEPS
# One line may go over: its cost is known only afterwards.
LINE = 3 * subjects.MAX_NAMES * (scanner.MAX_LINE + 9 * (500 + scanner.MAX_LINE))


class Counted:
    """A host that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def view(self) -> HostView:
        plain = host()

        def exists(path: str) -> bool:
            self.asked += 1
            return plain.exists(path)

        def permits(path: str, access: Access) -> bool:
            self.asked += 1
            return plain.permits(path, access)

        return HostView(exists=exists, is_dir=plain.is_dir, permits=permits)


def steps(line: bytes, size: int, *argv: str) -> tuple[int, int]:
    counted = Counted()
    reader = StreamScanner(setting(*argv, view=counted.view()))
    block = line * (65536 // len(line) + 1)
    for _ in range(0, size, len(block)):
        reader.feed("stderr", block)
    reader.finish(RunEvidence(exit_code=1))
    return reader._streams["stderr"].steps, counted.asked


@pytest.mark.parametrize("line", [QUOTED, ABSOLUTE], ids=["quoted", "absolute"])
def test_more_output_costs_no_more_steps_than_the_budget(line: bytes) -> None:
    two, asked = steps(line, 2 << 20)
    eight, asked_more = steps(line, 8 << 20)
    assert 0 < two <= eight <= MOST + LINE
    assert asked_more <= 2 * asked


def test_a_line_is_read_for_a_few_names_only() -> None:
    one, asked = steps(QUOTED, 1)
    assert asked <= 40 * 12 * (65536 // len(QUOTED) + 2)
    assert one <= LINE * (65536 // len(QUOTED) + 2)
    assert len(subjects.names(QUOTED.decode(), 4000, 4010)) <= 12


def test_folders_of_the_command_line_do_not_multiply_the_work() -> None:
    script = "".join(f"cd d{n}; " for n in range(500))
    many, _ = steps(QUOTED, 2 << 20, "sh", "-c", script)
    assert many <= MOST + LINE


def test_what_is_printed_last_is_read_after_the_budget_is_spent() -> None:
    reader = StreamScanner(setting())
    for _ in range(40):
        reader.feed("stderr", QUOTED * 16)
    reader.feed("stderr", b"touch: cannot touch '/w/out/last'" + EROFS)
    assert "/w/out/last" in {d.target for d in reader.finish(RunEvidence(exit_code=1))}


def test_what_is_printed_first_is_read_whatever_follows() -> None:
    reader = StreamScanner(setting())
    reader.feed("stderr", b"touch: cannot touch '/w/out/first'" + EROFS)
    for _ in range(40):
        reader.feed("stderr", QUOTED * 16)
    assert "/w/out/first" in {d.target for d in reader.finish(RunEvidence(exit_code=1))}


QUOTES = "‘’“”„‚«»「」'\"`"


@given(st.text(st.sampled_from([*QUOTES, " ", "a", "/", "(", ":"]), max_size=300))
def test_quoted_names_are_between_quotes_and_few(text: str) -> None:
    found = subjects.quoted_names(text)
    assert len(found) <= subjects.MAX_NAMES
    assert all(name in text and name for name in found)


def test_quotes_that_are_never_closed_are_searched_once() -> None:
    class Searched(str):
        __slots__ = ()
        calls = 0

        def find(self, *args: object) -> int:  # type: ignore[override]
            Searched.calls += 1
            return str.find(self, *args)  # type: ignore[arg-type]

    assert subjects.quoted_names(Searched("‘a " * 1300)) == []
    assert Searched.calls == 1


def test_scanners_of_several_threads_do_not_disturb_one_another() -> None:
    text = "\n".join(f"touch: cannot touch '/w/out/{n}': Read-only file system" for n in range(9))
    alone = denials(setting(), text)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(denials(setting(), text))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 6


def test_a_command_line_of_many_files_is_looked_up_in_part() -> None:
    counted = Counted()
    argv = ("ls", *(f"/w/out/{n}" for n in range(20_000)))
    denials(setting(*argv, view=counted.view()), "", RunEvidence(exit_code=1))
    assert 0 < counted.asked < 10_000
