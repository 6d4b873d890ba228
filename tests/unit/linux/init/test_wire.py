"""The codec: the same numbers as the init's header, and no trust in what comes back."""

from __future__ import annotations

import enum
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from init_driver import INIT_FOLDER

from sandboxd.linux.init_client import codec
from sandboxd.linux.init_client import messages as wire

HEADER = (INIT_FOLDER / "wire.h").read_text()
ENUMS = {
    "header_flag": ("HEADER_", codec.HeaderFlag),
    "message_type": ("MESSAGE_", codec.MessageType),
    "setup_flag": ("SETUP_", wire.SetupFlag),
    "exec_flag": ("EXEC_", wire.ExecFlag),
    "signal_scope": ("SCOPE_", wire.SignalScope),
    "limit_kind": ("LIMIT_", wire.LimitKind),
    "wanted": ("WANTED_", wire.Wanted),
    "setup_stage": ("SETUP_STAGE_", wire.SetupStage),
    "exec_stage": ("EXEC_STAGE_", wire.ExecStage),
}


def test_every_enum_of_the_header_is_known() -> None:
    assert set(re.findall(r"^enum (\w+) \{", HEADER, re.M)) == set(ENUMS)


@pytest.mark.parametrize("name", ENUMS)
def test_names_and_numbers_are_those_of_the_header(name: str) -> None:
    prefix, ours = ENUMS[name]
    (body,) = re.findall(rf"^enum {name} \{{(.*?)^\}};", HEADER, re.M | re.S)
    theirs = {key: int(value) for key, value in re.findall(r"(\w+) = (\d+),", body)}
    members: dict[str, enum.Enum] = dict(ours.__members__)
    assert theirs == {prefix + key: member.value for key, member in members.items()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WIRE_VERSION", codec.WIRE_VERSION),
        ("WIRE_HEADER_BYTES", codec.HEADER_BYTES),
        ("WIRE_MESSAGE_MAX", codec.MESSAGE_MAX),
        ("WIRE_PAYLOAD_MAX", codec.PAYLOAD_MAX),
        ("WIRE_FDS_MAX", codec.FDS_MAX),
        ("WIRE_FILTER_MAX", codec.FILTER_MAX),
        ("WIRE_TEXT_MAX", codec.TEXT_MAX),
    ],
)
def test_sizes_are_those_of_the_header(name: str, value: int) -> None:
    assert re.findall(rf"^#define {name} (\d+)$", HEADER, re.M) == [str(value)]


def framed(kind: int, payload: bytes) -> bytes:
    return struct.pack("<BBHI", kind, 0, 0, len(payload)) + payload


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


USAGE = struct.pack("<QQQ", 1, 2, 3)
HONEST: dict[wire.Control | wire.Channel, bytes] = {
    wire.Ready(7): framed(65, struct.pack("<II", 1, 7)),
    wire.SetupFailed(wire.SetupStage.RULE, 2, "/x\udcff"): framed(
        66, struct.pack("<Ii", 3, 2) + text(b"/x\xff")
    ),
    wire.IsolationLost("/a b"): framed(67, text(b"/a b")),
    wire.ProtocolError("why"): framed(68, text(b"why")),
    wire.StartedMessage(5): framed(80, struct.pack("<I", 5)),
    wire.ExecFailedMessage(wire.ExecStage.EXEC, 13, "/p"): framed(
        81, struct.pack("<Ii", 10, 13) + text(b"/p")
    ),
    wire.ExitedMessage(159, None, wire.TreeRusage(1, 2, 3)): framed(
        82, struct.pack("<i", 159 << 8) + USAGE
    ),
    wire.ExitedMessage(None, 31, wire.TreeRusage(1, 2, 3)): framed(
        82, struct.pack("<i", 31 | 0x80) + USAGE
    ),
    wire.Limit(wire.LimitKind.CPU): framed(83, struct.pack("<I", 2)),
    wire.Gone(wire.TreeRusage(1, 2, 3)): framed(84, USAGE),
    wire.Notified("1.2.3.4", 80): framed(85, struct.pack("<II", 2, 80) + b"\1\2\3\4" + bytes(12)),
    wire.Notified("2001:db8::1", 443): framed(
        85, struct.pack("<II", 10, 443) + bytes.fromhex("20010db8") + bytes(11) + b"\1"
    ),
    wire.LookedUp("a-b.example_1.org"): framed(86, text(b"a-b.example_1.org")),
}
HONEST |= {
    wire.RefusedPathsMessage(
        (
            wire.RefusedPath(30, wire.Wanted.CREATE, "/a b"),
            wire.RefusedPath(0, wire.Wanted.READ, "/x\udcff"),
        )
    ): framed(
        87,
        struct.pack("<I", 2)
        + struct.pack("<II", 30, 6) + text(b"/a b")
        + struct.pack("<II", 0, 2) + text(b"/x\xff"),
    ),
    wire.KilledCall(59): framed(88, struct.pack("<I", 59)),
    wire.Cloned(11): framed(69, struct.pack("<I", 11)),
    wire.NoSpace("/tmp", before=True): framed(89, struct.pack("<I", 1) + text(b"/tmp")),
    wire.RefusedPeer("/w/s"): framed(90, text(b"/w/s")),
    wire.RefusedSocket(wire.RefusedKind.DATAGRAM): framed(91, struct.pack("<I", 2)),
    wire.LeftMessage(3, ("node", "a\udcff")): framed(
        92, struct.pack("<II", 3, 2) + text(b"node") + text(b"a\xff")
    ),
}  # fmt: skip
CONTROL = (wire.Ready, wire.SetupFailed, wire.IsolationLost, wire.ProtocolError, wire.Cloned)


def decode(message: object, data: bytes) -> object:
    decoder = codec.decode_control if isinstance(message, CONTROL) else codec.decode_channel
    return decoder(data)


@pytest.mark.parametrize("message", HONEST, ids=lambda message: type(message).__name__)
def test_what_an_honest_init_says_is_understood(message: wire.Control | wire.Channel) -> None:
    data = HONEST[message]
    assert decode(message, data) == message
    for cut in range(len(data)):
        with pytest.raises(codec.InitProtocolViolation):
            decode(message, data[:cut])
    with pytest.raises(codec.InitProtocolViolation):
        decode(message, data + b"\0")
    with pytest.raises(codec.InitProtocolViolation):
        decode(message, framed(data[0], data[8:] + b"\0"))


@pytest.mark.parametrize("message", HONEST, ids=lambda message: type(message).__name__)
def test_a_message_on_the_wrong_socket_is_a_lie(message: wire.Control | wire.Channel) -> None:
    decoder = codec.decode_channel if isinstance(message, CONTROL) else codec.decode_control
    with pytest.raises(codec.InitProtocolViolation):
        decoder(HONEST[message])


LIES = [
    framed(65, struct.pack("<II", 2, 7)),
    framed(65, struct.pack("<Ii", 1, 0)),
    framed(65, struct.pack("<Ii", 1, -1)),
    framed(66, struct.pack("<Ii", 99, 2) + text(b"")),
    framed(66, struct.pack("<Ii", 1, -1) + text(b"")),
    framed(67, text(b"a\0b")),
    framed(67, text(b"x" * 4001)),
    framed(80, struct.pack("<I", 2**31)),
    framed(81, struct.pack("<Ii", 0, 2) + text(b"")),
    framed(81, struct.pack("<Ii", 1, 0) + text(b"")),
    framed(82, struct.pack("<i", 0x7F) + USAGE),
    framed(82, struct.pack("<i", 0x137F) + USAGE),
    framed(82, struct.pack("<i", 1 << 16) + USAGE),
    framed(82, struct.pack("<i", -1) + USAGE),
    framed(82, struct.pack("<i", 0x109) + USAGE),
    framed(82, struct.pack("<i", 65) + USAGE),
    framed(83, struct.pack("<I", 5)),
    framed(89, text(b"tmp")),
    framed(84, struct.pack("<QQQ", 0, 0, 2**63)),
    framed(85, struct.pack("<II", 1, 80) + bytes(16)),
    framed(85, struct.pack("<II", 2, 0) + bytes(16)),
    framed(85, struct.pack("<II", 2, 65536) + bytes(16)),
    framed(85, struct.pack("<II", 2, 80) + b"\1" * 16),
    framed(86, text(b"")),
    framed(87, struct.pack("<I", 0)),
    framed(87, struct.pack("<I", 2**32 - 1)),
    framed(87, struct.pack("<III", 1, 2, 11) + text(b"/a")),
    framed(87, struct.pack("<III", 1, 4096, 1) + text(b"/a")),
    framed(87, struct.pack("<III", 1, 2, 1) + text(b"a")),
    framed(87, struct.pack("<III", 1, 2, 1) + text(b"/a\0b")),
    framed(88, struct.pack("<i", -1)),
    framed(86, text(b"a..b")),
    framed(86, text(b"evil\nname")),
    framed(86, text("ä.org".encode())),
    framed(86, text(b"a." * 130 + b"b")),
    framed(1, b""),
    framed(200, b""),
    struct.pack("<BBHI", 67, 1, 0, 4),
    struct.pack("<BBHI", 67, 0, 1, 4) + text(b""),
]


@pytest.mark.parametrize("data", LIES)
def test_lies_are_refused(data: bytes) -> None:
    for decoder in (codec.decode_control, codec.decode_channel):
        with pytest.raises(codec.InitProtocolViolation):
            decoder(data)


@given(st.sampled_from((*range(60, 91), 1, 2, 255)), st.binary(max_size=80))
def test_any_bytes_are_a_message_or_a_lie(kind: int, payload: bytes) -> None:
    for data in (framed(kind, payload), payload):
        for decoder in (codec.decode_control, codec.decode_channel):
            try:
                decoder(data)
            except codec.InitProtocolViolation:
                continue


def test_a_long_request_goes_through_a_descriptor() -> None:
    short = codec.encode(wire.Exec(argv=["x" * 60000], cwd="/"))
    assert short.payload is None
    long = codec.encode(wire.Exec(argv=["x" * 70000], cwd="/"))
    assert long.payload is not None
    assert long.message == struct.pack("<BBHI", 2, 1, 0, len(long.payload))


@pytest.mark.parametrize(
    "request_",
    [
        wire.Exec(argv=[], cwd="/"),
        wire.Exec(argv=["a\0b"], cwd="/"),
        wire.Exec(argv=["a"], cwd="/\0"),
        wire.Exec(argv=["a"], cwd="/", env=[("", "x")]),
        wire.Exec(argv=["a"], cwd="/", env=[("A=B", "x")]),
        wire.Exec(argv=["a"], cwd="/", env=[("A", "x\0")]),
        wire.Exec(argv=["a"], cwd="/", rows=65536),
        wire.Exec(argv=["a"], cwd="/", tree_memory_bytes=-1),
        wire.Exec(argv=["a"], cwd="/", rlimits=[wire.Rlimit(resource=16, soft=0, hard=0)]),
        wire.Exec(argv=["a" * codec.PAYLOAD_MAX], cwd="/"),
        wire.Setup(rules=[wire.LandlockRule(path="/", access=1)]),
        wire.Setup(checks=[wire.Check(path="/", device=-1, inode=0)]),
        wire.Signal(number=0),
        wire.Signal(number=65),
    ],
)
def test_what_the_init_would_refuse_is_refused_before(request_: wire.Request) -> None:
    with pytest.raises(ValueError, match=r"."):
        codec.encode(request_)
