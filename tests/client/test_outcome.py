"""Exit codes, and the line about denials: safe to paste, safe to print."""

from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd_client.cli.denial_lines import after_the_end, allowing_flags
from sandboxd_client.cli.explanation_text import manifest_file, report
from sandboxd_client.cli.live_denials import LiveDenials
from sandboxd_client.cli.outcome import cancelled_lines, cut_off, describe_end, exit_code, remarks
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.plan_words import after_run
from sandboxd_client.jsontext import dumps, loads, printable


def test_every_remedy_is_a_flag():
    assert allowing_flags({"fs_read_allow": ["/a"], "fs_write_allow": ["/b c"]}) == [
        "--read /a", "--write '/b c'",
    ]  # fmt: skip
    assert allowing_flags({"network": "inherit"}) == ["--net inherit"]
    assert allowing_flags({"network": {"kind": "inherit"}}) == ["--net inherit"]
    assert allowing_flags({"network": {"kind": "allow_hosts", "hosts": ["*.x.example"]}}) == [
        "--net '*.x.example'"
    ]
    assert allowing_flags({"timeout": {"secs": 60}, "max_memory_bytes": 104857600}) == [
        "--timeout 1m", "--memory 100M",
    ]  # fmt: skip
    assert allowing_flags({"max_file_bytes": 7}) == ["(manifest: max_file_bytes = 7)"]
    assert allowing_flags(None) == []


@settings(database=None)
@given(st.text())
def test_a_quoted_word_is_one_word_without_control_characters(word):
    text = quote(word)
    assert len(shlex.split(text)) == 1
    assert text.isprintable()


def test_ordinary_words_come_back_from_the_shell_as_they_were():
    for word in ("/a/b", "it's", "a b", "$HOME", "", "-x", "ä*"):
        assert shlex.split(quote(word)) == [word]


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
        "; give it more memory, for example --memory 1M; "
        "to allow it make another sandbox, with the flags of this one and: sandboxctl sandbox "
        "create --write /w"
    )


def test_amounts_in_messages_have_units():
    full = {
        "kind": "file_size", "confidence": "high", "remedy": {"tmp_bytes": 2097152},
        "message": "the sandbox's private /tmp is full: tmp_bytes allows 1048576 bytes",
    }  # fmt: skip
    assert remarks({"outcome": "exited", "denials": [full]}) == [
        "denied: the sandbox's private /tmp is full: --tmp-size allows 1M; "
        "give it a larger /tmp, for example --tmp-size 2M",
    ]
    (line,) = remarks({"outcome": "exited", "denials": [full]}, typed=["--memory"])
    assert line.endswith(
        "allows 1M; make another sandbox, with the flags of this one and a larger /tmp, for "
        "example: sandboxctl sandbox create --tmp-size 2M"
    )


def test_a_raised_limit_is_an_example_because_what_was_needed_is_not_known():
    late = {"kind": "timeout", "confidence": "high", "message": "ended by its timeout after 1 s",
            "remedy": {"timeout": {"secs": 4}}}  # fmt: skip
    large = {"kind": "memory", "confidence": "low", "claimed": True, "message": "the command says:"
             " more memory", "remedy": {"max_memory_bytes": 400 << 20}}  # fmt: skip
    write = {"kind": "filesystem_write", "confidence": "high", "target": "/w/x", "message": "w",
             "remedy": {"fs_write_allow": ["/w/x"]}}  # fmt: skip
    assert remarks({"outcome": "timeout", "denials": [late]}) == [
        "denied: ended by its timeout after 1 s; give it more time, for example --timeout 4s"
    ]
    assert remarks({"outcome": "timeout", "denials": [late, large, write]})[3:] == [
        "to allow it add: --write /w/x",
        "give it more time, for example --timeout 4s",
        "if that is so, give it more memory, for example --memory 400M",
    ]
    needs = [{"access": "limit", "target": "timeout", "operation": "run", "status": "needed"}]
    told = report({"needs": needs, "missing": late["remedy"]}, failed=True)
    assert "how much it needs is not known: the limit is an example" in told
    told = report({"needs": needs, "missing": write["remedy"]}, failed=True)
    assert "not known" not in told


@settings(database=None)
@given(st.text(st.characters(codec="utf-8")))
def test_printed_json_has_no_control_or_bidi_characters_and_says_the_same(text):
    document = printable(dumps({"message": text + "\u202e\x9b"}))
    assert document.decode().isprintable()
    assert loads(document) == {"message": text + "\u202e\x9b"}


def unproposed(reason: str, **more: object) -> dict[str, object]:
    return {
        "kind": "filesystem_read", "target": "/home/bob", "confidence": "medium", "remedy": None,
        "message": "the command says: /home/bob exists on the host, and is not visible in the "
        f"sandbox. No change is proposed: {reason}", **more,
    }  # fmt: skip


def test_where_a_flag_would_do_that_is_not_proposed_the_decision_is_the_users():
    for certain in ({"claimed": True}, {"confidence": "high"}):
        for reason in ("it is another user's home, or lies in one", "it is a start-up file"):
            result = {"outcome": "exited", "denials": [unproposed(reason, **certain)]}
            (line,) = remarks(result)
            assert line.endswith(
                f"{reason}; it is for you to decide whether to allow it nevertheless, with --read"
            )
            assert "no flag allows it" not in line
            assert remarks(result, typed=[])[0].endswith(" with --read of sandbox create")
    never = unproposed("the daemon's config does not permit it", confidence="high")
    (line,) = remarks({"outcome": "exited", "denials": [never]})
    assert line.startswith("denied, no flag allows it: ")
    assert "decide" not in line


def test_folders_of_the_system_are_only_those_of_the_system():
    message = "{} could not be written: it is not in fs_write_allow"
    claim = {"kind": "filesystem_write", "confidence": "low", "claimed": True, "remedy": None}
    outside = "; no flag is proposed for folders of the system: do that outside of the sandbox"
    flag = "; if the command is to write there, name the folder with --write"
    for target, way in (
        ("/usr/x", outside), ("/etc/a/b", outside), ("/var/tmp/x", flag), ("/home/me/x/y", flag),
        ("/sys/x", "--write"),
    ):  # fmt: skip
        denial = {**claim, "target": target, "message": message.format(target)}
        (line,) = remarks({"outcome": "exited", "denials": [denial]})
        assert line.partition("it is not in ")[2] in (way, f"--write{way}")


HIDDEN = {
    "kind": "filesystem_read", "target": "/d/x", "confidence": "low", "claimed": True,
    "message": "the command says: /d/x exists on the host, and is not visible in the sandbox",
}  # fmt: skip


def test_a_shell_that_runs_is_to_be_started_again_with_the_flag():
    printed: list[str] = []
    live = LiveDenials(Options(), claims=True)
    live.hear(refused("h", "h"), printed.append)
    again = "leave this shell, and start it again with its flags and"
    assert printed.pop().endswith(f"; to allow it {again} --net h\n")
    unsure = {**HIDDEN, "kind": "filesystem_write", "message": "/a/b is missing, and its folder /a "
              "exists: if it was to be written, the sandbox is the reason"}  # fmt: skip
    live.hear(unsure, printed.append)
    assert printed.pop().endswith(f"; to write there, {again} --write FOLDER\n")


def test_no_reason_is_made_up_for_what_was_not_judged():
    """While a shell runs, and after a command that succeeded, no flag is worked out for it."""
    printed: list[str] = []
    live = LiveDenials(Options(), claims=True)
    told = live.told
    live.hear(HIDDEN, printed.append)
    advice = "; if the command needs it, and it is no secret, name it with --read"
    assert printed.pop().endswith(f"in the sandbox{advice}\n")
    opened = f"{HIDDEN['message']}: a shell was to read it, run it or write it"
    live.hear({**HIDDEN, "message": opened}, printed.append)
    assert printed.pop().endswith(f"{advice}, or with --write to write it\n")
    masked = {**HIDDEN, "message": "x. No change is proposed: it is masked"}
    live.hear(masked, printed.append)
    assert printed.pop().endswith("No change is proposed: it is masked\n")
    (succeeded,) = remarks({"outcome": "exited", "exit_code": 0, "denials": [HIDDEN]})
    assert succeeded.endswith(advice)
    assert succeeded in told, "so that it is told once"
    message = f"{HIDDEN['message']}; this user could not read it outside either"
    (foreign,) = remarks({"outcome": "exited", "denials": [{**HIDDEN, "message": message}]})
    assert foreign.endswith("outside either")


def test_why_a_sandbox_ended_is_told_at_its_end_alone():
    lost = {"kind": "sandbox_error", "message": "/ws was removed, so everything was ended",
            "confidence": "high", "target": None}  # fmt: skip
    live = LiveDenials(Options(), claims=True)
    live.hear(lost, pytest.fail)
    result = {"outcome": "isolation_lost", "denials": [lost]}
    (line,) = remarks(result, told=live.told.values())
    assert line.startswith("the command was ended: /ws was removed")


def test_what_was_moved_aside_is_told_once():
    claim = {"kind": "protected_path", "target": "/ws/.envrc", "confidence": "low", "claimed": True,
             "message": "/ws/.envrc could not be written: it is protected"}  # fmt: skip
    moved = {**claim, "claimed": False, "confidence": "high",
             "message": "/ws/.envrc appeared and was moved to /ws/.sandboxd-kept/1/.envrc: it is "
             "protected"}  # fmt: skip
    live = LiveDenials(Options(), claims=True)
    printed: list[str] = []
    live.hear(claim, printed.append)

    def end():
        told = live.told.values()
        return remarks({"outcome": "exited", "denials": [moved]}, told=told)

    aside = "denied: /ws/.envrc appeared and was moved aside: it is protected"
    assert end()[0] == aside, "more is known than before"
    live.hear(moved, printed.append)
    assert printed[-1].endswith(f"{aside}\n")
    assert aside not in end()
    assert "sandboxctl kept" in end()[0]


def test_what_a_shell_told_is_not_told_again_with_other_words():
    """At the end more is known: only its flags are added."""
    live = LiveDenials(Options(), claims=True)
    told = live.told
    printed: list[str] = []
    live.hear(HIDDEN, printed.append)
    remedy = {"fs_read_allow": ["/d/x"]}
    unproposed = {
        **HIDDEN,
        "message": f"{HIDDEN['message']}. No change is proposed: it is a secret",
    }
    refused = {
        "kind": "network", "target": "h", "message": "h could not be reached", "confidence": "high",
        "remedy": {"network": "inherit"},
    }  # fmt: skip

    def end(*denials):
        return remarks({"outcome": "exited", "denials": [*denials]}, told=told.values())

    assert end(unproposed) == []
    flags = "if what is said above is so, add: --read /d/x"
    assert end({**HIDDEN, "remedy": remedy}) == [flags]
    assert end({**HIDDEN, "remedy": remedy}, refused) == [
        "denied: h could not be reached",
        "to allow what was denied above add: --net inherit", flags,
    ]  # fmt: skip
    live.hear(refused, printed.append)
    assert printed[-1].endswith("start it again with its flags and --net inherit\n")
    assert end({**HIDDEN, "remedy": remedy}, refused) == [flags]
    moved = {**HIDDEN, "kind": "protected_path", "message": "/d/x is protected and was moved to /k"}
    told["its"] = moved
    assert "moved aside" in end(moved)[0], "which a line from before does not say"


@pytest.mark.parametrize("certain", [{}, {"claimed": False, "confidence": "high"}])
def test_what_would_open_too_much_is_done_outside(certain):
    message = "/h/x could not be written: it is not in fs_write_allow"
    denial = {**HIDDEN, "kind": "filesystem_write", **certain}
    for reason in (
        "all of /h would have to be writable",
        "/usr/local would have to be writable, and no request may make it writable",
        "it belongs to the whole machine",
    ):
        text = f"{message}. No change is proposed: {reason}"
        (wide,) = remarks({"outcome": "exited", "denials": [{**denial, "message": text}]})
        assert wide.endswith(f"{reason}; do that outside of the sandbox")
        assert "no flag allows it" not in wide


@pytest.mark.parametrize(("name", "own"), [("new/x", True), (".newrc", False), ("old", False)])
def test_what_is_new_in_the_home_folder_can_have_a_folder_of_its_own(
    tmp_path, monkeypatch, name, own
):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "old").touch()
    message = f"x could not be written. No change is proposed: all of {tmp_path} would have to be"
    denial = {**HIDDEN, "kind": "filesystem_write", "target": f"{tmp_path}/{name}"}
    (line,) = remarks({"outcome": "exited", "denials": [{**denial, "message": message}]})
    assert line.endswith("make a folder for it outside, and name that with --write") == own


def test_what_a_folder_holds_that_would_have_to_be_allowed_is_the_users_decision_too():
    message = "/p/new could not be written: it is not visible in the sandbox. No change is proposed"
    denial = {**HIDDEN, "kind": "filesystem_write"}
    for why, way in (
        ("it holds a repository, or files that run later",
         "it is for you to decide whether to allow it nevertheless, with --write"),
        ("it holds /p/.env, which is masked", "another folder can be named with --write"),
        ("that would open a folder around the workspace",
         "another folder can be named with --write"),
    ):  # fmt: skip
        text = f"{message}: /p would have to be writable, and {why}"
        (line,) = remarks({"outcome": "exited", "denials": [{**denial, "message": text}]})
        assert line.endswith(f"{why}; {way}")
    certain = {**denial, "message": text, "claimed": False, "confidence": "high"}
    assert remarks({"outcome": "exited", "denials": [certain]})[0].endswith(f"{why}; {way}")


def protected(target: str, operation: str, by: str = "/w/.vscode", **more: object) -> str:
    message = f"{target} stays as it is: {by} is protected, because it can run code later"
    denial = {
        "kind": "protected_path", "operation": operation, "target": target, "message": message,
        "confidence": "high", "remedy": None, **more,
    }  # fmt: skip
    (line,) = remarks({"outcome": "exited", "denials": [denial]})
    return line


def test_what_is_protected_is_for_outside_and_a_flag_that_works_is_not_denied():
    decide = (
        "; do that outside of the sandbox. Of a path that exists, it is for you to decide whether "
        "to allow it nevertheless, with --write"
    )
    for line in (
        protected("/w/.vscode/x", "create"), protected("/w/.vscode", "write"),
        protected("/w/.vscode/x", "remove"),
    ):  # fmt: skip
        assert line.startswith("denied: ")
        assert line.endswith(decide)
    for operation in ("remove", "rename"):  # with --write it is a mount, and stays
        assert protected("/w/.vscode", operation).endswith("; do that outside of the sandbox")
    claim = {"confidence": "medium", "claimed": True}
    said = "the command says: /w/.vscode stays as it is: /w/.vscode is protected"
    assert protected("/w/.vscode", "rename", message=said, **claim).endswith("of the sandbox")
    assert protected("/w/.vscode", "write", message=said, **claim).endswith(decide)
    moved = "/w/.envrc appeared and was moved to /w/.sandboxd-kept/1: it is protected"
    denial = {"kind": "protected_path", "target": "/w/.envrc", "message": moved,
              "confidence": "high"}  # fmt: skip
    for line in remarks({"outcome": "exited", "denials": [denial]}):
        assert "flag" not in line
        assert "--write" not in line


def test_an_explanation_does_not_call_protected_files_impossible():
    need = {
        "access": "write", "target": "/w/.envrc", "operation": "create", "status": "refused",
        "note": "protected: it can run code outside the sandbox later", "grant": None,
    }  # fmt: skip
    told = report({"needs": [need]}, failed=True)
    assert "changed outside of the sandbox (--write PATH of what exists allows it never" in told
    assert "# Not allowed here: /w/.envrc: protected" in manifest_file({"needs": [need]}, "sh")
    ordinary = report({"needs": [{**need, "note": ""}]}, failed=True)
    assert "protected" not in ordinary


def test_a_granted_file_that_cannot_be_replaced_is_for_outside():
    message = (
        "/w/.git/config could not be replaced, renamed or removed (rename): it is in fs_write_allow"
        " itself, and such a file can only be written in place"
    )
    denial = {"kind": "filesystem_write", "target": "/w/.git/config", "message": message,
              "confidence": "high", "remedy": None}  # fmt: skip
    (line,) = remarks({"outcome": "exited", "denials": [denial]})
    assert line.startswith("denied: /w/.git/config could not be replaced")
    assert line.endswith("it is in --write itself, and such a file can only be written in place; "
                         "do that outside of the sandbox")  # fmt: skip


def test_in_plan_mode_the_way_out_is_named_and_no_flag():
    message = "/w/z could not be written: it is not visible in the sandbox{}"
    reason = ". No change is proposed: plan mode is on (se-1f, user)"
    denial = {"kind": "filesystem_write", "confidence": "high", "remedy": None, "target": "/w/z"}
    result = {"outcome": "exited", "denials": [{**denial, "message": message.format(reason)}]}
    (line,) = remarks(result)
    assert line == f"denied: {message.format('. No change is proposed: plan mode is on')}"
    options = Options("run")
    told = "plan mode allows nothing more: "
    ending = "end plan mode as an approver: sandboxctl plan off"
    assert after_run(options, result) == f"{told}{ending} se-1f and sandboxctl plan off"
    options.add("--plan", "")
    assert after_run(options, result) == f"{told}leave --plan out and {ending}"
    named = {**denial, "message": message.format(f"{reason[:-1]} x y) is a part of its name")}
    assert after_run(options, {"denials": [named]}) is None


def test_who_did_not_cancel_a_command_is_told_that_it_was():
    assert cancelled_lines({"outcome": "exited"}) == []
    (line,) = cancelled_lines({"outcome": "cancelled", "signal": 9})
    assert line.startswith("the command was cancelled from elsewhere: by sandboxctl kill")


def test_captured_output_that_is_cut_off_is_warned_about() -> None:
    cut = {"data": "x", "bytes": 9 << 20, "truncated": True}
    (said,) = cut_off({"outcome": "exited", "stdout": cut, "stderr": {"bytes": 3}})
    assert said.startswith("stdout is cut off: the command printed 9437184 bytes")
    assert cut_off({"outcome": "output_limit", "stdout": cut}) == []


def test_a_lost_sandbox_is_one_line_and_no_denial():
    denial = {"kind": "sandbox_error", "message": "/etc/x was replaced\n, so it ended"}
    (line,) = remarks({"outcome": "isolation_lost", "signal": 9, "denials": [denial]})
    assert line.startswith("the command was ended: /etc/x was replaced")
    assert line.endswith("you can run it again")
    assert "\n" not in line


def test_files_of_one_protected_folder_are_one_line():
    def denial(target: str, by: str) -> dict[str, object]:
        said = f"{target} stays as it is: {by} is protected, because it can run code later"
        return {"kind": "protected_path", "operation": "remove", "target": target,
                "message": f"the command says: {said}", "confidence": "medium", "claimed": True,
                "remedy": None}  # fmt: skip

    of_hooks = [denial(f"/w/.git/hooks/{name}", "/w/.git/hooks") for name in "abc"]
    config = denial("/w/.git/config", "/w/.git/config")
    first, second = remarks({"outcome": "exited", "denials": [*of_hooks, config]})
    assert "/w/.git/hooks/a and 2 more in it stay as they are: /w/.git/hooks is" in first
    assert "/w/.git/config stays as it is" in second
    (alone,) = remarks({"outcome": "exited", "denials": of_hooks[:1]})
    assert "/w/.git/hooks/a stays as it is: /w/.git/hooks is" in alone


@pytest.mark.parametrize(("took_ms", "shown"), [(24.02, "24ms"), (1234.5, "1.2s"), (60000, "1m")])
def test_how_long_it_took_is_told_in_milliseconds_below_a_second(took_ms, shown):
    result = {"outcome": "exited", "exit_code": 0, "duration_ms": took_ms}
    assert describe_end(result) == f"it ended with exit code 0 after {shown}"


def test_what_a_run_hears_early_is_told_when_it_has_become_long():
    printed: list[str] = []
    live = LiveDenials(Options(), time.monotonic() + 0.05)
    live.hear(HIDDEN, printed.append)
    assert live.left_s is None, "a claim is told at the end"
    live.hear({**HIDDEN, "claimed": False}, printed.append)
    while live.left_s:
        assert printed == []
    live.tell_due(printed.append)
    assert (len(printed), live.left_s) == (1, None)


def test_an_ipv6_address_that_is_given_in_brackets_is_not_proposed_again():
    remedy = {"network": {"kind": "allow_hosts", "hosts": ["2001:db8::7", "[2001:db8::7]:22"]}}
    denial = {"kind": "network", "confidence": "high", "target": "2001:db8::7", "message": "x",
              "remedy": remedy}  # fmt: skip
    (line,) = after_the_end([denial], ["[2001:db8::7]"])
    assert line.endswith("add: --net '[2001:db8::7]:22'")
