"""Reading git's config as git does, and telling files that cannot make git run anything."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.policy.protected import git_config
from sandboxd.policy.protected.git_config import entries, harmless

FILES = [
    "[core]\n\thooksPath = a\n",
    '[core]\nhookspath="a b" ; c\n',
    "[Core] HooksPath = x\n",
    '[remote "a.b"]\n\turl = https://example.org/#x\n',
    '[a "q\\"uote"]\nk = v\n',
    "[core]\nhooksPath = a\\\n b\n",
    '[core]\nhooksPath = "a ; b" # c\n',
    "[core]\n  # hooksPath = no\n  bare\n",
    "[a.b]\nk = 1\n[c]\nk = tab\\tend\n",
    '[include]\npath = "x\\\\y"\n',
    "[core]\r\nhooksPath = a\r\n",
    "[x]\nk = a   b   \n",
]


@pytest.mark.parametrize("text", FILES)
def test_what_git_reads_is_what_we_read(text: str, base: Path, git: Callable[..., str]) -> None:
    file = base / "config"
    file.write_bytes(text.encode())
    said = git(base, "config", "--list", "-z", "--no-includes", "--file", str(file))
    theirs = [item.partition("\n") for item in said.split("\0") if item]
    assert entries(text) == [(k, v if sep else "true") for k, sep, v in theirs]


def test_what_git_init_and_clone_write_is_harmless(
    base: Path, repository: Path, git: Callable[..., str]
) -> None:
    git(base, "clone", "-q", str(repository), "clone")
    git(base / "clone", "config", "user.name", "Zoë")
    for folder in (repository, base / "clone"):
        assert harmless((folder / ".git" / "config").read_bytes())


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n\tfsmonitor = ./x\n",
        "[core]\n\tsshCommand = x\n",
        "[core]\n\thooksPath = .\n",
        "[core]\n\tpager = x\n",
        "[core]\n\tworktree = /\n",
        "[alias]\n\tst = !x\n",
        '[filter "x"]\n\tclean = x\n',
        "[include]\n\tpath = x\n",
        '[includeIf "gitdir:/"]\n\tpath = x\n',
        "[credential]\n\thelper = !x\n",
        '[remote "o"]\n\turl = ext::sh -c x\n',
        '[remote "o"]\n\tuploadpack = x\n',
        '[branch "main"]\n\tremote = ext::x\n',
        "[core]\n\tbare = false\\\n\tfsmonitor = x\n",
        "[core] fsmonitor = x\n",
        "[core]bare = true\n",
        '[user]\n\tname = "a\n[core]\n\tfsmonitor = x\n',
        "[user]\n\tname = a\r[core]\r\tfsmonitor = x\n",
        "[core.x]\n\ty = z\n",
        "\ufeff[core]\n\tfsmonitor = x\n",
    ],
)
def test_what_could_run_something_is_not_harmless(text: str) -> None:
    assert not harmless(text.encode())


def test_what_is_not_text_is_not_harmless() -> None:
    assert not harmless(b"[core]\n\tbare = \xff\n")


@given(st.binary(max_size=200))
def test_no_input_breaks_the_readers(data: bytes) -> None:
    harmless(data)
    entries(data.decode("utf-8", "surrogateescape"))


LINE = st.sampled_from(
    ["[core]", "\tbare = true", '[remote "o"]', "\turl = x", "fsmonitor = x", "\\", '"', "#", ";",
     "[", "]", "=", " ", "\t", "\r", "[core] bare", '[a "b', "hookspath=y", "[alias]", "x = !y"]
)  # fmt: skip
SAFE = ("core.bare", "remote.o.url")


@given(st.lists(st.tuples(LINE, st.sampled_from(["\n", "", "\r\n"])), max_size=8))
def test_git_reads_nothing_else_in_what_is_called_harmless(
    parts: list[tuple[str, str]],
) -> None:
    data = "".join(a + b for a, b in parts).encode()
    if not harmless(data):
        return
    done = subprocess.run(
        ["git", "config", "--list", "-z", "--file", "-"], input=data, capture_output=True,
        check=False, cwd="/",
    )  # fmt: skip
    keys = [item.partition(b"\n")[0].decode() for item in done.stdout.split(b"\0") if item]
    assert all(key in SAFE for key in keys)


def test_a_large_file_is_read_up_to_a_limit() -> None:
    assert git_config.MAX_BYTES <= 1 << 20


@pytest.mark.parametrize("blank", [" ", "\t", "a", "a ", "[", '"', "="])
def test_no_line_takes_long(blank: str) -> None:
    """A line of a mebibyte, as a command can write it; blanks before a bad character."""
    for before, after in (("", "\\"), ("a =", '"'), ("#", "\u00e9"), ("[a", "x"), ('[a "', "x")):
        text = before + blank * ((1 << 20) // len(blank)) + after
        git_config.harmless(text.encode())
        git_config.entries(text)


LINES = {
    "a harmless file": ("[core]\n\tbare = false\n", "[core]\n\tbare = false\n"),
    "a program": ("[core]\n\tbare = false\n\tpager = x\n", "[core]\n\tbare = false\n"),
    "an unusual form": ('[core]\n\tpager = "a; b"\n\tbare = true', "[core]\n\tbare = true\n"),
    "a continued line": ("[core]\n\tpager = a \\\n\tbare = true\n", "[core]\n\tbare = true\n"),
    "a section in an unusual form": (
        '[remote "a\\"b"]\n\turl = https://x\n[user]\n\tname = y\n', "[user]\n\tname = y\n"
    ),
    "a section with a setting": ("[core] pager = x\n\tbare = true\n", ""),
    "a helper": ('[remote "x"]\n\turl = ext::sh\n\tfetch = a\n', '[remote "x"]\n\tfetch = a\n'),
    "no section": ("pager = x\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_the_harmless_lines_of_a_config(name: str) -> None:
    text, kept = LINES[name]
    found = git_config.harmless_lines(text.encode(), lambda key, value: False)
    assert found.decode() == kept
    assert git_config.harmless(found)


def test_the_smallest_config_opens_the_repository() -> None:
    text = '[core]\n\trepositoryformatversion = 1\n\tbare = "tr ue"\n[extensions]\n'
    found = git_config.smallest(f"{text}\tobjectFormat = sha256\n\trefStorage = a;b\\\n".encode())
    assert git_config.harmless(found)
    assert git_config.hash_bytes(found) == 32
    assert git_config.entries(found.decode())[0] == ("core.repositoryformatversion", "1")
