"""Messages of every command: encoded once, and read strictly."""

from __future__ import annotations

import struct

import pytest
from msgspec.structs import replace

from sandboxd.linux.init_client import codec
from sandboxd.linux.init_client import messages as wire

EXEC = wire.Exec(
    argv=("true", "é"), env=(("A", "1"),), cwd="/", flags=0, rows=0, columns=0, rlimits=(),
    tree_memory_bytes=0, tree_cpu_us=0, tree_processes=0, wall_ms=0,
)  # fmt: skip
AMOUNTS = struct.pack("<QQQ", 1, 2, 3)
STARTED, EXITED, GONE = 80, 82, 84


def message(kind: int, payload: bytes, *, flags: int = 0) -> bytes:
    return struct.pack("<BBHI", kind, flags, 0, len(payload)) + payload


@pytest.mark.parametrize(
    "changed",
    [
        {"argv": ("true", "e")}, {"env": (("A", "2"),)}, {"cwd": "/tmp"}, {"flags": 4},
        {"tree_processes": 1}, {"wall_ms": 1},
        {"rlimits": (wire.Rlimit(resource=4, soft=0, hard=0),)},
    ],
)  # fmt: skip
def test_what_is_kept_of_a_command_is_not_used_for_another(changed: dict[str, object]) -> None:
    first = codec.encode(EXEC)
    other = codec.encode(replace(EXEC, **changed))
    assert other.message != first.message
    assert codec.encode(EXEC) == first


@pytest.mark.parametrize("words", [("x" * codec.LONG_LINE,), ("",) * codec.LONG_LINE])
def test_a_long_command_line_is_not_kept(words: tuple[str, ...]) -> None:
    before = codec._known_exec.cache_info().currsize
    codec.encode(replace(EXEC, argv=("echo", *words)))
    assert codec._known_exec.cache_info().currsize == before


def test_a_large_environment_is_not_kept() -> None:
    before = codec._known_exec.cache_info().currsize, codec._known_environment.cache_info().misses
    codec.encode(replace(EXEC, env=(("LARGE", "x" * (codec.LARGE_ENVIRONMENT + 1)),)))
    after = codec._known_exec.cache_info().currsize, codec._known_environment.cache_info().misses
    assert after == before


def test_the_messages_of_every_command() -> None:
    usage = wire.TreeRusage(1, 2, 3)
    started = message(STARTED, struct.pack("<I", 7))
    exited = message(EXITED, struct.pack("<I", 3 << 8) + AMOUNTS)
    assert codec.decode_channel(started) == wire.StartedMessage(7)
    assert codec.decode_channel(exited) == wire.ExitedMessage(3, None, usage)
    assert codec.decode_channel(message(GONE, AMOUNTS)) == wire.Gone(usage)


@pytest.mark.parametrize(
    "data",
    [
        message(STARTED, b""),
        message(STARTED, struct.pack("<I", 0)),
        message(STARTED, struct.pack("<I", 2**22 + 1)),
        message(STARTED, struct.pack("<II", 7, 7)),
        message(STARTED, struct.pack("<I", 7), flags=1),
        message(STARTED, struct.pack("<I", 7))[:-1],
        message(EXITED, AMOUNTS),
        message(EXITED, struct.pack("<I", 0x10000) + AMOUNTS),
        message(GONE, AMOUNTS[:-1]),
        message(GONE, struct.pack("<QQQ", 1, 2, 2**63)),
        message(GONE, AMOUNTS) + b"x",
    ],
)
def test_a_malformed_one_is_a_violation(data: bytes) -> None:
    with pytest.raises(codec.InitProtocolViolation):
        codec.decode_channel(data)
