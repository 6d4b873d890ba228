"""Attacks on the named pipe: who may open it, who may serve it, who may use it."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import win32security
from wine.conftest import BOTH_KEYS, WindowsDaemon, start

from sandboxd.rpc.transport.interface import ListenError
from sandboxd.rpc.transport.pipe_listener import listen
from sandboxd.windows import api
from sandboxd.windows.security_descriptors import security_attributes
from sandboxd.windows.tokens import current_integrity, current_user
from sandboxd_client import transport
from sandboxd_client.client import Client
from sandboxd_client.errors import DaemonNotRunning, ServerNotTrusted
from sandboxd_client.pipe import label_of, open_pipe
from sandboxd_proto.errors import SandboxUnavailable

_DUPLEX = 0x3
STORM, BEYOND = 50, 300  # more than Windows has instances of one pipe


@contextmanager
def squatted(name: str, sddl: str) -> Iterator[str]:
    """A pipe that somebody else has made first."""
    path = rf"\\.\pipe\sandboxd-squat-{name}-{os.getpid()}"
    with security_attributes(sddl) as attributes:
        handle = api.check_handle(
            api.CreateNamedPipeW(path, _DUPLEX, 0, 4, 4096, 4096, 0, ctypes.byref(attributes)),
            path,
        )
    try:
        yield path
    finally:
        api.close(handle)


def test_the_pipe_is_the_users_and_the_systems_alone(unsandboxed: WindowsDaemon) -> None:
    pipe = open_pipe(unsandboxed.pipe)
    try:
        found = win32security.GetSecurityInfo(
            pipe.fileno(), win32security.SE_KERNEL_OBJECT,
            win32security.DACL_SECURITY_INFORMATION | win32security.OWNER_SECURITY_INFORMATION,
        )  # fmt: skip
        dacl = found.GetSecurityDescriptorDacl()
        text = win32security.ConvertSidToStringSid
        allowed = {text(dacl.GetAce(index)[2]) for index in range(dacl.GetAceCount())}
        assert allowed == {"S-1-5-18", current_user()}
        assert text(found.GetSecurityDescriptorOwner()) == current_user()
        assert label_of(pipe) == max(0x2000, int(current_integrity().rpartition("-")[2]))
    finally:
        pipe.close()


def test_a_pipe_of_low_integrity_is_not_trusted() -> None:
    user = current_user()
    sddl = f"O:{user}G:{user}D:P(A;;FA;;;{user})S:(ML;;NW;;;"
    with squatted("medium", f"{sddl}ME)") as path:
        transport.connect(path).close()
    with (
        squatted("low", f"{sddl}LW)") as path,
        pytest.raises(ServerNotTrusted) as refused,
    ):
        transport.connect(path)
    assert "below Medium" in refused.value.facts["cause"]


def test_a_pipe_of_another_user_is_not_trusted() -> None:
    with (
        squatted("other", "O:BAG:BAD:P(A;;FA;;;WD)") as path,
        pytest.raises(ServerNotTrusted),
    ):
        transport.connect(path)


def test_only_pipes_of_this_machine_are_opened(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    remote = rf"\\127.0.0.1\pipe\sandboxd-test-{os.getpid()}"
    for path in (remote, str(file), r"\\.\NUL", r"\\.\pipe\a\..\b", r"\\.\pipe\x\y"):
        with pytest.raises(DaemonNotRunning):
            transport.connect(path)
    for path in (remote, r"\\.\pipe\a\b", str(file), "name"):
        with pytest.raises(ListenError):
            listen(path)


def test_a_command_may_not_use_the_daemon(unsandboxed: WindowsDaemon) -> None:
    program = (
        "import sys\n"
        "from sandboxd_client.client import Client\n"
        "try:\n"
        "    Client(sys.argv[1], autostart=False).status()\n"
        "    print('served')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    env = {**unsandboxed.env, "PYTHONPATH": os.environ["PYTHONPATH"]}
    with Client(unsandboxed.pipe) as client:
        argv = [sys.executable, "-c", program, unsandboxed.pipe]
        result = client.execute(argv, manifest={"env": env, "timeout": 60})
    assert result.stdout.data.startswith("Unauthorized"), result
    assert "may not use the daemon" in result.stdout.data


def test_an_elevated_daemon_refuses_without_a_sandbox_too(tmp_path: Path) -> None:
    if not ctypes.windll.shell32.IsUserAnAdmin():
        pytest.skip("these tests have no administrator's rights")
    daemon = start(rf"\\.\pipe\sandboxd-bare-{os.getpid()}", tmp_path, BOTH_KEYS)
    try:
        with (
            Client(daemon.pipe) as client,
            pytest.raises(SandboxUnavailable, match="administrator"),
        ):
            client.execute(["cmd.exe", "/c", "echo ran"], manifest={"env": daemon.env})
    finally:
        daemon.kill()


def test_clients_that_say_nothing_do_not_keep_others_out(unsandboxed: WindowsDaemon) -> None:
    silent = [open_pipe(unsandboxed.pipe) for _ in range(STORM)]
    try:
        with Client(unsandboxed.pipe) as client:
            assert client.initialize().server.name == "sandboxd"
    finally:
        for pipe in silent:
            pipe.close()


def test_clients_that_come_and_go_at_once_leave_it_serving(unsandboxed: WindowsDaemon) -> None:
    errors: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(BEYOND // STORM):
                open_pipe(unsandboxed.pipe).close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(STORM)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    with Client(unsandboxed.pipe) as client:
        assert client.initialize().server.name == "sandboxd"


HALVES = [
    b'{"jsonrpc": "2.0", "id": 1, "meth',
    b"Content-Length: 100\r\n\r\n{",
    b"Content-Length: 99999999999\r\n\r\n{}",
    b"Content-Length: -1\r\n\r\n",
    b"\0" * 4096,
    b"\xff\xfe\n",
    b"[" * 50_000 + b"\n",
]


def test_half_frames_and_garbage_leave_it_serving(unsandboxed: WindowsDaemon) -> None:
    """Some hang up at once, others stay connected and say nothing more."""
    staying = []
    for body in HALVES:
        for stays in (False, True):
            pipe = open_pipe(unsandboxed.pipe)
            with suppress(OSError):  # the daemon may have closed it already
                pipe.sendall(body)
            if stays:
                staying.append(pipe)
            else:
                pipe.close()
    try:
        with Client(unsandboxed.pipe) as client:
            assert client.initialize().server.name == "sandboxd"
            result = client.execute(
                ["cmd.exe", "/c", "echo here"], manifest={"env": unsandboxed.env}
            )
        assert result.stdout.data.strip() == "here"
    finally:
        for pipe in staying:
            pipe.close()
