"""Whatever arrives on its sockets, the init answers or ends; it never crashes and never goes on.

The same messages go to the released binary and to one built with the sanitizers.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from init_driver import BINARY, Init, Place, build_init, started_init
from support.requirements import require

from sandboxd.linux.init_client import codec
from sandboxd.linux.init_client import messages as wire

ROUNDS = 150
# A busy machine compiles for minutes.
COMPILES = pytest.mark.timeout(600)
SANITIZER_OPTIONS = "detect_leaks=0:exitcode=99:log_path="


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("sanitized") / "init"
    require("sanitizers")
    build_init(binary, "SANITIZE=1")
    return binary


@pytest.fixture(params=["released", "sanitized"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], object]]:
    """Start an init; afterwards, no sanitizer may have complained."""
    released = request.param == "released"
    binary = BINARY if released else request.getfixturevalue("sanitized")
    options = f"{SANITIZER_OPTIONS}{tmp_path}/complaint"
    env = {"ASAN_OPTIONS": options, "UBSAN_OPTIONS": options}
    yield lambda: started_init(Place(), binary, env)
    assert [path.read_text() for path in tmp_path.iterdir()] == []


def framed(kind: int, payload: bytes, flags: int = 0, zero: int = 0, length: int = -1) -> bytes:
    return struct.pack("<BBHI", kind, flags, zero, len(payload) if length < 0 else length) + payload


SETUP = codec.encode(
    wire.Setup(
        flags=wire.SetupFlag.HAS_RULESET,
        checks=[wire.Check(path="/usr", device=1, inode=2)],
        rules=[wire.LandlockRule(path="/tmp", access=3)],
    )
).message
# Nothing that a changed bit could turn into a program that does something.
EXEC = codec.encode(
    wire.Exec(
        argv=["/no/such/program", "argument"],
        env=[("NAME", "value"), ("PATH", "/no/such")],
        cwd="/",
        rlimits=[wire.Rlimit(resource=7, soft=64, hard=64)],
        tree_processes=5,
    )
).message
PLAIN_SETUP = codec.encode(wire.Setup()).message


def is_refused(init: Init, message: bytes, fds: list[int], payload: bytes | None = None) -> str:
    """The reason that the init gives before it ends."""
    init.send_raw(message, fds, payload)
    answer = init.receive()
    assert isinstance(answer, wire.ProtocolError), answer
    assert init.receive() is None
    assert init.process.wait(30) == 2
    return answer.reason


def string(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def exec_payload(
    *, cwd: bytes = string(b"/"), argv: bytes = string(b"x"), count: int = 1, env: bytes = b"",
    env_count: int = 0, flags: int = 0, rlimits: bytes = struct.pack("<I", 0), tail: bytes = b"",
) -> bytes:  # fmt: skip
    head = struct.pack("<IHH", flags, 0, 0) + cwd + struct.pack("<I", count) + argv
    head += struct.pack("<I", env_count) + env + rlimits
    return head + struct.pack("<QQIQ", 0, 0, 0, 0) + tail


MALFORMED_EXECS = {
    "empty": b"",
    "trailing byte": exec_payload(tail=b"\0"),
    "nul in a string": exec_payload(cwd=string(b"/\0x")),
    "string beyond the end": exec_payload(cwd=struct.pack("<I", 2**32 - 1) + b"/"),
    "count beyond the end": exec_payload(count=2**32 - 1),
    "empty argv": exec_payload(argv=b"", count=0),
    "unknown flag": exec_payload(flags=1 << 31),
    "terminal without a pty": exec_payload(flags=16),
    "stderr without a pty": exec_payload(flags=512),
    "nameless variable": exec_payload(env=string(b"=x"), env_count=1),
    "variable without a value": exec_payload(env=string(b"x"), env_count=1),
    "unknown rlimit": exec_payload(rlimits=struct.pack("<IIQQ", 1, 16, 0, 0)),
    "no descriptors": exec_payload(),
}


@pytest.mark.parametrize("payload", MALFORMED_EXECS.values(), ids=MALFORMED_EXECS.keys())
@pytest.mark.parametrize("in_fd", [False, True], ids=["inline", "in_fd"])
def test_a_malformed_exec_is_named_and_ends_the_sandbox(payload: bytes, in_fd: bool) -> None:
    complete = payload == MALFORMED_EXECS["no descriptors"]
    with started_init(Place()) as init, tempfile.TemporaryFile() as file:
        init.setup()
        fds = [] if complete else [file.fileno()] * 4
        if in_fd:
            message = framed(2, b"", flags=1, length=len(payload))
            assert "EXEC" in is_refused(init, message, fds, payload)
        else:
            assert "EXEC" in is_refused(init, framed(2, payload), fds)


MALFORMED_HEADERS = {
    "cut": PLAIN_SETUP[:7],
    "one byte": b"\1",
    "length too large": framed(1, PLAIN_SETUP[8:], length=13),
    "length too small": framed(1, PLAIN_SETUP[8:], length=11),
    "zero is not zero": framed(1, PLAIN_SETUP[8:], zero=1),
    "unknown flag": framed(1, PLAIN_SETUP[8:], flags=2),
    "unknown type": framed(5, b""),
    "type of an answer": framed(65, b""),
    "exec before setup": EXEC,
    "payload in a descriptor that is missing": framed(1, b"", flags=1, length=12),
    "both inline and in a descriptor": framed(1, PLAIN_SETUP[8:], flags=1),
    "too long": framed(1, bytes(65536 - 7)),
    "rules without a ruleset": framed(1, struct.pack("<III", 0, 0, 1) + string(b"/") + bytes(8)),
    "ruleset missing": framed(1, struct.pack("<III", 2, 0, 0)),
    "unknown setup flag": framed(1, struct.pack("<III", 1 << 31, 0, 0)),
}


@pytest.mark.parametrize("message", MALFORMED_HEADERS.values(), ids=MALFORMED_HEADERS.keys())
def test_a_malformed_message_ends_the_sandbox(message: bytes) -> None:
    with started_init(Place()) as init:
        assert is_refused(init, message, [])


def test_a_payload_shorter_than_it_says_ends_the_sandbox() -> None:
    with started_init(Place()) as init:
        message = framed(1, b"", flags=1, length=13)
        assert is_refused(init, message, [], payload=PLAIN_SETUP[8:])
    with started_init(Place()) as init:
        message = framed(1, b"", flags=1, length=codec.PAYLOAD_MAX + 1)
        assert is_refused(init, message, [], payload=PLAIN_SETUP[8:])


def test_a_second_setup_ends_the_sandbox() -> None:
    with started_init(Place()) as init:
        init.setup()
        assert is_refused(init, PLAIN_SETUP, []) == "second SETUP"


def test_too_many_descriptors_end_the_sandbox_and_surplus_ones_are_closed() -> None:
    with started_init(Place()) as init:
        reader, writer = os.pipe()
        init.send_raw(PLAIN_SETUP, [writer] * 8)
        assert isinstance(init.receive(), wire.Ready)
        os.close(writer)
        # The end of the pipe: the init has closed all of its copies.
        assert os.read(reader, 1) == b""
        assert is_refused(init, EXEC, [reader] * 9)
        os.close(reader)


@pytest.mark.parametrize(
    "message",
    [
        b"\3",
        framed(3, b""),
        framed(3, struct.pack("<iI", 0, 0)),
        framed(3, struct.pack("<iI", 65, 0)),
        framed(3, struct.pack("<iI", 15, 2)),
        framed(4, b"\0"),
        framed(1, b""),
        EXEC,
    ],
)
def test_a_malformed_message_on_a_channel_ends_the_sandbox(message: bytes) -> None:
    with started_init(Place()) as init:
        init.setup()
        command = init.shell("exec sleep 600")
        command.started()
        command.channel.send(message)
        answer = init.receive()
        assert isinstance(answer, wire.ProtocolError)
        assert command.wait().kinds == ["StartedMessage"]
        assert init.process.wait(30) == 2


def mutated(chance: random.Random, message: bytes) -> bytes:
    data = bytearray(message)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                data[at : at + 4] = struct.pack(
                    "<I", chance.choice((0, 2**31, 2**32 - 1, len(data)))
                )
            case 3 if at >= codec.HEADER_BYTES:
                del data[at:]
            case _:
                data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 9)))
    if chance.random() < 0.7 and len(data) >= codec.HEADER_BYTES:
        # With a true length the fault lies deeper.
        data[4:8] = struct.pack("<I", len(data) - codec.HEADER_BYTES)
    return bytes(data)


def feed(init: Init, chance: random.Random, fds: list[int]) -> None:
    """Until the init has had enough."""
    try:
        for _ in range(8):
            message = mutated(chance, chance.choice((SETUP, EXEC, EXEC)))
            passed = [chance.choice(fds) for _ in range(chance.choice((0, 1, 2, 4, 4, 4, 5, 8, 9)))]
            if chance.random() < 0.3 and len(message) > codec.HEADER_BYTES:
                header = framed(message[0], b"", flags=1, length=len(message) - codec.HEADER_BYTES)
                init.send_raw(header, passed[:7], payload=message[codec.HEADER_BYTES :])
            else:
                init.send_raw(message, passed)
    except (BrokenPipeError, ConnectionResetError):
        pass


@COMPILES
def test_mutated_messages_never_crash_it(start: Callable[[], object]) -> None:
    chance = random.Random(20240229)
    channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tempfile.TemporaryFile() as file, channel, other:
        fds = [file.fileno(), channel.fileno(), other.fileno()]
        codes = set()
        for _ in range(ROUNDS):
            with start() as init:  # type: ignore[attr-defined]
                if chance.random() < 0.8:
                    init.setup()
                feed(init, chance, fds)
                codes.add(init.close())
        assert codes <= {0, 1, 2}
        assert 2 in codes


@COMPILES
def test_mutated_messages_on_channels_never_crash_it(start: Callable[[], object]) -> None:
    chance = random.Random(5)
    seeds = [codec.encode(wire.Signal(number=10)).message, codec.encode(wire.Kill()).message]
    for _ in range(ROUNDS // 5):
        with start() as init:  # type: ignore[attr-defined]
            init.setup()
            command = init.exec("/bin/sleep", "600")
            command.started()
            command.channel.send(mutated(chance, chance.choice(seeds)))
            assert init.close() in (0, 2)
