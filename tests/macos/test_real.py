"""What only a real macOS can show: that the profile is accepted, and that it denies.

Never run yet. Every refusal has a control: the same command with the path or the network granted.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon, running_daemon

pytestmark = [pytest.mark.macos, pytest.mark.isolation]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon(env={"SANDBOXD_BACKEND": "sandbox-exec"}) as running:
        yield running


def run(daemon: Daemon, *argv: str, **manifest: object) -> dict[str, object]:
    with daemon.connect() as connection:
        params = {"argv": list(argv), "manifest": {"network": {"kind": "deny"}, **manifest}}
        ran: dict[str, object] = connection.call("execute", params)
    return ran


def test_the_backend_is_available(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        found = {one["name"]: one for one in connection.call("status")["backends"]}
    assert found["sandbox-exec"]["available"], found["sandbox-exec"]


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash", "/bin/zsh"])
def test_a_shell_starts(daemon: Daemon, shell: str) -> None:
    assert run(daemon, shell, "-c", "echo hi")["stdout"]["data"] == "hi\n"  # type: ignore[index]


def test_files_outside_are_neither_read_nor_written(daemon: Daemon, tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    secret = folder / "secret"
    secret.write_text("secret")
    assert run(daemon, "cat", str(secret))["exit_code"] != 0
    assert run(daemon, "touch", str(folder / "new"))["exit_code"] != 0
    assert run(daemon, "cat", str(secret), fs_read_allow=[str(folder)])["exit_code"] == 0
    assert run(daemon, "touch", str(folder / "new"), fs_read_allow=[str(folder)])["exit_code"] != 0
    assert run(daemon, "touch", str(folder / "new"), fs_write_allow=[str(folder)])["exit_code"] == 0


def test_a_mask_in_another_case_is_a_mask(daemon: Daemon, tmp_path: Path) -> None:
    """The volume ignores case; a rule in the caller's spelling would match nothing."""
    folder = tmp_path.resolve()
    (folder / "Secret").write_text("secret")
    denied = {"fs_read_allow": [str(folder)], "fs_deny": [str(folder / "SECRET")]}
    assert run(daemon, "cat", str(folder / "Secret"), **denied)["exit_code"] != 0


def test_a_hard_link_does_not_lead_around_a_mask(daemon: Daemon, tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "secret").write_text("secret")
    script = f"ln {folder}/secret {folder}/other && cat {folder}/other"
    denied = {"fs_write_allow": [str(folder)], "fs_deny": [str(folder / "secret")]}
    assert run(daemon, "sh", "-c", script, **denied)["exit_code"] != 0


def test_a_rename_does_not_lead_around_a_mask(daemon: Daemon, tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "a").mkdir()
    (folder / "a" / "secret").write_text("secret")
    script = f"mv {folder}/a {folder}/b; cat {folder}/b/secret"
    denied = {"fs_write_allow": [str(folder)], "fs_deny": [str(folder / "a" / "secret")]}
    assert run(daemon, "sh", "-c", script, **denied)["exit_code"] != 0


def test_the_network_is_closed(daemon: Daemon) -> None:
    code = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        read = [sys.prefix, sys.base_prefix]
        argv = (sys.executable, "-I", "-S", "-c", code, port)
        assert run(daemon, *argv, fs_read_allow=read)["exit_code"] != 0
        opened = {"fs_read_allow": read, "network": {"kind": "inherit"}}
        assert run(daemon, *argv, **opened)["exit_code"] == 0


def test_the_daemons_socket_cannot_be_used_from_inside(daemon: Daemon) -> None:
    code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    opened = {"fs_read_allow": [sys.prefix, sys.base_prefix], "network": {"kind": "inherit"}}
    argv = (sys.executable, "-I", "-S", "-c", code, daemon.socket)
    assert run(daemon, *argv, **opened)["exit_code"] != 0
    subprocess.run(argv, check=True)


def test_processes_of_others_can_be_neither_seen_nor_signalled(daemon: Daemon) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            assert run(daemon, "kill", "-0", str(other.pid))["exit_code"] != 0
            os.kill(other.pid, 0)
        finally:
            other.kill()


def test_a_file_is_not_readable_through_a_service(daemon: Daemon) -> None:
    """`open`, `osascript` and `defaults` ask services that are not sandboxed."""
    for argv in (["open", "/tmp"], ["osascript", "-e", "return 1"], ["launchctl", "list"]):
        assert run(daemon, *argv)["exit_code"] != 0, argv
