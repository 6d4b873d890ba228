"""Exit codes, and the line about denials: safe to paste, safe to print."""

from __future__ import annotations

import shlex

from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd_client.cli.denial_lines import allowing
from sandboxd_client.cli.outcome import exit_code, remarks
from sandboxd_client.cli.plain_text import quoted
from sandboxd_client.jsontext import dumps, loads, printable


def test_every_remedy_is_a_flag():
    assert allowing({"fs_read_allow": ["/a"], "fs_write_allow": ["/b c"]}) == [
        "--read /a", "--write '/b c'",
    ]  # fmt: skip
    assert allowing({"network": "inherit"}) == ["--net inherit"]
    assert allowing({"network": {"kind": "inherit"}}) == ["--net inherit"]
    assert allowing({"network": {"kind": "allow_hosts", "hosts": ["*.x.example"]}}) == [
        "--net '*.x.example'"
    ]
    assert allowing({"timeout": {"secs": 60}, "max_memory_bytes": 104857600}) == [
        "--timeout 1m", "--memory 100M",
    ]  # fmt: skip
    assert allowing({"max_file_bytes": 7}) == ["(manifest: max_file_bytes = 7)"]
    assert allowing(None) == []


@settings(database=None)
@given(st.text())
def test_a_quoted_word_is_one_word_without_control_characters(word):
    text = quoted(word)
    assert len(shlex.split(text)) == 1
    assert text.isprintable()


def test_ordinary_words_come_back_from_the_shell_as_they_were():
    for word in ("/a/b", "it's", "a b", "$HOME", "", "-x", "ä*"):
        assert shlex.split(quoted(word)) == [word]


def test_many_denials_are_a_few_lines():
    denial = {"kind": "filesystem_write", "message": "m", "remedy": None, "confidence": "high"}
    denials = [{**denial, "message": f"/{n}\n could not be written"} for n in range(11)]
    lines = remarks({"outcome": "exited", "denials": denials})
    assert len(lines) == 9
    assert not any("\n" in line for line in lines)
    assert lines[-1] == "and 3 more (--json shows all)"


def test_an_exit_code_is_the_commands_even_when_it_looks_like_a_signal():
    assert exit_code({"outcome": "exited", "exit_code": 137, "signal": None}) == 137
    assert exit_code({"outcome": "signaled", "exit_code": None, "signal": 11}) == 139
    assert exit_code({"outcome": "cancelled", "exit_code": None, "signal": None}) == 125
    assert exit_code({"outcome": "exited", "exit_code": None}) == 125


def refused(host: str, *hosts: str) -> dict[str, object]:
    return {
        "kind": "network", "target": host, "confidence": "high",
        "message": f"{host} could not be reached: it is not an allowed host",
        "remedy": {"network": {"kind": "allow_hosts", "hosts": list(hosts)}},
    }  # fmt: skip


def test_refused_hosts_are_one_line_each_and_the_flags_one_line():
    denials = [refused("b.example", "a.example", "b.example"),
               refused("a.example", "a.example", "a.example:22")]  # fmt: skip
    result = {"outcome": "exited", "exit_code": 1, "denials": denials}
    assert remarks(result, given=["a.example"]) == [
        "denied: b.example could not be reached: it is not an allowed host",
        "denied: a.example could not be reached: it is not an allowed host",
        "to allow it add: --net b.example --net a.example:22",
    ]
    assert remarks({**result, "denials": denials[:1]}) == [
        "denied: b.example could not be reached: it is not an allowed host; "
        "to allow it add: --net a.example --net b.example",
    ]


def test_a_plain_failure_says_nothing():
    assert remarks({"outcome": "exited", "exit_code": 3, "denials": []}) == []


def test_what_no_flag_allows_stands_apart_and_below_high_it_is_perhaps():
    claim = {
        "kind": "filesystem_write", "target": "/w/out", "confidence": "medium", "claimed": True,
        "message": "the command says: /w/out could not be written: it is not in fs_write_allow",
        "remedy": {"fs_write_allow": ["/w/out"]},
    }  # fmt: skip
    masked = {**claim, "claimed": False, "remedy": None}
    masked["message"] = "/w/two is masked: it is hidden"
    result = {"outcome": "exited", "exit_code": 1, "denials": [masked, claim, refused("h", "h")]}
    assert remarks(result) == [
        "perhaps denied: the command says: /w/out could not be written: it is not in --write",
        "denied: h could not be reached: it is not an allowed host",
        "to allow it add: --net h",
        "if that is so, add: --write /w/out",
        "perhaps denied: /w/two is masked: it is hidden; nothing is proposed, because it can be a "
        "secret",
    ]


def test_in_a_sandbox_that_exists_only_flags_that_were_typed_are_proposed():
    both = {**refused("h", "h"), "remedy": {"fs_write_allow": ["/w"], "max_memory_bytes": 1 << 20}}
    result = {"outcome": "exited", "exit_code": 1, "denials": [both]}
    (line,) = remarks(result, typed=["--memory", "--sandbox"])
    assert line.endswith(
        "; to allow it add: --memory 1M; "
        "to allow it make a sandbox with: sandboxctl sandbox create --write /w"
    )


def test_amounts_in_messages_have_units():
    full = {
        "kind": "file_size", "confidence": "high", "remedy": {"tmp_bytes": 2097152},
        "message": "the sandbox's private /tmp is full: tmp_bytes allows 1048576 bytes",
    }  # fmt: skip
    assert remarks({"outcome": "exited", "denials": [full]}) == [
        "denied: the sandbox's private /tmp is full: --tmp-size allows 1M; "
        "to allow it add: --tmp-size 2M",
    ]


@settings(database=None)
@given(st.text(st.characters(codec="utf-8")))
def test_printed_json_has_no_control_or_bidi_characters_and_says_the_same(text):
    document = printable(dumps({"message": text + "\u202e\x9b"}))
    assert document.decode().isprintable()
    assert loads(document) == {"message": text + "\u202e\x9b"}
