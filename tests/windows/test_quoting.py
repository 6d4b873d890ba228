"""Command lines, batch files, environment blocks and the search for a program."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.windows.processes import quoting

ARGUMENTS = st.lists(st.text(alphabet='ab "\\\t%^&ü', max_size=8), min_size=1, max_size=5)


def split(line: str) -> list[str]:
    """As the C run-time splits: backslashes count only before a quote."""
    found: list[str] = []
    current, quoted, started, at = "", False, False, 0
    while at < len(line):
        slashes = 0
        while at < len(line) and line[at] == "\\":
            slashes, at = slashes + 1, at + 1
        if at < len(line) and line[at] == '"':
            current += "\\" * (slashes // 2)
            if slashes % 2:
                current += '"'
            else:
                quoted = not quoted
            started, at = True, at + 1
            continue
        current += "\\" * slashes
        started = started or bool(slashes)
        if at == len(line):
            break
        if line[at] in " \t" and not quoted:
            if started:
                found.append(current)
            current, started = "", False
        else:
            current, started = current + line[at], True
        at += 1
    return [*found, current] if started else found


@given(ARGUMENTS)
def test_arguments_survive_the_command_line(arguments: list[str]) -> None:
    argv = ["C:\\p.exe", *arguments]
    assert split(quoting.command_line(argv)) == argv


def test_a_line_that_is_too_long_is_refused() -> None:
    quoting.command_line(["x" * 32_766])
    for argv in (["x" * 32_767], ["\U0001f600" * 16_384], ["a\0b"]):
        with pytest.raises(quoting.QuotingError):
            quoting.command_line(argv)


@pytest.mark.parametrize("hostile", list('"%!^&|<>()\r\n\0'))
def test_cmd_syntax_never_reaches_a_batch_file(hostile: str) -> None:
    with pytest.raises(quoting.QuotingError, match="syntax"):
        quoting.batch_line("C:\\cmd.exe", "C:\\x.bat", [f"a{hostile}b"])


def test_plain_arguments_reach_a_batch_file() -> None:
    line = quoting.batch_line("C:\\cmd.exe", "C:\\a b\\x.bat", ["one", "two words", ""])
    assert line == '"C:\\cmd.exe" /d /s /c ""C:\\a b\\x.bat" "one" "two words" """'


@pytest.mark.parametrize("name", ["x.bat", "X.CMD", "x.bat.", "x.cmd ", "C:\\a\\b.Bat"])
def test_batch_files_are_known(name: str) -> None:
    assert quoting.is_batch(name)


def test_the_block_is_sorted_and_ends_with_two_nuls() -> None:
    block = quoting.environment_block([("b", "2"), ("A", "1"), ("_", "ü")])
    assert block.decode("utf-16-le") == "A=1\0b=2\0_=ü\0\0"
    assert quoting.environment_block([]).decode("utf-16-le") == "\0\0"


def test_what_no_program_starts_without_is_added_once() -> None:
    found = dict(quoting.needed_pairs([("temp", "mine"), ("X", "1")], "C:\\Windows", "D:\\t"))
    assert found == {
        "temp": "mine", "X": "1", "SystemRoot": "C:\\Windows", "SystemDrive": "C:",
        "TMP": "D:\\t",
    }  # fmt: skip


FILES = {
    "C:\\bin\\tool.exe", "C:\\bin\\tool.cmd", "C:\\bin\\x.py", "D:\\w\\local.exe",
    "D:\\w\\sub\\deep.exe",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tool", "C:\\bin\\tool.EXE"),
        ("x.py", "C:\\bin\\x.py"),
        ("local", None),
        ("sub/deep", "D:\\w\\sub\\deep.EXE"),
        ("C:\\bin\\tool", "C:\\bin\\tool.EXE"),
        ("\\bin\\tool", None),
        ("C:tool", None),
    ],
)
def test_programs_are_looked_for_in_the_manifests_path_only(name: str, found: str | None) -> None:
    known = {path.lower() for path in FILES}
    env = [("Path", 'relative;"C:\\bin";\\\\server\\x'), ("PATHEXT", ".EXE;.CMD")]
    assert quoting.find_program(name, env, "D:\\w", lambda path: path.lower() in known) == found
