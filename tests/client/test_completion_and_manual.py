"""Completion, help and manual pages: all are made from the table of commands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest
from terminal_screen import Screen

from sandboxd_client.cli.complete import candidates
from sandboxd_client.cli.flags import TOOL_GROUPS
from sandboxd_client.cli.table import COMMANDS
from sandboxd_proto.locations import KEPT_FOLDER

GROUPS = [f"group:{tool}" for tool in TOOL_GROUPS]


def test_completion_knows_every_command_and_flag():
    firsts = "\n".join(candidates([""]))
    for command in COMMANDS.values():
        words = command.name.split()
        assert words[0] in firsts
        shown = [line.partition("\t")[0] for line in candidates([*words, "--"])]
        assert {flag.name for flag in command.flags} <= set(shown)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_stub_is_short_and_its_shell_can_read_it(ctl, shell):
    script = ctl("completion", shell).stdout
    assert len(script.splitlines()) < 40
    assert b"sandboxctl __complete" in script
    program = shutil.which(shell)
    if program is not None:
        done = subprocess.run([program, "-n", "/dev/stdin"], input=script, capture_output=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sandboxctl", "st"], ["status"]),
        (["sandboxctl", "run", "--pre"], ["--preset"]),
        (["sandboxctl", "run", "--preset", "read"], ["read-only"]),
        (["sandboxctl", "run", "--preset", "read-only", "--mem"], ["--memory"]),
        (["sandboxctl", "completion", "z"], ["zsh"]),
        (["sandboxctl", "run", "--", "/bin/sh", "--pre"], []),
        (["sandboxctl", "sand"], ["sandbox"]),
        (["sandboxctl", "sandbox", "cr"], ["create"]),
        (["sandboxctl", "run", "-w", "/tmp", "--mem"], ["--memory"]),
        (["sandboxctl", "help", "kept a"], ["kept", "accept"]),
        (["sandboxctl", "sandbox", "create", "--id"], ["--idle"]),
        (["sandboxctl", "sandbox", "run", "--no-a"], ["--no-autostart"]),
        (["sandboxctl", "sandbox", "run", "sb-1", "/usr/bin/sha256s"], ["/usr/bin/sha256sum"]),
        (["sandboxctl", "shell", "--sand"], ["--sandbox"]),
        (["sandboxctl", "run", "--net", "gro"], GROUPS),
        (["sandboxctl", "run", "--net", "group:"], [one.removeprefix("group:") for one in GROUPS]),
        (["sandboxctl", "run", "--net", "group:py"], ["python"]),
        (["sandboxctl", "run", "--net=group:py"], ["python"]),
        (["sandboxctl", "run", "--preset=read"], ["read-only"]),
        (["sandboxctl", "run", "--read=/usr/bin/sha256s"], ["/usr/bin/sha256sum"]),
        (["sandboxctl", "run", "-e", "A=", "/usr/bin/sha256s"], ["/usr/bin/sha256sum"]),
        (["sandboxctl", "run", "-e", "A=b", "--net", "group:py"], ["python"]),
    ],
)
def test_bash_completes(ctl, words, expected):
    script = ctl("completion", "bash").stdout.decode()
    line = " ".join(words)
    parts = [part for word in words for part in re.findall("[:=]+|[^:=]+", word)]  # as bash does
    quoted = " ".join(f"'{part}'" for part in parts)
    own = f'sandboxctl() {{ {sys.executable} -m sandboxd_client.cli "$@"; }}'
    probe = (f"{own}\n{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(parts) - 1}; "
             f"COMP_LINE='{line}'; _sandboxctl\n"
             'printf "%s\\n" "${COMPREPLY[@]}"')  # fmt: skip
    done = subprocess.run(
        ["bash", "--norc", "-c", probe], capture_output=True, timeout=60, env=ctl.env()
    )
    assert done.stderr == b""
    assert done.stdout.decode().split() == expected


@pytest.mark.parametrize("action", ["diff", "accept", "drop"])
def test_what_was_moved_aside_is_completed(tmp_path, monkeypatch, action):
    """A path that a shell would evaluate is offered by its ID."""
    run = tmp_path / KEPT_FOLDER / "abcdef"
    run.mkdir(parents=True)
    for name in ("1-%2Eenvrc", "2-sub%2F%2Eenvrc", "3-$(id)%2F%2Eenvrc"):
        (run / name).touch()
    (tmp_path / "other").touch()
    found = {".envrc\tabcd-1", "sub/.envrc\tabcd-2", "abcd-3\tabcd-3"}
    assert {*candidates(["kept", action, "-w", str(tmp_path), ""])} == found
    monkeypatch.chdir(tmp_path)
    assert candidates(["kept", action, ".e"]) == [".envrc\tabcd-1"]
    assert candidates(["kept", action, "o"]) == [":none"]


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_and_manual_pages_come_from_the_table(ctl, name):
    shown = ctl("help", *name.split()).stdout.decode()
    manual = ctl("man", "--roff", *name.split()).stdout.decode()
    assert max(map(len, shown.splitlines())) <= 80
    assert manual.startswith(".TH ")
    for flag in COMMANDS[name].flags if name else ():
        assert flag.name in shown
        assert flag.name.replace("-", "\\-") in manual


@pytest.mark.parametrize("path", ["/usr/local/bin:/usr/bin:/bin", "/nonexistent"])
def test_a_manual_page_is_formatted_on_a_terminal(ctl, workspace, path):
    """By man; without it the text of help."""
    shown = Screen(ctl.argv("man", "run"), workspace, ctl.env(PATH=path, MANPAGER="cat"))
    try:
        shown.until(b"stop the command after", 60)
        assert shown.end(60) == 0
        assert b".SH" not in shown.shown
        assert b"\\f" not in shown.shown
    finally:
        shown.close()


@pytest.mark.parametrize("path", ["/usr/local/bin:/usr/bin:/bin", "/nonexistent"])
def test_a_manual_page_in_a_pipe_is_plain_text(ctl, path):
    shown = ctl("man", "run", PATH=path).stdout.decode()
    assert "stop the command after" in shown
    assert not any(sign in shown for sign in (".SH", "\\f", "\x1b", "\b"))


def test_manual_pages_are_written_to_where_man_finds_them(ctl, folder):
    home = folder / "home"
    done = ctl("man", "--install", HOME=str(home), PATH=f"{home}/.local/bin:/usr/bin:/bin")
    assert (done.returncode, done.stderr) == (0, b"")
    pages = home / ".local" / "share" / "man" / "man1"
    assert len(list(pages.iterdir())) == len(COMMANDS) + 1
    assert '"$(sandboxctl' in (pages / "sandboxctl-sandbox-forward.1").read_text()


def test_a_flag_of_another_command_is_not_proposed(ctl):
    assert b"--detach" not in ctl("logs", "-d", "x").stderr
    assert b"did you mean --detach?" in ctl("run", "-d", "x").stderr
