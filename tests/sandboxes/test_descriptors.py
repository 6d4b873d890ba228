"""Descriptors of the client's own: connected to the command's pipes, never handed to it."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
    """Only the command held the writing end: the client sees the end of the stream."""
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


@pytest.mark.parametrize("limit", [10, 200_000])
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_an_output_limit_holds_on_a_passed_descriptor(
    shared_daemon: Daemon, kind: str, limit: int
) -> None:
    ours, theirs = ends(kind)
    with collected(ours) as found, shared_daemon.connect() as connection:
        result = connection.call(
            "execute",
            {"argv": ["yes"], "fds": {"stdout": 0}, "manifest": {"max_output_bytes": limit}},
            fds=[theirs],
        )
        os.close(theirs)
    assert result["outcome"] == "output_limit"
    assert b"".join(found) == (b"y\n" * limit)[:limit]


def ends(kind: str) -> tuple[int, int]:
    """(ours to read, theirs to write)"""
    if kind == "pipe":
        return os.pipe()
    one, other = socket.socketpair()
    return one.detach(), other.detach()


@contextmanager
def collected(fd: int) -> Iterator[list[bytes]]:
    """What is read until the end of the stream, complete when the block has ended."""
    found: list[bytes] = []

    def read() -> None:
        while piece := os.read(fd, 1 << 16):
            found.append(piece)
        os.close(fd)

    reader = threading.Thread(target=read)
    reader.start()
    yield found
    reader.join(60)
    assert not reader.is_alive()


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_large_streams_pass_byte_for_byte(shared_daemon: Daemon, kind: str) -> None:
    """Through stdin, stdout and stderr at once, more than all buffers hold."""
    data = random.Random(kind).randbytes(5_000_001)
    in_read, in_write = ends(kind)
    out, to_out = ends(kind)
    err, to_err = ends(kind)

    def feed() -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(in_write, view[: 1 << 16]) :]
        os.close(in_write)

    feeder = threading.Thread(target=feed)
    feeder.start()
    with collected(out) as first, collected(err) as second, shared_daemon.connect() as connection:
        fds = {"stdin": 0, "stdout": 1, "stderr": 2}
        passed = [in_read, to_out, to_err]
        number = connection.start(
            "execute", {"argv": ["tee", "/dev/stderr"], "fds": fds}, fds=passed
        )
        for fd in passed:
            os.close(fd)
        assert connection.result(number)["exit_code"] == 0
    feeder.join(60)
    assert b"".join(first) == data
    assert b"".join(second) == data


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize(("argv", "taken"), [
    (["true"], 0), (["dd", "bs=1", "count=5"], 5),
    (["dd", "bs=1000", "count=9", "iflag=fullblock"], 9000),
    (["sh", "-c", "exec <&-; sleep .2"], 0),
])  # fmt: skip
def test_input_that_is_not_read_is_left(
    shared_daemon: Daemon, kind: str, argv: list[str], taken: int
) -> None:
    theirs, ours = ends(kind)
    data = random.Random(1).randbytes(20_000)
    os.write(ours, data)
    with shared_daemon.connect() as connection:
        result = connection.call("execute", {"argv": argv, "fds": {"stdin": 0}}, fds=[theirs])
    os.close(ours)
    left = b""
    while piece := os.read(theirs, 1 << 16):
        left += piece
    os.close(theirs)
    assert result["exit_code"] == 0
    assert left == data[taken:]


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_the_result_comes_after_all_output(shared_daemon: Daemon, kind: str) -> None:
    """A client that reads late has everything when the result is there."""
    ours, theirs = ends(kind)
    script = "head -c 1000000 /dev/zero; exit 7"
    with shared_daemon.connect() as connection:
        params = {"argv": ["sh", "-c", script], "fds": {"stdout": 0}, "execution_id": "late"}
        number = connection.start("execute", params, fds=[theirs])
        os.close(theirs)
        # The daemon answers others meanwhile, and the execution is not over.
        listed = connection.call("execution/list", {})["executions"]
        assert [one["execution_id"] for one in listed] == ["late"]
        assert not connection.has_answered(number)
        with collected(ours) as found:
            assert connection.result(number)["exit_code"] == 7
    assert sum(map(len, found)) == 1_000_000


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_consumer_that_goes_ends_the_writer(shared_daemon: Daemon, kind: str) -> None:
    ours, theirs = ends(kind)
    with shared_daemon.connect() as connection:
        params = {"argv": ["yes"], "fds": {"stdout": 0}}
        number = connection.start("execute", params, fds=[theirs])
        os.close(theirs)
        assert os.read(ours, 2) == b"y\n"
        os.close(ours)
        result = connection.result(number)
    assert (result["outcome"], result["signal"]) == ("signaled", signal.SIGPIPE)


def test_a_consumer_that_was_gone_before_ends_the_writer(shared_daemon: Daemon) -> None:
    read, write = os.pipe()
    os.close(read)
    with shared_daemon.connect() as connection:
        result = run(connection, "exec yes", {"stdout": 0}, [write])
    os.close(write)
    assert (result["outcome"], result["signal"]) == ("signaled", signal.SIGPIPE)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_cancelling_does_not_wait_for_a_consumer_that_does_not_read(
    shared_daemon: Daemon, kind: str
) -> None:
    ours, theirs = ends(kind)
    with shared_daemon.connect() as connection:
        for argv in (["yes"], ["head", "-c", "1000000", "/dev/zero"]):
            params = {"argv": argv, "fds": {"stdout": 0}, "execution_id": "stuck"}
            number = connection.start("execute", params, fds=[theirs])
            assert select.select([ours], [], [], 20)[0] == [ours]
            connection.call("execution/cancel", {"execution_id": "stuck"})
            connection.result(number)
    os.close(ours)
    os.close(theirs)


def test_order_between_the_streams_of_one_pipe_is_kept(shared_daemon: Daemon) -> None:
    read, write = os.pipe()
    script = "for n in 1 2 3 4 5 6 7 8 9; do echo $n; echo $n >&2; done"
    with collected(read) as found, shared_daemon.connect() as connection:
        run(connection, script, {"stdout": 0, "stderr": 0}, [write])
        os.close(write)
    assert b"".join(found).split() == [b"%d" % (n // 2) for n in range(2, 20)]


def test_what_a_passed_stderr_says_is_read_for_denials(shared_daemon: Daemon) -> None:
    out, to_out = os.pipe()
    err, to_err = os.pipe()
    with shared_daemon.connect() as connection:
        for fds in ({"stdout": 0, "stderr": 1}, {"stdout": 0, "stderr": 0}):
            result = run(connection, "touch /usr/x", fds, [to_out, to_err])
            assert [d["target"] for d in result["denials"]] == ["/usr/x"]
    for fd in (out, to_out, err, to_err):
        os.close(fd)


def test_a_pipe_of_another_user_is_served_without_opening_it_anew(
    shared_daemon: Daemon,
) -> None:
    """As after `sudo -u`: /proc/self/fd refuses it. Mode 0 stands for that."""
    read, write = os.pipe()
    os.fchmod(write, 0)
    with collected(read) as found, shared_daemon.connect() as connection:
        fds = {"stdout": 0, "stderr": 0}
        run(connection, "echo out; head -c 300000 /dev/zero; echo err >&2", fds, [write])
        os.close(write)
    assert len(b"".join(found)) == 300_008


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
