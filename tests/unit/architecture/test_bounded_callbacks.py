"""What one callback of the event loop does is bounded: bytes, requests and messages, not time."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from support.event_turns import Turns, run, stub_service, until
from support.rpc import framed

from sandboxd.event_loop import Begun
from sandboxd.linux.init_client import codec, seqpacket
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.session import MOST_LAST_WORDS, InitSandbox
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.policy.mounts.mount_plan import Host
from sandboxd.policy.plan import Limits, NetworkRule, Plan, SandboxSpec
from sandboxd.rpc import partial_frames, server
from sandboxd.rpc.answers import large
from sandboxd.rpc.connection import REQUESTS_A_TURN, Connection
from sandboxd.rpc.transport.unix import Channel
from sandboxd.supervisor.classifier import AT_ONCE_BYTES, AT_ONCE_TOTAL, Classifier, HostTraits
from sandboxd.supervisor.execution.stdio.ends.posix import READ_SIZE
from sandboxd.supervisor.execution.stdio.output import WHOLE_HEAD, OutputBudget, Stream
from sandboxd.supervisor.execution.stdio.pumps import CollectingPump
from sandboxd.supervisor.scan_thread import MOST_HUNG, GivenUp, ScanThread
from sandboxd.types import ConnectAttempt, Evidence, ExitReport, TreeUsage
from sandboxd_proto.messages.fs import FileData, FolderEntry, FolderList
from sandboxd_proto.wire import encode

LINE = b"touch: cannot touch '/etc/x': Read-only file system\n"


# requests


@pytest.mark.parametrize("most", [partial_frames.MOST_BYTES, 3 * partial_frames.SMALL_BYTES])
def test_frames_that_never_end_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Each connection holds less than a frame may have; the control has room for all of them."""
    monkeypatch.setattr(partial_frames, "MOST_BYTES", most)
    half = b"{" + b" " * (partial_frames.SMALL_BYTES + 1)

    async def work() -> None:
        service = stub_service()
        pairs = [socket.socketpair() for _ in range(4)]
        serving = []
        for ours, theirs in pairs:
            connection = Connection(Channel(ours), service, lambda: None, None)
            serving.append(asyncio.create_task(connection.serve()))
            theirs.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(theirs, half)
        *first, last = (theirs for _, theirs in pairs)
        if most < len(pairs) * len(half):
            answer = await asyncio.get_running_loop().sock_recv(last, 1 << 16)
            assert json.loads(answer)["error"]["data"]["kind"] == "Busy"
        await asyncio.sleep(0.01)
        with pytest.raises(BlockingIOError):
            first[0].recv(1)
        for _, theirs in pairs:
            theirs.close()
        await asyncio.gather(*serving)

    run(work)


def test_a_small_request_is_always_taken() -> None:
    frames = partial_frames.PartialFrames()
    assert not frames.hold("greedy", partial_frames.MOST_BYTES + 1)
    assert frames.hold("modest", partial_frames.SMALL_BYTES)
    assert frames.hold("greedy", 0)
    assert frames.hold("large", partial_frames.SMALL_BYTES + 1)


@pytest.mark.parametrize("as_batch", [False, True])
def test_requests_in_one_turn(as_batch: bool) -> None:
    sent = [{"jsonrpc": "2.0", "method": "x", "id": n} for n in range(900)]
    bodies = [json.dumps(sent)] if as_batch else [json.dumps(one) for one in sent]

    async def work() -> None:
        ours, theirs = socket.socketpair()
        service = stub_service()
        connection = Connection(Channel(ours), service, lambda: None, None)  # type: ignore[arg-type]
        turns = Turns()

        def start(value: Any, offset: int, answer: Any, prepared: Any) -> None:
            turns.count()

        connection._try_request = start  # type: ignore[method-assign]
        serving = asyncio.create_task(connection.serve())
        theirs.sendall(b"".join(framed(body.encode(), "lines") for body in bodies))
        await until(lambda: sum(turns.seen.values()) == 900)
        assert turns.most == REQUESTS_A_TURN
        theirs.close()
        await serving

    run(work)


def test_connections_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a client that connects faster than it can be served."""

    class Enough(Exception):
        pass

    async def work() -> None:
        turns = Turns()

        async def accept(*, allow_other_namespaces: bool) -> None:
            turns.count()
            if sum(turns.seen.values()) == 200:
                raise Enough

        async def serve(client: object, service: object) -> None:
            pass

        monkeypatch.setattr(server, "_serve", serve)
        peers = SimpleNamespace(allow_other_namespaces=False)
        service: Any = SimpleNamespace(machine=SimpleNamespace(config=SimpleNamespace(peers=peers)))
        listener: Any = SimpleNamespace(accept=accept)
        async with anyio.create_task_group() as tasks:
            with pytest.raises(Enough):
                await server.accept_all(listener, service, tasks)
        assert turns.most <= 2

    run(work)


# output


def judge(scans: ScanThread) -> Classifier:
    spec = SandboxSpec(base="host", network=NetworkRule("deny"))
    plan = Plan(
        sandbox=spec, syscall_policy="inherit", timeout_s=None, limits=Limits(), env=(), cwd="/"
    )
    bench = HostTraits(host=Host.current("/"), landlock=False, root=False, scans=scans)
    return Classifier(plan, ("touch",), bench, isolated=True, mounts=True, pty=False)


class Watched:
    """Passes on what a judge is fed, and keeps which thread looked at how much of it."""

    def __init__(self, inner: Classifier) -> None:
        self.inner = inner
        self.by_thread: Counter[str] = Counter()
        self.largest_at_once = 0
        scan = inner._scanned

        def scanned(stream: Any, data: bytes) -> Any:
            name = threading.current_thread().name
            self.by_thread[name] += len(data)
            if name != "scan":
                self.largest_at_once = max(self.largest_at_once, len(data))
            return scan(stream, data)

        inner._scanned = scanned  # type: ignore[method-assign]


def pumped(data: bytes, pieces: int) -> Watched:
    """What a command prints, through a pipe and a pump, to a judge."""
    found: list[Watched] = []

    async def work() -> None:
        scans = ScanThread(patience_s=100)  # a loaded machine gives nothing up
        watched = Watched(judge(scans))
        found.append(watched)
        read, write = os.pipe()
        os.set_blocking(read, False)
        stream = Stream(
            "stderr", OutputBudget(None, lambda: None), watched.inner, capture=WHOLE_HEAD
        )
        errors: list[Exception] = []
        pump = CollectingPump(stream, read, broken=errors.append)
        CollectingPump.begin([pump], lambda: None)
        for at in range(0, len(data), len(data) // pieces):
            piece = data[at : at + len(data) // pieces]
            assert await asyncio.to_thread(os.write, write, piece) == len(piece)
        os.close(write)
        await until(lambda: bool(errors) or stream.bytes == len(data))
        assert errors == []
        await pump.finish()
        assert (await stream.captured()).data == data.decode()
        os.close(read)
        scans.close()

    run(work)
    return found[0]


def test_much_output_is_looked_at_by_the_scan_thread() -> None:
    data = LINE * 20_000
    watched = pumped(data, 20)
    assert watched.by_thread.total() == len(data)
    assert watched.largest_at_once <= AT_ONCE_BYTES
    assert watched.by_thread["MainThread"] <= AT_ONCE_TOTAL
    assert watched.by_thread["scan"] >= len(data) - AT_ONCE_TOTAL


def test_much_output_in_small_pieces_too() -> None:
    data = LINE * 10_000
    watched = pumped(data, 1000)
    assert watched.by_thread.total() == len(data)
    assert watched.by_thread["MainThread"] <= AT_ONCE_TOTAL


def test_little_output_needs_no_thread() -> None:
    watched = pumped(LINE, 1)
    assert watched.by_thread == {"MainThread": len(LINE)}


def test_one_callback_reads_once() -> None:
    async def work() -> None:
        scans = ScanThread()
        read, write = os.pipe()
        os.set_blocking(read, False)
        stream = Stream(
            "stdout", OutputBudget(None, lambda: None), judge(scans), capture=WHOLE_HEAD
        )
        turns = Turns()
        keep = stream.keep

        def kept(data: bytes) -> bytes:
            turns.count(len(data))
            return keep(data)

        stream.keep = kept  # type: ignore[method-assign]
        pump = CollectingPump(stream, read, broken=lambda error: None)
        CollectingPump.begin([pump], lambda: None)
        writer = threading.Thread(target=lambda: (os.write(write, b"x" * 4 * READ_SIZE),))
        writer.start()
        await until(lambda: stream.bytes == 4 * READ_SIZE)
        writer.join()
        assert 0 < turns.most <= READ_SIZE
        pump.close()
        os.close(read)
        os.close(write)
        scans.close()

    run(work)


def test_denials_of_much_output_are_found() -> None:
    """The thread's work counts as much as the loop's."""

    async def work() -> None:
        scans = ScanThread()
        one = judge(scans)
        padding = b"all is well here\n" * 4096
        found = Begun(one.feed("stderr", padding + LINE))
        behind = Begun(one.feed("stderr", LINE))  # in order, behind what the thread has
        assert not found.done
        assert not behind.done
        assert [denial.target for denial in await found] == ["/etc/x"]
        await behind
        scans.close()

    run(work)


def test_output_that_is_given_up_does_not_hide_what_the_kernel_told() -> None:
    release = threading.Event()

    async def work() -> None:
        scans = ScanThread(patience_s=0.02)
        one = judge(scans)
        for _ in range(MOST_HUNG + 1):
            with pytest.raises(GivenUp):
                await scans.submit(release.wait)
        assert await one.feed("stderr", LINE * 200) == []
        evidence = Evidence(connections=(ConnectAttempt("1.2.3.4", 80),))
        report = ExitReport(1, None, TreeUsage(0.0, 0), evidence=evidence)
        found, _ = await one.finish(report, "exited", None, {})
        assert [(d.target, d.confidence) for d in found] == [("1.2.3.4", "high")]
        scans.close()

    try:
        run(work)
    finally:
        release.set()


# answers of files


def test_large_answers_of_files_are_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: small ones are not, and both are what `encode` makes of them."""
    threads = []

    def encode_noting(value: Any) -> bytes:
        threads.append(threading.current_thread())
        return encode(value)

    monkeypatch.setattr(large, "encode", encode_noting)
    entry = FolderEntry(name="%b,[]", type="file", size=1, mode=0o644, mtime_ms=1.5)

    def answers(times: int) -> list[dict[str, Any]]:
        data = "\x01" * (times * large.LARGE // 2)
        read = FileData(data=data, encoding="utf-8", bytes=len(data), size=len(data), eof=True)
        listed = FolderList(entries=[entry] * (times * large.MANY // 2), truncated=True)
        return [{"id": 1, "result": read}, {"id": 2, "result": listed}]

    async def work() -> None:
        for answer in [*answers(1), *answers(5)]:
            made = await large.with_escaped_output(answer)
            assert json.loads(encode(made)) == json.loads(encode(answer))
            assert bool(threads) == (made is not answer)
        assert made is not answer
        assert threading.main_thread() not in threads

    run(work)


# a hostile init


def test_an_init_that_goes_on_talking_is_not_listened_to_for_ever() -> None:
    class Endless(socket.socket):
        received = 0

        def recv(self, *args: Any) -> bytes:
            Endless.received += 1
            assert Endless.received <= MOST_LAST_WORDS
            return encoded

    ours, theirs = seqpacket.pair()
    encoded = _ready()
    endless = Endless(fileno=ours.detach())
    spec = FilterSpec("baseline", restrict_families=False)
    sandbox = InitSandbox(
        endless, filter_for=lambda command: spec, counts="namespace", verify=lambda: True
    )
    assert sandbox.last_words() is None
    assert Endless.received == MOST_LAST_WORDS
    endless.close()
    theirs.close()


def _ready() -> bytes:
    """A message that says nothing about the end."""
    data = struct.pack("<BBHIII", codec.MessageType.READY, 0, 0, 8, codec.WIRE_VERSION, 1)
    assert isinstance(codec.decode_control(data), wire.Ready)
    return data
