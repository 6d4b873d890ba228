"""What a command does not see, or loses, although it succeeds: said in one line."""

from __future__ import annotations

import pytest
from ctl import Ctl

GONE = "is gone: the sandbox had a /tmp of its own"


@pytest.mark.parametrize("command", [["ls", "lib"], ["ls", "./lib/"], ["sh", "-c", "ls lib"]])
def test_a_denied_folder_that_is_listed_is_named(inside: Ctl, command: list[str]) -> None:
    lib = inside.workspace / "lib"
    lib.mkdir()
    (lib / "a").write_text("")
    done = inside("run", "--deny", "lib", "--", *command)
    assert (done.returncode, done.stdout) == (0, b"")
    assert f"{lib} is masked" in done.stderr.decode()
    other = inside("run", "--deny", "lib", "--", "ls", "-d", ".")
    assert other.stderr == b""


@pytest.mark.parametrize(
    ("script", "lost"),
    [
        ("echo x > /tmp/out.txt", "/tmp/out.txt"),
        ("echo x | tee /tmp/out.txt", "/tmp/out.txt"),
        ("echo x > f; cp f /tmp/copy", "/tmp/copy"),
        ("sort -o /tmp/sorted /etc/passwd", "/tmp/sorted"),
        ("echo x > /tmp/part; cat /tmp/part > f", None),
        ("echo x > /tmp/part && rm /tmp/part", None),
        ("rm -f /tmp/none", None),
        ("cat /tmp/none > f; true", None),
        ("python3 -c 'import tempfile; tempfile.mkstemp()'", None),
        ("echo x > /tmp/out.txt; false", None),
    ],
)
def test_a_file_in_tmp_that_the_caller_asked_for_is_named(
    inside: Ctl, script: str, lost: str | None
) -> None:
    said = inside("run", "--", "sh", "-c", script).stderr.decode()
    if lost is None:
        assert GONE not in said
    else:
        assert f"warning: {lost} {GONE}" in said


def test_a_sandbox_that_stays_loses_nothing(inside: Ctl) -> None:
    inside("sandbox create", "--name", "stays")
    try:
        line = "echo x > /tmp/out.txt"
        done = inside("sandbox run", "stays", "--", "sh", "-c", line)
        assert (done.returncode, done.stderr) == (0, b"")
        kept = inside("sandbox run", "stays", "--", "cat", "/tmp/out.txt")
        assert kept.stdout == b"x\n"
    finally:
        inside("sandbox destroy", "stays")
