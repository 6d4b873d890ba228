"""`sandboxctl explain`: the command's own behaviour, a table, JSON, and what is not proposed."""

from __future__ import annotations

import ctypes.util
import json
import platform
from pathlib import Path
from typing import Any

import pytest
from explain.explaining import Ctl

pytestmark = pytest.mark.requires("bubblewrap")


def explained(ctl: Ctl, *words: str) -> dict[str, Any]:
    told = ctl("explain", "--json", *words)
    result: dict[str, Any] = json.loads(told.stdout)
    return result


def test_output_and_exit_code_are_the_commands_own(ctl: Ctl) -> None:
    told = ctl("explain", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert told.returncode == 7
    assert told.stdout == "out\n"
    assert told.stderr.startswith("err\n")
    assert (
        "no file and no connection was refused; what failed is the command's own affair"
        in told.stderr
    )


def test_the_table_names_path_access_and_what_to_paste(ctl: Ctl) -> None:
    told = ctl("explain", "--", "sh", "-c", f"echo x > {ctl.place}/out/new")
    assert told.returncode != 0
    assert f"needed  write   create  {ctl.place}/out/new  allow {ctl.place}/out" in told.stderr
    assert f'[sandbox]\nfs_write_allow = ["{ctl.place}/out"]\n' in told.stderr


def test_a_line_of_shell_is_explained_and_the_flags_of_run_are_named(ctl: Ctl) -> None:
    line = f"echo x > {ctl.place}/out/new"
    told = ctl("explain", "-c", line)
    named = f"it would need in addition, as flags of run: --write {ctl.place}/out\n"
    assert named in told.stderr
    assert ctl("run", "--write", f"{ctl.place}/out", "-c", line).returncode == 0
    nothing = ctl("explain")
    assert (nothing.returncode, "explain needs COMMAND" in nothing.stderr) == (125, True)


def test_a_silent_refusal_is_a_denial_with_kernel_evidence(ctl: Ctl) -> None:
    script = f"try: open('{ctl.place}/out/q', 'w')\nexcept OSError: pass"
    result = explained(ctl, "--", "python3", "-c", script)
    assert result["exit_code"] == 0
    (denial,) = result["denials"]
    assert (denial["kind"], denial["target"]) == ("filesystem_write", f"{ctl.place}/out/q")
    assert (denial["evidence"], denial["confidence"]) == ("kernel", "high")
    assert denial["remedy"] == {"fs_write_allow": [f"{ctl.place}/out"]}


def test_a_secret_is_named_and_not_proposed(ctl: Ctl) -> None:
    key = ctl.place / "home" / ".ssh" / "id_ed25519"
    key.parent.mkdir()
    key.write_text("CANARY\n")
    told = ctl("explain", "--write-manifest", str(ctl.place / "t.toml"), "--", "cat", str(key))
    assert "CANARY" not in told.stdout + told.stderr
    assert "not proposed, because it holds secrets" in told.stderr
    written = (ctl.place / "t.toml").read_text()
    assert f"# Not allowed here, because it holds secrets: {key}" in written
    assert "fs_read_allow" not in written


def test_a_masked_file_is_told_although_it_opens(ctl: Ctl) -> None:
    secret = ctl.workspace / "token"
    secret.write_text("CANARY\n")
    result = explained(ctl, "--deny", str(secret), "--", "sh", "-c", "wc -c < token")
    assert result["stdout"]["data"].strip() == "0"
    (need,) = result["explanation"]["needs"]
    assert (need["target"], need["status"]) == (str(secret), "refused")
    assert [d["target"] for d in result["denials"]] == [str(secret)]


def test_what_the_request_hides_is_no_secret_that_a_flag_would_show(ctl: Ctl) -> None:
    hidden = Path(ctl.place) / "out" / "hidden"
    hidden.write_text("text\n")
    told = ctl(
        "explain", "--read", str(hidden.parent), "--deny", str(hidden), "--", "cat", str(hidden)
    )
    assert f"{hidden} is masked: --deny (fs_deny) hides it" in told.stderr
    assert "--read" not in told.stderr
    assert "secrets" not in told.stderr


def test_the_home_folder_itself_is_never_proposed(ctl: Ctl) -> None:
    home = ctl.place / "home"
    result = explained(ctl, "--", "sh", "-c", f"for n in 1 2 3 4; do echo > {home}/new$n; done")
    explanation = result["explanation"]
    assert explanation["missing"] == {}
    assert {n["status"] for n in explanation["needs"]} == {"refused"}
    assert "too wide" in explanation["needs"][0]["note"]


@pytest.mark.parametrize("line", ["touch .envrc", "touch .envrc; exit 1"])
def test_what_was_moved_aside_is_named_with_the_way_to_get_it(ctl: Ctl, line: str) -> None:
    told = ctl("explain", "-c", line).stderr
    assert f"refused  write   create  {ctl.workspace}/.envrc  protected: " in told
    assert "sandboxctl kept list, diff, accept or drop" in told
    assert "was refused; what failed" not in told


def test_warnings_and_hints_of_run_are_told_too(ctl: Ctl) -> None:
    told = ctl("explain", "--", "sh", "-c", "git init -q made; sudo -n true").stderr
    assert "warning: " in told
    assert "/made" in told
    told = ctl("explain", "--", "sudo", "-n", "true").stderr
    assert "hint: " in told
    assert "own affair" not in told


def test_connections_are_proposed_as_hosts(ctl: Ctl) -> None:
    script = "curl -s http://203.0.113.9:8080/; curl -s https://example.org/; true"
    result = explained(ctl, "--", "sh", "-c", script)
    network = result["explanation"]["missing"]["network"]
    assert network["kind"] == "allow_hosts"
    assert set(network["hosts"]) == {"203.0.113.9:8080", "example.org"}


def test_a_killed_call_is_named(ctl: Ctl) -> None:
    # get_thread_area on x86-64, a number without a call on arm64: harmless, and not in `strict`.
    number = {"x86_64": 211, "aarch64": 250}[platform.machine()]
    libc = ctypes.util.find_library("c")
    script = f"import ctypes; ctypes.CDLL({libc!r}).syscall({number}, 0)"
    result = explained(ctl, "--syscalls", "strict", "--", "python3", "-c", script)
    assert result["outcome"] == "signaled"
    (denial,) = result["denials"]
    assert (denial["kind"], denial["evidence"]) == ("syscall", "kernel")
    if number == 211:
        assert denial["target"] == "get_thread_area"
    assert result["explanation"]["missing"] == {"syscall_policy": "baseline"}


def test_words_about_a_refusal_that_did_not_happen_are_no_denial(ctl: Ctl) -> None:
    told = f"touch: cannot touch '{ctl.place}/out/x': Read-only file system"
    words = ("--", "sh", "-c", f'echo "{told}" >&2; exit 1')
    assert explained(ctl, *words)["denials"] == []


def test_settings_that_a_program_does_without_are_optional(ctl: Ctl) -> None:
    (ctl.place / "home" / ".inputrc").write_text("")
    (ctl.place / "home" / ".profile").write_text("true\n")
    result = explained(ctl, "--", "sh", "-lc", "exit 0")
    assert result["denials"] == []
    assert result["explanation"]["missing"] == {}
    assert {n["status"] for n in result["explanation"]["needs"]} <= {"optional"}


def test_without_explain_there_is_no_explanation(ctl: Ctl) -> None:
    told = ctl("run", "--json", "--", "sh", "-c", f"echo x > {ctl.place}/out/new")
    assert json.loads(told.stdout)["explanation"] is None


def test_a_folder_is_no_manifest_file(ctl: Ctl) -> None:
    told = ctl("explain", "--write-manifest", str(ctl.place), "--", "true")
    assert told.returncode == 125
    assert "that is a folder" in told.stderr


def test_a_backend_that_cannot_explain_refuses(start_daemon: Any) -> None:
    keys = {"SANDBOXD_BACKEND": "none", "SANDBOXD_ALLOW_NO_SANDBOX": "1"}
    with start_daemon(env=keys).connect() as connection:
        params = {"argv": ["true"], "explain": True}
        answer = connection.answer(connection.start("execute", params))
    assert answer["error"]["data"]["kind"] == "PolicyNotSupported"
    assert answer["error"]["data"]["field"] == "explain"


@pytest.mark.requires("landlock")
def test_the_landlock_backend_explains_too(ctl: Ctl) -> None:
    (ctl.place / "data" / "x").write_text("1\n")
    words = ("--backend", "landlock", "--", "sh", "-c")
    for script, missing in (
        (f"cat {ctl.place}/data/x", {"fs_read_allow": [f"{ctl.place}/data/x"]}),
        (f"echo 1 > {ctl.place}/out/y", {"fs_write_allow": [f"{ctl.place}/out"]}),
    ):
        result = explained(ctl, *words, script)
        assert result["backend"] == "landlock"
        assert result["exit_code"] != 0
        assert result["explanation"]["missing"] == missing


def test_the_limits_that_runtimes_look_for_are_no_needs(ctl: Ctl) -> None:
    """Node reads those of its cgroup; what the command line names is told."""
    limit = next(Path("/sys/fs/cgroup").rglob("cgroup.procs"), None)
    assert limit is not None
    (ctl.workspace / "runtime").write_text(f"cat {limit} 2>/dev/null")
    assert explained(ctl, "--", "sh", "runtime")["explanation"]["needs"] == []
    (need,) = explained(ctl, "--", "cat", str(limit))["explanation"]["needs"]
    assert need["status"] == "secret"
