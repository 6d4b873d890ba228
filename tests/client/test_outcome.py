"""Exit codes, and the line about denials: safe to paste, safe to print."""

from __future__ import annotations

import shlex

from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd_client.cli.outcome import allowing, exit_code, quoted, remarks


def test_every_remedy_is_a_flag():
    assert allowing({"fs_read_allow": ["/a"], "fs_write_allow": ["/b c"]}) == [
        "--read /a", "--write '/b c'",
    ]  # fmt: skip
    assert allowing({"network": "inherit"}) == ["--net inherit"]
    assert allowing({"network": {"kind": "inherit"}}) == ["--net inherit"]
    assert allowing({"network": {"kind": "allow_hosts", "hosts": ["*.x.example"]}}) == [
        "--net '*.x.example'"
    ]
    assert allowing({"timeout": {"secs": 60}, "max_memory_bytes": 5}) == [
        "--timeout 60", "--memory 5",
    ]  # fmt: skip
    assert allowing({"max_file_bytes": 7}) == ["(manifest: max_file_bytes = 7)"]
    assert allowing(None) == []


@settings(database=None, deadline=None)
@given(st.text())
def test_a_quoted_word_is_one_word_without_control_characters(word):
    text = quoted(word)
    assert len(shlex.split(text)) == 1
    assert text.isprintable()


def test_ordinary_words_come_back_from_the_shell_as_they_were():
    for word in ("/a/b", "it's", "a b", "$HOME", "", "-x", "ä*"):
        assert shlex.split(quoted(word)) == [word]


def test_many_denials_are_still_one_line():
    denial = {"kind": "filesystem_write", "message": "m", "remedy": None}
    result = {"outcome": "exited", "denials": [{**denial, "target": f"/{n}\n"} for n in range(9)]}
    (line,) = remarks(result)
    assert "\n" not in line
    assert line.endswith("and 5 more (--json shows all)")


def test_an_exit_code_is_the_commands_even_when_it_looks_like_a_signal():
    assert exit_code({"outcome": "exited", "exit_code": 137, "signal": None}) == 137
    assert exit_code({"outcome": "signaled", "exit_code": None, "signal": 11}) == 139
    assert exit_code({"outcome": "cancelled", "exit_code": None, "signal": None}) == 125
    assert exit_code({"outcome": "exited", "exit_code": None}) == 125


def refused(host: str, *hosts: str) -> dict[str, object]:
    return {
        "kind": "network", "target": host, "message": "",
        "remedy": {"network": {"kind": "allow_hosts", "hosts": list(hosts)}},
    }  # fmt: skip


def test_refused_hosts_are_named_with_the_flag_that_adds_them():
    denials = [refused("b.example", "a.example", "b.example"),
               refused("a.example", "a.example", "a.example:22")]  # fmt: skip
    result = {"outcome": "exited", "exit_code": 1, "denials": denials}
    assert remarks(result, given=["a.example"]) == [
        "denied: connecting to b.example, connecting to a.example:22; "
        "to allow it add: --net b.example --net a.example:22"
    ]
