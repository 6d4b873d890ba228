"""Descriptors of the client's own: output that never passes through the daemon."""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon
from support.rpc import Connection, RpcError

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.isolation]


def run(connection: Connection, script: str, fds: dict[str, int], passed: list[int]) -> Any:
    params = {"argv": ["sh", "-c", script], "fds": fds}
    return connection.call("execute", params, fds=passed)


def test_output_goes_straight_into_the_clients_pipe(shared_daemon: Daemon) -> None:
    read, write = os.pipe()
    with shared_daemon.connect() as connection:
        result = run(connection, "echo direct; echo note >&2", {"stdout": 0}, [write])
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        assert stream.read() == b"direct\n"
    assert result["stdout"] == {"data": "", "encoding": "utf-8", "bytes": 0, "truncated": False}
    assert result["stderr"]["data"] == "note\n"


def test_one_socket_serves_both_streams_and_one_pipe_stdin(shared_daemon: Daemon) -> None:
    ours, theirs = socket.socketpair()
    in_read, in_write = os.pipe()
    os.write(in_write, b"typed")
    os.close(in_write)
    with ours, theirs, shared_daemon.connect() as connection:
        fds = {"stdin": 1, "stdout": 0, "stderr": 0}
        run(connection, "cat; echo err >&2", fds, [theirs.fileno(), in_read])
        theirs.close()
        received = b""
        while piece := ours.recv(100):
            received += piece
    os.close(in_read)
    assert received == b"typederr\n"


def test_a_refused_request_leaves_no_descriptor_open(shared_daemon: Daemon) -> None:
    """The daemon closed its copies: with ours gone too, the pipe is at its end."""
    read, write = os.pipe()
    with shared_daemon.connect() as connection:
        with pytest.raises(RpcError):
            run(connection, "true", {"stdout": 7}, [write])
        os.close(write)
        assert select.select([read], [], [], 20)[0] == [read]
        with os.fdopen(read, "rb") as stream:
            assert stream.read() == b""


def test_the_pipe_ends_with_the_command(shared_daemon: Daemon) -> None:
    """Nobody but the command held the writing end: the client sees the end of the stream."""
    read, write = os.pipe()
    with shared_daemon.connect() as connection:
        number = connection.start(
            "execute", {"argv": ["echo", "x"], "fds": {"stdout": 0}}, fds=[write]
        )
        os.close(write)
        connection.result(number)
        with os.fdopen(read, "rb") as stream:
            assert stream.read() == b"x\n"


def test_a_file_is_refused(shared_daemon: Daemon, tmp_path: Path) -> None:
    target = tmp_path / "log"
    target.write_text("kept")
    with (
        target.open("a") as file,
        shared_daemon.connect() as connection,
        pytest.raises(RpcError) as refused,
    ):
        run(connection, "echo lost > /proc/self/fd/1", {"stdout": 0}, [file.fileno()])
    assert (refused.value.code, refused.value.field) == (-32602, "fds.stdout")
    assert target.read_text() == "kept"


def test_a_terminal_is_refused(shared_daemon: Daemon) -> None:
    master, slave = os.openpty()
    with shared_daemon.connect() as connection, pytest.raises(RpcError) as refused:
        run(connection, "true", {"stdout": 0}, [slave])
    os.close(master)
    os.close(slave)
    assert refused.value.code == -32602


@pytest.mark.parametrize("index", [-1, 1, 10**6])
def test_an_index_without_a_descriptor_is_refused(shared_daemon: Daemon, index: int) -> None:
    read, write = os.pipe()
    with shared_daemon.connect() as connection, pytest.raises(RpcError) as refused:
        run(connection, "true", {"stdout": index}, [write])
    os.close(read)
    os.close(write)
    assert (refused.value.code, refused.value.field) == (-32602, "fds.stdout")


def test_an_output_limit_cannot_be_kept_on_a_passed_descriptor(shared_daemon: Daemon) -> None:
    read, write = os.pipe()
    with shared_daemon.connect() as connection, pytest.raises(RpcError) as refused:
        connection.call(
            "execute",
            {"argv": ["true"], "fds": {"stdout": 0}, "manifest": {"max_output_bytes": 10}},
            fds=[write],
        )
    os.close(read)
    os.close(write)
    assert refused.value.kind == "PolicyNotSupported"


def test_a_socket_that_could_lead_elsewhere_is_refused(shared_daemon: Daemon) -> None:
    """TCP sockets can be connected anew, UDP ones send anywhere: the host's network."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unconnected,
        shared_daemon.connect() as connection,
    ):
        for sock in (tcp, udp, unconnected, server):
            with pytest.raises(RpcError) as refused:
                run(connection, "true", {"stdout": 0}, [sock.fileno()])
            assert (refused.value.code, refused.value.field) == (-32602, "fds.stdout")
