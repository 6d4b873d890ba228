"""Our init in a sandbox of the fake server: what commands have there, faults, and lies.

Everything that a command has below an init is in the conformance suite; here is what is different
over a server: the connection breaks, and what comes over it is invented.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opensandbox.conftest import daemon_using, write_key
from support.daemon import Daemon
from support.fake_opensandbox import FakeServer, running_fake
from support.rpc import RpcError
from support.runs import Runner

from sandboxd.backends.opensandbox.remote_init.framing import WINDOW, Frame, Kind, LineReader
from sandboxd.linux.init_client.codec import InitProtocolViolation, MessageType

INHERIT = {"network": "inherit"}
NO_USAGE = struct.pack("<QQQ", 0, 0, 0)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeServer, Daemon]]:
    key_file = write_key(tmp_path_factory.mktemp("key"))
    with running_fake() as server:
        server.files = True
        with daemon_using(server.url, key_file, way="init") as running:
            yield server, running


def until(met: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def uploads(fake: FakeServer) -> int:
    return sum(path.endswith("/files/upload") for _, path, _ in list(fake.requests))


# what a command has


def test_bytes_signals_input_and_the_sandbox_is_gone(runner: Runner, fake: FakeServer) -> None:
    ran = runner.shell("cat; printf '\\377' >&2; kill -USR1 $$", stdin="no line end",
                       manifest=INHERIT)  # fmt: skip
    assert (ran.outcome, ran.signal) == ("signaled", signal.SIGUSR1), ran.story
    assert (ran.bytes_of("stdout"), ran.bytes_of("stderr")) == (b"no line end", b"\xff")
    assert len(fake.deleted) == 1
    assert not fake.sandboxes


def test_a_slow_reader_delays_no_other_command_of_the_sandbox(daemon: Daemon) -> None:
    """The first has more output than may be on the way, and its client does not read on."""
    with daemon.connect() as slow, daemon.connect() as other:
        made = slow.call("sandbox/create", {"manifest": INHERIT})["sandbox"]
        script = "head -c 30000000 /dev/zero"
        slow.start("execute", {"argv": ["sh", "-c", script], "sandbox": made, "stream": True,
                               "capture": False})  # fmt: skip
        ran = other.call("execute", {"argv": ["echo", "here"], "sandbox": made})
        assert ran["stdout"]["data"] == "here\n"
        other.call("sandbox/destroy", {"sandbox": made})


def test_limits_of_the_tree(runner: Runner) -> None:
    manifest = {**INHERIT, "max_processes": 5}
    ran = runner.shell("for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; wait", manifest=manifest)
    assert ran.outcome == "processes", ran.story
    assert ran.enforcement["max_processes"] == "best_effort"


# faults


@pytest.mark.parametrize("how", ["its bridge is killed", "it is deleted"])
def test_a_sandbox_that_ends_under_a_command(how: str, daemon: Daemon, fake: FakeServer) -> None:
    with daemon.connect(timeout_s=60) as connection:
        call = connection.start("execute", {"argv": ["sleep", "100"], "manifest": INHERIT})
        until(lambda: fake.sandboxes and uploads(fake) >= 3)  # the init, its setup, the command
        (box,) = list(fake.sandboxes.values())
        box.commands.kill_all() if how == "its bridge is killed" else fake.delete(box.id)
        with pytest.raises(RpcError, match="result of the command is unknown"):
            connection.result(call)
    until(lambda: not fake.sandboxes)


def test_input_that_cannot_be_sent_ends_the_command(daemon: Daemon, fake: FakeServer) -> None:
    with daemon.connect(timeout_s=60) as connection:
        params = {"argv": ["cat"], "manifest": INHERIT, "stdin_open": True, "execution_id": "cut"}
        call = connection.start("execute", params)
        until(lambda: fake.sandboxes and uploads(fake) >= 3)
        fake.faults["upload"] = 500
        connection.call("execution/write", {"execution_id": "cut", "data": "x"})
        with pytest.raises(RpcError, match="nothing can be sent"):
            connection.result(call)
    until(lambda: not fake.sandboxes)


def test_a_command_whose_init_does_not_answer_is_killed_with_its_sandbox(
    daemon: Daemon, fake: FakeServer
) -> None:
    with daemon.connect(timeout_s=60) as connection:
        params = {"argv": ["sleep", "100"], "manifest": INHERIT, "execution_id": "stuck"}
        call = connection.start("execute", params)
        until(lambda: fake.sandboxes and uploads(fake) >= 3)
        fake.faults["upload"] = None  # it hangs
        connection.call("execution/cancel", {"execution_id": "stuck"})
        assert connection.result(call)["outcome"] == "cancelled"
    assert not fake.sandboxes


def test_an_upload_that_fails_once_is_repeated(daemon: Daemon, fake: FakeServer) -> None:
    with daemon.connect(timeout_s=60) as connection:
        params = {"argv": ["cat"], "manifest": INHERIT, "stdin_open": True, "execution_id": "again"}
        call = connection.start("execute", params)
        until(lambda: fake.sandboxes and uploads(fake) >= 3)
        before = uploads(fake)
        fake.faults["upload"] = 502
        connection.call("execution/write", {"execution_id": "again", "data": "once\n"})
        until(lambda: uploads(fake) > before)
        fake.faults.clear()
        connection.call("execution/close_stdin", {"execution_id": "again"})
        assert connection.result(call)["stdout"]["data"] == "once\n"


def test_an_init_that_cannot_be_started(runner: Runner, fake: FakeServer) -> None:
    fake.faults["command"] = [_event("error", error={"evalue": "exec format error"})]
    with pytest.raises(RpcError, match=r"init does not start .*exec format error") as refused:
        runner.run("true", manifest=INHERIT)
    assert 'way = "execd"' in str(refused.value.data)
    assert not fake.sandboxes


# lies


def _event(kind: str, **more: object) -> bytes:
    return json.dumps({"type": kind, **more}).encode() + b"\n\n"


class Liar:
    """A bridge of the tests' own: what it says after the command was sent to it."""

    def __init__(self, fake: FakeServer, said: list[Frame], *, end: bool = False) -> None:
        self._fake = fake
        self._said = said
        self._end = end
        self._number = 0

    def __iter__(self) -> Iterator[bytes | None]:
        yield _event("init", text="bridge")
        until(lambda: uploads(self._fake) >= 2)  # the init, its setup
        yield self.line(
            Frame(Kind.CONTROL, 0, message(MessageType.READY, struct.pack("<II", 1, 7)))
        )
        until(lambda: uploads(self._fake) >= 3)
        for frame in self._said:
            yield self.line(frame)
        if not self._end:
            yield None

    def line(self, frame: Frame) -> bytes:
        head = struct.pack("<IBBI", self._number, frame.kind, 0, frame.command)
        self._number += 1
        return _event("stdout", text=base64.b64encode(head + frame.data).decode())


def message(kind: int, payload: bytes) -> bytes:
    return struct.pack("<BBHI", kind, 0, 0, len(payload)) + payload


def channel(kind: int, payload: bytes) -> Frame:
    return Frame(Kind.CHANNEL, 1, message(kind, payload))


STARTED = channel(MessageType.STARTED, struct.pack("<I", 7))
EXITED = channel(MessageType.EXITED, struct.pack("<I", 0) + NO_USAGE)
GONE = channel(MessageType.GONE, NO_USAGE)
OUTPUT = Frame(Kind.OUTPUT, 1, b"said\n")


def test_an_honest_bridge_in_the_same_place(runner: Runner, fake: FakeServer) -> None:
    """The control: what the lies below are made of is understood."""
    done = Frame(Kind.CLOSE, 1)
    fake.faults["command"] = Liar(fake, [STARTED, OUTPUT, EXITED, GONE, done])
    ran = runner.run("true", manifest=INHERIT)
    assert ran.exited(0), ran.story
    assert ran.stdout == "said\n"


LIES = {
    "an exit without a start": [EXITED, GONE],
    "no exit": [STARTED, OUTPUT, GONE, Frame(Kind.CLOSE, 1)],
    "closed at once": [Frame(Kind.CLOSE, 1)],
    "an end that no process has": [
        STARTED, channel(MessageType.EXITED, struct.pack("<I", 0xFFFFFF) + NO_USAGE),
    ],
    "a message of the daemon": [STARTED, channel(MessageType.KILL, b"")],
    "more than there is room for": [
        STARTED, *[Frame(Kind.OUTPUT, 1, bytes(60_000))] * (WINDOW // 60_000 + 2),
    ],
    "messages without end": [STARTED, *[channel(MessageType.LIMIT, b"\1\0\0\0")] * 20_000],
    "a control message that is none": [Frame(Kind.CONTROL, 0, b"x")],
    "a lost sandbox": [STARTED, Frame(Kind.CONTROL, 0, message(67, struct.pack("<I", 1) + b"/"))],
    "a count that is none": [STARTED, Frame(Kind.INPUT, 1, b"x")],
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_never_success(name: str, runner: Runner, fake: FakeServer) -> None:
    fake.faults["command"] = Liar(fake, LIES[name], end=True)
    with suppress(RpcError):
        ran = runner.run("true", manifest=INHERIT)
        assert ran.outcome == "isolation_lost", ran.story
    assert not fake.sandboxes
    fake.reset()
    assert runner.run("true", manifest=INHERIT).exited(0)


@pytest.mark.parametrize(
    "text",
    ["no base64!", "AAAA", base64.b64encode(struct.pack("<IBBI", 5, 99, 0, 0)).decode(), "é"],
)
def test_lines_that_are_no_frames(text: str, runner: Runner, fake: FakeServer) -> None:
    fake.faults["command"] = [_event("init", text="x"), _event("stdout", text=text)]
    with pytest.raises(RpcError, match="tampered"):
        runner.run("true", manifest=INHERIT)
    assert not fake.sandboxes


@settings(max_examples=50)
@given(st.lists(st.one_of(st.text(), st.binary().map(lambda b: base64.b64encode(b).decode()))))
def test_any_lines_are_frames_or_a_violation(lines: list[str]) -> None:
    reader = LineReader()
    try:
        for line in lines:
            reader.feed(line)
    except InitProtocolViolation:
        return


# a hostile command


def test_a_command_that_kills_its_reaper_is_ended_all_the_same(runner: Runner) -> None:
    """Its parent is the reaper, of the same user. The init takes the command over."""
    ran = runner.shell("kill -9 $PPID; sleep 60", manifest={**INHERIT, "timeout": 1})
    assert ran.outcome == "timeout", ran.story


def test_forged_files_of_the_daemon_are_no_way_to_another_result(
    runner: Runner, tmp_path: Path
) -> None:
    """A command writes into the folder of the bridge what the daemon would: the sandbox ends."""
    script = (
        "sleep 0.2; for d in /tmp/.sandboxd-*; do for n in 1 2 3 4 5 6; do "
        "printf '\\11\\0\\0\\0\\0\\0\\0\\0?\\1\\0\\0\\0' >$d/$n; done; done; sleep 60"
    )
    with pytest.raises(RpcError, match="unknown"):
        runner.shell(script, manifest={**INHERIT, "timeout": 30}, cwd="/")
    assert os.listdir(tmp_path) == []
