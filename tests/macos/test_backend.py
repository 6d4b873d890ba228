"""The backend over the stand-in: how it fails, how it ends things, what it says about itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from macos.stand_in.options import HERE, stand_in_daemon
from support.daemon import Daemon
from support.no_files import check_files_are_refused
from support.processes import survivors
from support.rpc import RpcError

from sandboxd.macos.system import LAUNCHER

pytestmark = pytest.mark.requires("tinyscheme")
PATIENCE_S = 10.0


@pytest.fixture(scope="module", autouse=True)
def launcher() -> None:
    subprocess.run(["make", "-s", "-C", os.path.dirname(LAUNCHER)], check=True)


def script(tmp_path: Path, text: str) -> Path:
    """Another stand-in."""
    path = tmp_path / "other-sandbox-exec"
    path.write_text(text)
    path.chmod(0o755)
    return path


def status_of(daemon: Daemon) -> dict[str, object]:
    with daemon.connect() as connection:
        found = connection.call("status")["backends"]
    return next(one for one in found if one["name"] == "sandbox-exec")


def refused(daemon: Daemon) -> RpcError:
    with daemon.connect() as connection, pytest.raises(RpcError) as caught:
        connection.call("execute", {"argv": ["true"]})
    return caught.value


def test_it_says_what_it_is() -> None:
    with stand_in_daemon() as daemon:
        found = status_of(daemon)
        assert found["available"], found
        assert found["layers"][-1] == "a stand-in for sandbox-exec that isolates nothing"  # type: ignore[index]


def test_files_and_forwards_are_refused_by_name(tmp_path: Path) -> None:
    with stand_in_daemon() as daemon, daemon.connect() as connection:
        params = {"preset": "workspace-write", "workspace": str(tmp_path)}
        made = connection.call("sandbox/create", params)["sandbox"]
        check_files_are_refused(connection, made, "sandbox-exec")
        ran = connection.call("execute", {"argv": ["true"], "sandbox": made})
        assert ran["exit_code"] == 0


def test_a_broken_profile_is_refused(tmp_path: Path) -> None:
    """sandbox-exec does not accept it: nothing runs, and its words are in the error."""
    text = (HERE / "sandbox-exec").read_text()
    broken = text.replace("    check(text,", "    text = text[:-20]\n    check(text,")
    broken = broken.replace("os.path.dirname(os.path.realpath(__file__))", repr(str(HERE)))
    assert broken.count(str(HERE)) == 1
    with stand_in_daemon(program=script(tmp_path, broken)) as daemon:
        error = refused(daemon)
        assert error.kind == "SandboxUnavailable"
        assert "does not accept the profile" in error.message
        assert not status_of(daemon)["available"]


def test_a_sandbox_that_ends_at_once_is_refused(tmp_path: Path) -> None:
    said = "sandbox-exec: sandbox_apply: Operation not permitted"
    program = script(tmp_path, f"#!/bin/sh\necho '{said}' >&2\nexit 71\n")
    with stand_in_daemon(program=program) as daemon:
        error = refused(daemon)
        assert error.kind == "SandboxUnavailable"
        assert "inside a sandbox" in error.message


def test_a_sandbox_that_never_starts_the_command_is_refused(tmp_path: Path) -> None:
    program = script(tmp_path, "#!/bin/sh\nexec sleep 1000\n")
    with stand_in_daemon(program=program, env={"SANDBOXD_TEST_START_S": "0.5"}) as daemon:
        error = refused(daemon)
        assert error.kind == "SandboxUnavailable"
        assert "did not start the command" in error.message
        assert not [one for one in daemon.descendants() if "sleep" in str(one)]


def test_a_census_that_finds_nobody_makes_it_unavailable(tmp_path: Path) -> None:
    """The probe's process that got away must be found: one that cannot be ended must not start."""
    text = (HERE / "sandbox-exec").read_text()
    blind = text.replace("    note(found.group())\n", "    enter_namespace()\n")
    blind = blind.replace("os.path.dirname(os.path.realpath(__file__))", repr(str(HERE)))
    assert blind != text
    with stand_in_daemon(program=script(tmp_path, blind)) as daemon:
        found = status_of(daemon)
        assert not found["available"]
        assert "not found as a member" in str(found["reason"])


# A process that leaves its parent, its session and its process group, and holds no pipe.
ESCAPED = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(0); os.close(1); os.close(2)
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        import signal, time
        for number in (1, 2, 15):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(100)
    os._exit(0)
os.wait()
"""


def wait_for(path: Path) -> int:
    until = time.monotonic() + PATIENCE_S
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return int(path.read_text())


def is_gone(pid: int) -> bool:
    until = time.monotonic() + PATIENCE_S
    while os.path.exists(f"/proc/{pid}/ns/uts") and _alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *args]


def test_a_process_that_got_away_ends_with_its_command(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    with stand_in_daemon() as daemon, daemon.connect() as connection:
        code = ESCAPED + "\nimport time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        connection.call("execute", {"argv": python(code, str(noted))})
        pid = wait_for(noted)
        assert not _alive(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_everything_ends_with_the_daemon(tmp_path: Path, number: int) -> None:
    """SIGKILL: nothing of the daemon's own runs any more; the lifeline ends what got away."""
    noted = tmp_path / "pid"
    with stand_in_daemon() as daemon:
        with daemon.connect() as connection:
            code = ESCAPED + "\nimport time\ntime.sleep(100)\n"
            connection.call("execute", {"argv": python(code, str(noted)), "detach": True})
            pid = wait_for(noted)
            below = daemon.descendants()
            assert _alive(pid)
        daemon.process.send_signal(number)
        daemon.process.wait(PATIENCE_S * 2)
        assert is_gone(pid)
        assert not survivors(below)


def test_a_lifeline_that_was_killed_is_replaced(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    with stand_in_daemon() as daemon:
        with daemon.connect() as connection:
            connection.call("execute", {"argv": ["true"]})
            (first,) = [p for p in daemon.descendants() if "lifeline" in _command(p.pid)]
            os.kill(first.pid, signal.SIGKILL)
            assert is_gone(first.pid)  # a process that is about to die still takes what it is told
            code = ESCAPED + "\nimport time\ntime.sleep(100)\n"
            connection.call("execute", {"argv": python(code, str(noted)), "detach": True})
            pid = wait_for(noted)
        daemon.process.kill()
        daemon.process.wait()
        assert is_gone(pid)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def test_check_prints_the_whole_profile(tmp_path: Path) -> None:
    with stand_in_daemon() as daemon, daemon.connect() as connection:
        params = {"manifest": {"fs_write_allow": [str(tmp_path)]}}
        shown = connection.call("manifest/check", params)["command_line"]
    profile = shown[shown.index("-p") + 1]
    assert profile.startswith("(version 1)\n(deny default")
    assert any(word.endswith(f"={tmp_path}") for word in shown)
    assert str(tmp_path) not in profile


def test_a_path_with_a_line_break_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb"
    folder.mkdir()
    params = {"argv": ["true"], "manifest": {"fs_read_allow": [str(folder)]}}
    with (
        stand_in_daemon() as daemon,
        daemon.connect() as connection,
        pytest.raises(RpcError) as caught,
    ):
        connection.call("execute", params)
    assert caught.value.kind == "PathDenied"


@pytest.mark.requires("root")
def test_root_runs_commands_as_the_workspaces_owner(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "workspace"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    with stand_in_daemon() as daemon, daemon.connect() as connection:
        params = {"argv": ["sh", "-c", "id -u; id -g; id -G"], "workspace": str(folder),
                  "manifest": {"fs_write_allow": [str(folder)]}}  # fmt: skip
        assert connection.call("execute", params)["stdout"]["data"].split() == ["65534"] * 3


def test_what_the_kernels_log_says_explains_a_failure(tmp_path: Path) -> None:
    """The command itself says nothing: the log is the only evidence."""
    deny = f"file-write-create {tmp_path}/out"
    with stand_in_daemon(deny=deny) as daemon, daemon.connect() as connection:
        failed = connection.call("execute", {"argv": ["sh", "-c", "exit 1", str(tmp_path)]})
        (denial,) = failed["denials"]
        assert (denial["kind"], denial["target"]) == ("filesystem_write", f"{tmp_path}/out")
        assert (denial["evidence"], denial["layer"]) == ("kernel", "profile")
        assert denial["remedy"]
        # A command that succeeded did not need it.
        assert connection.call("execute", {"argv": ["true"]})["denials"] == []


def test_without_a_line_in_the_log_nothing_is_claimed() -> None:
    with stand_in_daemon() as daemon, daemon.connect() as connection:
        assert connection.call("execute", {"argv": ["sh", "-c", "exit 1"]})["denials"] == []


def test_a_refused_connection_in_the_log_is_a_denial() -> None:
    params = {"argv": ["sh", "-c", "exit 7"], "manifest": {"network": {"kind": "deny"}}}
    deny = "network-outbound 192.0.2.1:443"
    with stand_in_daemon(deny=deny) as daemon, daemon.connect() as connection:
        (denial,) = connection.call("execute", params)["denials"]
    assert (denial["kind"], denial["evidence"]) == ("network", "kernel")
    assert "192.0.2.1" in denial["target"]
