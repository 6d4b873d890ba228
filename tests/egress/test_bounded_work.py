"""How much one callback of the gate does, whatever was sent to it: counted, never timed.

A second task counts the turns of the event loop. What is done for a connection between two turns is
bounded; the control without the bound shows that the same input would be done in one.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from sandboxd.egress import splice
from sandboxd.egress.address_book import AddressBook
from sandboxd.egress.dns import responder
from sandboxd.egress.dns.responder import DnsResponder
from sandboxd.egress.http import relay as http_relay
from sandboxd.egress.http.head import RequestHead, parse
from sandboxd.egress.http.relay import Requests
from sandboxd.egress.rules import HostRules
from sandboxd.egress.sniffing import tls_sni
from sandboxd.egress.sniffing.first_line import LineGuard
from sandboxd.egress.sockets import CHUNK, TURN_STEPS, Inbound, Turn, receive, send_all
from sandboxd.egress.splice import SPLICE_AFTER, Activity, pump
from sandboxd.policy.network.host_rules import parse_rule

MANY = 2000
Work = Callable[[Callable[[], None]], Awaitable[None]]


def most_in_a_turn(work: Work) -> int:
    """The largest number of steps that `work` reports between two turns of another task."""
    steps: Counter[int] = Counter()
    turn = 0

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await anyio.lowlevel.checkpoint()

    def step() -> None:
        steps[turn] += 1

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(others)
            await anyio.lowlevel.checkpoint()
            await work(step)
            tasks.cancel_scope.cancel()

    anyio.run(main)
    assert steps.total() >= MANY
    return max(steps.values())


class Pair:
    """A connection whose other end has sent everything already."""

    def __init__(self) -> None:
        self.here, self.there = socket.socketpair()
        for sock in (self.here, self.there):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)

    def close(self) -> None:
        self.here.close()
        self.there.close()


def dns_over_tcp(step: Callable[[], None]) -> Awaitable[None]:
    rules = [parse_rule("example.test")]
    responder = DnsResponder(HostRules(rules), AddressBook(rules), lambda name: None)
    answer = responder.reply

    def counted(message: bytes) -> bytes | None:
        step()
        return answer(message)

    responder.reply = counted  # type: ignore[method-assign]
    message = struct.pack("!HHHHHH", 7, 256, 1, 0, 0, 0) + b"\1a\0\0\1\0\1"
    pair = Pair()
    inbound = Inbound(pair.here)
    inbound.buffer += (len(message).to_bytes(2, "big") + message) * MANY
    pair.there.shutdown(socket.SHUT_WR)

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_swallow, pair.there)
            await responder.serve_tcp(inbound)
            tasks.cancel_scope.cancel()
        pair.close()

    return work()


def body_in_bytes(step: Callable[[], None]) -> Awaitable[None]:
    head = parse(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    return _requests(head, b"1\r\nx\r\n" * MANY + b"0\r\n\r\n", step)


def trailers(step: Callable[[], None]) -> Awaitable[None]:
    head = parse(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    return _requests(head, b"0\r\n" + b"a: b\r\n" * MANY + b"\r\n", step)


def pipelined_heads(step: Callable[[], None]) -> Awaitable[None]:
    raw = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    return _requests(parse(raw), raw * MANY, step)


def _requests(head: RequestHead, data: bytes, step: Callable[[], None]) -> Awaitable[None]:
    client, server = Pair(), Pair()
    inbound = _Counting(client.here, step)
    inbound.buffer += data
    client.there.shutdown(socket.SHUT_WR)

    async def work() -> None:
        requests = Requests(
            inbound, server.here, lambda head, first: head.raw, lambda size: None, Activity(),
            patience_s=60, single=False,
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_swallow, server.there)
            await requests.forward(head)
            tasks.cancel_scope.cancel()
        client.close()
        server.close()

    return work()


class _Counting(Inbound):
    """Counts every piece that is taken out of the buffer."""

    def __init__(self, sock: socket.socket, step: Callable[[], None]) -> None:
        super().__init__(sock)
        self._step = step

    def taken(self, size: int) -> bytes:
        self._step()
        return super().taken(size)


async def _swallow(sock: socket.socket) -> None:
    while True:
        await anyio.wait_readable(sock)
        if not sock.recv(1 << 20):
            return


@pytest.mark.parametrize(
    ("work", "pieces"),
    [(dns_over_tcp, 1), (body_in_bytes, 3), (trailers, 1), (pipelined_heads, 1)],
)
def test_what_needs_no_waiting_is_done_in_bounded_turns(
    work: Work, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pieces`: what one step takes out of the buffer."""
    assert most_in_a_turn(work) <= (TURN_STEPS + 1) * pieces
    for module in (responder, http_relay):
        monkeypatch.setattr(module, "Turn", lambda: Turn(steps=1 << 30))
    assert most_in_a_turn(work) > MANY // 4


def test_a_stream_in_bytes_takes_one_turn_for_each() -> None:
    """A sender that is always one byte ahead does not keep the loop."""

    async def work(step: Callable[[], None]) -> None:
        source, target = Pair(), Pair()
        left = 3 * MANY
        source.there.send(b"x")

        def count(size: int) -> None:
            nonlocal left
            step()
            left -= size
            if left > 0:
                source.there.send(b"x")
            else:
                source.there.shutdown(socket.SHUT_WR)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_swallow, target.there)
            await pump(source.here, target.here, count, Activity())
            tasks.cancel_scope.cancel()
        source.close()
        target.close()

    assert 3 * MANY < SPLICE_AFTER
    assert most_in_a_turn(work) <= 2


def test_one_turn_reads_one_chunk_at_most() -> None:
    sizes: list[int] = []

    async def main() -> None:
        pair = Pair()
        pair.there.send(bytes(4 * CHUNK))
        inbound = Inbound(pair.here)
        await inbound.more()
        sizes.append(len(inbound.buffer))
        pair.close()

    anyio.run(main)
    assert sizes[0] <= CHUNK


def test_a_hello_in_pieces_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of one byte that come one by one: each is looked at once, not all of them again."""
    taken = 0
    take = tls_sni.HelloReader._take_record

    def counted(self: tls_sni.HelloReader, data: bytes) -> None:
        nonlocal taken
        taken += 1
        take(self, data)

    monkeypatch.setattr(tls_sni.HelloReader, "_take_record", counted)
    reader, data = tls_sni.HelloReader(), bytearray()
    message = b"\1" + (MANY).to_bytes(3, "big") + bytes(MANY - 1)
    for byte in message:
        data += b"\x16\3\1\0\1" + bytes((byte,))
        with pytest.raises(tls_sni.HelloIncomplete):
            reader.read(data)
    assert taken <= 2 * len(message)


def test_the_guard_keeps_little_of_a_long_line() -> None:
    guard = LineGuard()
    for _ in range(100):
        guard.feed(b"\x80" * CHUNK)
    assert guard.passed
    assert len(guard._head) <= 4096


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    one.setblocking(False)
    other.setblocking(False)
    return one, other


def test_urgent_data_in_a_spliced_stream_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel calls the socket readable, and splice(2) finds nothing: not tried for ever."""
    waits = 0
    wait_readable = anyio.wait_readable

    async def counted(sock: socket.socket) -> None:
        nonlocal waits
        waits += 1
        if waits > MANY:
            raise AssertionError("a busy loop")
        await wait_readable(sock)

    monkeypatch.setattr(splice.anyio, "wait_readable", counted)

    async def main() -> None:
        sender, source = tcp_pair()
        target, receiver = tcp_pair()
        with sender, source, target, receiver:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pump, source, target, lambda size: None, Activity())
                head = b"x" * (2 * SPLICE_AFTER)
                tasks.start_soon(send_all, sender, head)
                received = b""
                while len(received) < len(head):
                    received += await receive(receiver)
                sender.send(b"!", socket.MSG_OOB)
                sender.send(b"after")
                while len(received) < len(head) + 5:
                    received += await receive(receiver)
                assert received == head + b"after"
                sender.shutdown(socket.SHUT_WR)

    anyio.run(main)
