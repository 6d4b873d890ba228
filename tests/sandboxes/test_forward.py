"""`sandbox/forward`: a server inside is reached from the host, and nothing else is."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

import anyio
import pytest
from support.backends import running_backend
from support.daemon import Daemon
from support.rpc import Connection, RpcError

from sandboxd.supervisor.sandboxes.files import SandboxFiles
from sandboxd.supervisor.sandboxes.forward import ConnectionBudget, Forward
from sandboxd_proto.errors import InvalidParams

pytestmark = pytest.mark.isolation

SERVER = """
import socket, threading
server = socket.create_server((HOST, 8200), family=FAMILY)
print("ready", flush=True)
def serve(client):
    data = client.makefile("rb").readline()
    client.sendall(data.upper() * COUNT)
    client.close()
while True:
    client, _ = server.accept()
    threading.Thread(target=serve, args=(client,)).start()
"""


def program(host: str = "127.0.0.1", family: str = "socket.AF_INET", count: int = 1) -> str:
    given = f"import socket\nHOST, FAMILY, COUNT = {host!r}, {family}, {count}\n"
    return given + SERVER


@pytest.fixture(scope="module", params=["bubblewrap", "docker"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with running_backend(request.param) as found:
        yield found


@pytest.fixture
def connection(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as found:
        yield found


@pytest.fixture
def sandbox(connection: Connection) -> Iterator[str]:
    made: str = connection.call("sandbox/create", {"manifest": {"network": "deny"}})["sandbox"]
    yield made
    connection.call("sandbox/destroy", {"sandbox": made})


def serve(connection: Connection, sandbox: str, code: str) -> None:
    """Until the server inside listens; it goes on in the background."""
    script = 'python3 -c "$1" > /tmp/log 2>&1 & until grep -q ready /tmp/log; do sleep 0.05; done'
    argv = ["sh", "-c", script, "sh", code]
    connection.call("execute", {"argv": argv, "sandbox": sandbox})


def ask(endpoint: str, line: bytes = b"hello\n") -> bytes:
    if endpoint.startswith("/"):
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(endpoint)
        except OSError:
            client.close()
            raise
    else:
        host, port = endpoint.rsplit(":", 1)
        client = socket.create_connection((host, int(port)))
    with client:
        client.settimeout(30)
        client.sendall(line)
        answer = b""
        while piece := client.recv(1 << 16):
            answer += piece
    return answer


@pytest.mark.parametrize("listen", ["unix", "tcp"])
def test_a_server_inside_is_reached(connection: Connection, sandbox: str, listen: str) -> None:
    serve(connection, sandbox, program())
    params = {"sandbox": sandbox, "port": 8200, "listen": listen}
    made = connection.call("sandbox/forward", params)
    assert ask(made["endpoint"]) == b"HELLO\n"
    assert ask(made["endpoint"], b"again\n") == b"AGAIN\n"
    listed = connection.call("sandbox/get", {"sandbox": sandbox})["forwards"]
    assert listed == [made]
    assert made["endpoint"].endswith(".sock") == (listen == "unix")
    connection.call("sandbox/unforward", {"sandbox": sandbox, "forward": made["forward"]})
    with pytest.raises(OSError, match=r"refused|No such file"):
        ask(made["endpoint"])


def test_the_other_loopback_is_tried_too(connection: Connection, sandbox: str) -> None:
    serve(connection, sandbox, program("::1", "socket.AF_INET6"))
    made = connection.call("sandbox/forward", {"sandbox": sandbox, "port": 8200})
    assert ask(made["endpoint"]) == b"HELLO\n"


def test_much_data_comes_whole(connection: Connection, sandbox: str) -> None:
    serve(connection, sandbox, program(count=1 << 20))
    made = connection.call("sandbox/forward", {"sandbox": sandbox, "port": 8200})
    assert ask(made["endpoint"], b"0123456\n") == b"0123456\n" * (1 << 20)


def test_a_port_without_a_server_ends_the_connection(connection: Connection, sandbox: str) -> None:
    made = connection.call("sandbox/forward", {"sandbox": sandbox, "port": 8201})
    with suppress(ConnectionResetError, BrokenPipeError):
        assert ask(made["endpoint"]) == b""


def test_a_forward_leads_into_the_sandbox_only(connection: Connection, sandbox: str) -> None:
    """The control: the host's server is reached directly."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        server.accept()[0].close()
        made = connection.call("sandbox/forward", {"sandbox": sandbox, "port": port})
        server.settimeout(0.5)
        with suppress(OSError):
            ask(made["endpoint"])
        with pytest.raises(TimeoutError):
            server.accept()


CONNECT = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendall(b"hello\\n")
print(client.recv(100))
"""


@pytest.mark.parametrize("base", ["minimal", "host"])
def test_another_sandbox_does_not_reach_it(connection: Connection, sandbox: str, base: str) -> None:
    """The control: the same program outside a sandbox does."""
    serve(connection, sandbox, program())
    endpoint = connection.call("sandbox/forward", {"sandbox": sandbox, "port": 8200})["endpoint"]
    command = ["python3", "-c", CONNECT, endpoint]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "b'HELLO\\n'\n"
    for network in ("deny", "inherit"):
        manifest = {"network": network, "base": base}
        inside = connection.call("execute", {"argv": command, "manifest": manifest})
        assert inside["exit_code"] == 1
        assert "HELLO" not in inside["stdout"]["data"]


def test_connections_of_all_forwards_are_bounded_together(tmp_path: Path) -> None:
    """The control: the second is served once the first has ended."""

    async def check() -> None:
        files, budget = HeldFiles(), ConnectionBudget(1)
        forwards = [
            Forward(cast(SandboxFiles, files), 80, "tcp", str(tmp_path), budget) for _ in range(2)
        ]
        async with anyio.create_task_group() as tasks:
            for forward in forwards:
                tasks.start_soon(forward.serve)
            places = [("127.0.0.1", int(one.endpoint.split(":")[1])) for one in forwards]
            with socket.create_connection(places[0]):
                await files.connected.wait()
                async with await anyio.connect_tcp(*places[1]) as refused:
                    with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
                        await refused.receive()
            files.other_end.close()
            files.connected = anyio.Event()
            with anyio.fail_after(30):
                while not files.connected.is_set():
                    with socket.create_connection(places[1]):
                        await anyio.sleep(0.01)
            for forward in forwards:
                forward.close()
            files.other_end.close()

    anyio.run(check)


def test_a_forward_that_ends_early_gives_its_connections_back(tmp_path: Path) -> None:
    """It is closed in the turn of the event loop in which it has accepted one."""

    async def check() -> None:
        files, budget = HeldFiles(), ConnectionBudget(1)
        forward = Forward(cast(SandboxFiles, files), 80, "tcp", str(tmp_path), budget)
        take = budget.take

        def take_and_close() -> bool:
            forward.close()
            return take()

        budget.take = take_and_close  # type: ignore[method-assign]
        with socket.create_connection(("127.0.0.1", int(forward.endpoint.split(":")[1]))):
            await forward.serve()
        if files.connected.is_set():
            files.other_end.close()
        assert take(), "the connection was given back"
        assert not take(), "the control: there was one"

    anyio.run(check)


def test_the_socket_is_the_users_alone(connection: Connection, sandbox: str) -> None:
    path = Path(connection.call("sandbox/forward", {"sandbox": sandbox, "port": 1})["endpoint"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_uid == os.getuid()


def test_it_ends_with_the_sandbox(connection: Connection) -> None:
    made = connection.call("sandbox/create", {"manifest": {"network": "deny"}})["sandbox"]
    endpoint = connection.call("sandbox/forward", {"sandbox": made, "port": 80})["endpoint"]
    connection.call("sandbox/destroy", {"sandbox": made})
    connection.call("status")
    assert not os.path.exists(endpoint)


@pytest.mark.parametrize("port", [0, 65536, -1])
def test_what_is_no_port_is_refused(connection: Connection, sandbox: str, port: int) -> None:
    with pytest.raises(RpcError) as error:
        connection.call("sandbox/forward", {"sandbox": sandbox, "port": port})
    assert (error.value.code, error.value.field) == (-32602, "port")


def test_the_answer_comes_after_the_client_has_ended_its_half(
    connection: Connection, sandbox: str
) -> None:
    code = """
import socket
server = socket.create_server(("127.0.0.1", 8200))
print("ready", flush=True)
client, _ = server.accept()
data = b"".join(iter(lambda: client.recv(65536), b""))
client.sendall(b"%d" % len(data))
"""
    serve(connection, sandbox, code)
    made = connection.call("sandbox/forward", {"sandbox": sandbox, "port": 8200})
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(made["endpoint"])
        client.sendall(b"x" * 3_000_000)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b"3000000"


def test_a_server_that_accepts_nothing_keeps_no_files_waiting(connection: Connection) -> None:
    """Connections beyond its backlog wait, and end with the sandbox."""
    sandbox = connection.call("sandbox/create", {"manifest": {"network": "deny"}})["sandbox"]
    code = """
import socket, time
server = socket.create_server(("127.0.0.1", 8200), backlog=0)
print("ready", flush=True)
time.sleep(3600)
"""
    serve(connection, sandbox, code)
    made = connection.call("sandbox/forward", {"sandbox": sandbox, "port": 8200})
    with ExitStack() as held:
        clients = [held.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(4)]
        for client in clients:
            client.settimeout(30)
            client.connect(made["endpoint"])
        path = {"sandbox": sandbox, "path": "/tmp/x"}
        assert connection.call("fs/write", {**path, "data": "1"}) == {"bytes": 1}
        assert connection.call("fs/read", path)["data"] == "1"
        connection.call("sandbox/destroy", {"sandbox": sandbox})
        for client in clients:
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""


def test_landlock_forwards_where_something_can_listen(tmp_path: Path) -> None:
    """Without a network namespace `deny` means that no socket can be made."""
    with running_backend("landlock") as daemon, daemon.connect() as connection:
        closed = connection.call("sandbox/create", {"manifest": {"network": "deny"}})["sandbox"]
        with pytest.raises(RpcError) as error:
            connection.call("sandbox/forward", {"sandbox": closed, "port": 8200})
        assert (error.value.kind, error.value.field) == ("PolicyNotSupported", "sandbox")
        manifest = {"network": "inherit", "fs_write_allow": [str(tmp_path)]}
        made = connection.call("sandbox/create", {"manifest": manifest})["sandbox"]
        code = program().replace("8200", "0")
        code = code.replace('print("ready"', "print(server.getsockname()[1]")
        script = 'python3 -c "$1" > $2 2>&1 & until [ -s $2 ]; do sleep 0.05; done; cat $2'
        argv = ["sh", "-c", script, "sh", code, str(tmp_path / "log")]
        ran = connection.call("execute", {"argv": argv, "sandbox": made})
        port = int(ran["stdout"]["data"])
        forward = connection.call("sandbox/forward", {"sandbox": made, "port": port})
        assert ask(forward["endpoint"]) == b"HELLO\n"
        for network in ("deny", "inherit"):  # of another sandbox
            inside = connection.call(
                "execute",
                {"argv": ["python3", "-c", CONNECT, forward["endpoint"]],
                 "manifest": {"network": network}},
            )  # fmt: skip
            assert (inside["exit_code"], inside["stdout"]["data"]) == (1, "")


def test_a_path_that_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    """Not bound by a shorter name: a client could not connect to it either."""
    folder = tmp_path / ("x" * 100)
    folder.mkdir()

    async def make() -> None:
        Forward(cast(SandboxFiles, None), 80, "unix", str(folder), ConnectionBudget())

    with pytest.raises(InvalidParams) as error:
        anyio.run(make)
    assert error.value.field == "listen"
    assert not os.listdir(folder)


class HeldFiles:
    """Stands for the inside: each connection ends at a socket pair whose other end is held."""

    def __init__(self) -> None:
        self.connected = anyio.Event()

    async def connect(self, port: int) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.other_end = theirs
        self.connected.set()
        return ours


def test_an_open_connection_counts_as_use_of_the_sandbox(tmp_path: Path) -> None:
    async def check() -> None:
        files = HeldFiles()
        forward = Forward(cast(SandboxFiles, files), 80, "tcp", str(tmp_path), ConnectionBudget())
        later = time.monotonic() + 10_000
        assert forward.used_at(later) < later, "the control: nothing is connected"
        host, port = forward.endpoint.split(":")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forward.serve)
            with socket.create_connection((host, int(port))):
                await files.connected.wait()
                assert forward.used_at(later) == later
            files.other_end.close()
            forward.close()

    anyio.run(check)
