"""What every backend must do, as claims that name capabilities and not backends.

A claim is run on whatever backend the daemon uses. Where the backend says that it does not enforce
a field (`PolicyNotSupported`, or the tier "none"), the claim is content with that word; a backend
that says "enforced" must do it. Commands use only what the smallest image has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.rpc import RpcError
from support.runs import Ran, Runner

Check = Callable[[Runner, Path], None]
CLAIMS: dict[str, Check] = {}
PATH = ["PATH", "/usr/local/bin:/usr/bin:/bin"]


def claim(check: Check) -> Check:
    CLAIMS[check.__name__] = check
    return check


@dataclass(frozen=True, slots=True)
class Refused:
    """The backend cannot enforce it and says so, before anything runs."""

    error: RpcError


def attempt(runner: Runner, script: str, manifest: dict[str, Any], **params: Any) -> Ran | Refused:
    try:
        return runner.shell(script, manifest={"env": [PATH], **manifest}, **params)
    except RpcError as error:
        if error.kind != "PolicyNotSupported":
            raise
        return Refused(error)


def refusal(runner: Runner, *argv: str, **params: Any) -> RpcError:
    try:
        ran = runner.run(*argv, **params)
    except RpcError as error:
        return error
    raise AssertionError(f"it ran: {ran.story}")


def promised(ran: Ran | Refused, field: str) -> Ran | None:
    """The run whose `field` is promised to hold; None where the backend says that it does not."""
    if isinstance(ran, Refused):
        return None
    tier = ran.enforcement.get(field)
    assert tier in ("enforced", "best_effort", "none"), f"{field} was asked for and is {tier}"
    return None if tier == "none" else ran


# running


@claim
def exit_codes_are_exact(runner: Runner, folder: Path) -> None:
    for code in (0, 1, 2, 124, 127, 137, 159, 255):
        ran = runner.shell(f"exit {code}")
        assert (ran.outcome, ran.exit_code, ran.signal) == ("exited", code, None)


@claim
def signals_are_exact(runner: Runner, folder: Path) -> None:
    for number in (9, 15, 6):
        ran = runner.shell(f"kill -{number} $$")
        assert (ran.outcome, ran.exit_code, ran.signal) == ("signaled", None, number)


@claim
def streams_are_kept_apart_and_complete(runner: Runner, folder: Path) -> None:
    ran = runner.shell("printf 'out\\377\\000'; printf err >&2")
    assert ran.bytes_of("stdout") == b"out\xff\x00"
    assert ran.raw["stdout"]["encoding"] == "base64"
    assert ran.stderr == "err"
    large = runner.shell("head -c 3000000 /dev/zero | tr '\\0' x")
    assert large.bytes_of("stdout") == b"x" * 3_000_000
    assert not large.raw["stdout"]["truncated"]


@claim
def input_reaches_the_command_and_ends(runner: Runner, folder: Path) -> None:
    assert runner.run("cat", stdin="typed\n").stdout == "typed\n"
    assert runner.run("cat").stdout == ""
    number = runner.connection.start(
        "execute", {"argv": ["cat"], "stdin_open": True, "execution_id": "typing"}
    )
    for text in ("one ", "two"):
        runner.connection.call("execution/write", {"execution_id": "typing", "data": text})
    runner.connection.call("execution/close_stdin", {"execution_id": "typing"})
    assert Ran(runner.connection.result(number)).stdout == "one two"


@claim
def a_terminal_is_a_terminal(runner: Runner, folder: Path) -> None:
    ran = runner.shell("test -t 0 && test -t 1 && test -t 2 && echo tty", pty={})
    assert ran.stdout == "tty\r\n"


@claim
def the_environment_is_exactly_the_manifests(runner: Runner, folder: Path) -> None:
    ran = runner.run("env", manifest={"env": [PATH, ["A", "b=c"], ["EMPTY", ""]]})
    # Where /tmp cannot be made private, TMPDIR leads to a folder that is.
    lines = {line for line in ran.stdout.splitlines() if not line.startswith("TMPDIR=")}
    assert lines == {"=".join(PATH), "A=b=c", "EMPTY="}, ran.stdout


@claim
def a_missing_program_is_not_an_exit_code(runner: Runner, folder: Path) -> None:
    error = refusal(runner, "no-such-program-anywhere")
    assert (error.code, error.kind) == (-32004, "ExecFailed")


@claim
def streaming_tells_everything_in_order(runner: Runner, folder: Path) -> None:
    connection = runner.connection
    connection.notifications.clear()
    params = {"argv": ["sh", "-c", "echo a; echo b >&2; exit 4"], "stream": True,
              "execution_id": "streamed"}  # fmt: skip
    result = connection.call("execute", params)
    names = [n["method"] for n in connection.notifications]
    assert (names[0], names[-1]) == ("execution/started", "execution/exited")
    assert connection.output("streamed") == "a\n"
    assert connection.output("streamed", "stderr") == "b\n"
    assert (result["exit_code"], result["stdout"]["data"], result["stdout"]["bytes"]) == (4, "", 2)


@claim
def many_run_at_once(runner: Runner, folder: Path) -> None:
    numbers = [
        runner.connection.start("execute", {"argv": ["sh", "-c", f"sleep 0.2; exit {code}"]})
        for code in range(12)
    ]
    codes = [runner.connection.result(number)["exit_code"] for number in numbers]
    assert codes == list(range(12))


@claim
def a_detached_command_is_waited_for_by_another_connection(runner: Runner, folder: Path) -> None:
    started = runner.connection.call(
        "execute", {"argv": ["sh", "-c", "sleep 0.2; echo done"], "detach": True}
    )
    with runner.daemon.connect() as other:
        assert other.call("execution/wait", started)["stdout"]["data"] == "done\n"


# ending


def alive(marker: str) -> bool:
    """Whether any process on this machine has `marker` on its command line."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def ends(marker: str) -> bool:
    deadline = time.monotonic() + 30
    while alive(marker):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@claim
def a_timeout_ends_the_whole_tree(runner: Runner, folder: Path) -> None:
    script = "trap '' TERM; (trap '' TERM; sleep 86401) & sleep 86401; sleep 86401"
    ran = runner.shell(script, manifest={"timeout": 0.5})
    assert (ran.outcome, ran.exit_code) == ("timeout", None)
    assert ends("86401")


@claim
def cancelling_ends_the_whole_tree(runner: Runner, folder: Path) -> None:
    number = runner.connection.start(
        "execute",
        {"argv": ["sh", "-c", "sleep 86402 & sleep 86402"], "execution_id": "doomed",
         "stream": True},
    )  # fmt: skip
    runner.connection.notification("execution/started", execution_id="doomed")
    runner.connection.call("execution/cancel", {"execution_id": "doomed"})
    assert runner.connection.result(number)["outcome"] == "cancelled"
    assert ends("86402")


@claim
def nothing_outlives_its_command(runner: Runner, folder: Path) -> None:
    ran = runner.shell("(setsid sleep 86403 >/dev/null 2>&1 &) ; echo left")
    assert ran.stdout == "left\n"
    assert ends("86403")


@claim
def nothing_outlives_its_client(runner: Runner, folder: Path) -> None:
    with runner.daemon.connect() as client:
        client.start(
            "execute", {"argv": ["sleep", "86404"], "stream": True, "execution_id": "orphan"}
        )
        client.notification("execution/started", execution_id="orphan")
    assert ends("86404")


# limits


@claim
def output_is_limited(runner: Runner, folder: Path) -> None:
    ran = runner.shell("while :; do echo flood; done", manifest={"max_output_bytes": 1000})
    assert ran.outcome == "output_limit"
    assert ran.raw["stdout"]["bytes"] <= 1000


@claim
def memory_is_limited_over_the_tree(runner: Runner, folder: Path) -> None:
    """tail keeps a line without an end in memory; three of them together are too much."""
    hog = "head -c 60000000 /dev/zero | tail -n 1 | (cat >/dev/null; sleep 20)"
    manifest = {"max_memory_bytes": 100_000_000}
    ran = promised(attempt(runner, f"({hog}) & ({hog}) & ({hog}) & wait", manifest),
                   "max_memory_bytes")  # fmt: skip
    assert ran is None or ran.outcome == "memory", ran.story


@claim
def cpu_time_is_limited_over_the_tree(runner: Runner, folder: Path) -> None:
    burn = "(while :; do :; done)"
    ran = promised(attempt(runner, f"{burn} & {burn} & {burn} & wait", {"max_cpu_secs": 1}),
                   "max_cpu_secs")  # fmt: skip
    assert ran is None or ran.outcome == "cpu", ran.story


@claim
def processes_are_limited(runner: Runner, folder: Path) -> None:
    forks = "i=0; while [ $i -lt 60 ]; do sleep 30 & i=$((i+1)); done; wait"
    ran = promised(attempt(runner, forks, {"max_processes": 20, "timeout": 20}), "max_processes")
    refused_forks = ran is not None and ran.outcome == "exited" and ran.exit_code != 0
    assert ran is None or ran.outcome == "processes" or refused_forks, ran.story


@claim
def a_files_size_is_limited(runner: Runner, folder: Path) -> None:
    target = folder / "large"
    manifest = {"max_file_bytes": 100_000, "fs_write_allow": [str(folder)]}
    ran = promised(attempt(runner, f"head -c 1000000 /dev/zero > {target}", manifest),
                   "max_file_bytes")  # fmt: skip
    if ran is not None:
        assert ran.outcome != "exited" or ran.exit_code != 0, ran.story
        assert target.stat().st_size <= 100_000


# files


def isolated(runner: Runner, folder: Path, field: str) -> bool:
    """Whether this backend promises anything about files."""
    return promised(attempt(runner, "true", {field: [str(folder)]}), field) is not None


@claim
def allowed_files_are_read_and_written(runner: Runner, folder: Path) -> None:
    (folder / "in").write_text("content")
    ran = attempt(runner, f"cat {folder}/in > {folder}/out", {"fs_write_allow": [str(folder)]})
    if isinstance(ran, Ran):
        assert ran.exited(0), ran.story
        assert (folder / "out").read_text() == "content"


@claim
def what_is_only_readable_is_not_written(runner: Runner, folder: Path) -> None:
    (folder / "kept").write_text("kept")
    if isolated(runner, folder, "fs_read_allow"):
        manifest = {"fs_read_allow": [str(folder)]}
        ran = attempt(runner, f"cat {folder}/kept; echo x > {folder}/kept", manifest)
        assert isinstance(ran, Ran)
        assert ran.stdout == "kept"
        assert not ran.exited(0)
    if isolated(runner, folder, "fs_read_allow"):
        assert (folder / "kept").read_text() == "kept"


@claim
def what_is_not_allowed_is_not_read(runner: Runner, folder: Path) -> None:
    (folder / "secret").write_text("secret")
    other = folder / "other"
    other.mkdir()
    if isolated(runner, other, "fs_read_allow"):
        ran = attempt(runner, f"cat {folder}/secret", {"fs_read_allow": [str(other)]})
        assert isinstance(ran, Ran)
        assert "secret" not in ran.stdout
        assert not ran.exited(0)


@claim
def a_denied_path_inside_an_allowed_one_is_not_read(runner: Runner, folder: Path) -> None:
    (folder / "hidden").write_text("secret")
    (folder / "shown").write_text("shown")
    manifest = {"fs_read_allow": [str(folder)], "fs_deny": [str(folder / "hidden")]}
    script = f"cat {folder}/shown {folder}/hidden"
    ran = promised(attempt(runner, script, manifest), "fs_deny")
    if ran is not None:
        assert ran.stdout == "shown"


@claim
def the_deeper_of_two_paths_rules(runner: Runner, folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    script = f"echo x > {folder}/a; echo x > {inner}/b"
    for outer_access, inner_access, made in (("read", "write", {"b"}), ("write", "read", {"a"})):
        for name in (folder / "a", inner / "b"):
            name.unlink(missing_ok=True)
        manifest = {f"fs_{outer_access}_allow": [str(folder)],
                    f"fs_{inner_access}_allow": [str(inner)]}  # fmt: skip
        ran = promised(attempt(runner, script, manifest), "fs_write_allow")
        if ran is not None:
            found = {p.name for p in (folder / "a", inner / "b") if p.exists()}
            assert found <= made, f"{outer_access} outside, {inner_access} inside: {found}"
            # Best effort may refuse more than it has to, and never less.
            assert found == made or ran.enforcement["fs_write_allow"] == "best_effort"


@claim
def the_system_is_not_written(runner: Runner, folder: Path) -> None:
    if isolated(runner, folder, "fs_write_allow"):
        for place in ("/usr/x", "/etc/x", "/x"):
            assert not runner.shell(f"echo x > {place}").exited(0)
            assert not os.path.lexists(place)


@claim
def tmp_is_private(runner: Runner, folder: Path) -> None:
    """The host's /tmp is not the command's: nothing is read from it, nothing is left in it."""
    mark = Path(f"/tmp/sandboxd-conformance-{os.getpid()}")
    mark.write_text("of the host")
    try:
        if isolated(runner, folder, "fs_write_allow"):
            ran = runner.shell(f"cat {mark}; echo x > {mark}.left; true")
            assert "of the host" not in ran.stdout
            assert not os.path.lexists(f"{mark}.left")
    finally:
        mark.unlink()
        Path(f"{mark}.left").unlink(missing_ok=True)


@claim
def a_bad_path_is_refused_before_anything_runs(runner: Runner, folder: Path) -> None:
    for path in ("relative/path", str(folder / "missing"), "/with\nnewline"):
        error = refusal(runner, "true", manifest={"fs_read_allow": [path]})
        assert (error.code, error.kind) == (-32003, "PathDenied")
        assert error.field == "fs_read_allow[0]"


# network and the report


@claim
def a_denied_network_reaches_nobody(runner: Runner, folder: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        fetch = f"curl -sS -m 3 {url} || wget -q -T 3 -O- {url} || nc -w 3 127.0.0.1 {url[17:-1]}"
        ran = promised(attempt(runner, fetch, {"network": "deny"}), "network")
        if ran is not None:
            assert not ran.exited(0)
            try:
                server.accept()[0].close()
            except TimeoutError:
                return
            raise AssertionError("the command reached a server of the host")


@claim
def every_field_that_was_asked_for_is_reported(runner: Runner, folder: Path) -> None:
    wishes: dict[str, Any] = {
        "fs_read_allow": [str(folder)], "fs_write_allow": [str(folder)], "network": "inherit",
        "timeout": 30, "max_output_bytes": 10_000, "max_file_bytes": 10**9,
    }  # fmt: skip
    ran = attempt(runner, "true", wishes)
    if isinstance(ran, Ran):
        assert set(ran.enforcement) == {*wishes, "env"}
        assert set(ran.enforcement.values()) <= {"enforced", "best_effort", "none"}
        checked = runner.check(manifest={"env": [PATH], **wishes})
        assert checked["enforcement"] == ran.enforcement
