"""Refuse connections to addresses that no rule names with ECONNREFUSED.

A listener for all addresses would accept them, and the program would see a connection. So a filter
on the listener makes the kernel drop their first packet. The gate sees that packet through a raw
socket in the sandbox's network namespace, reports the attempt and answers with a reset.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network

import anyio

from sandboxd import event_loop
from sandboxd.egress.sockets import TURN_STEPS, Turn
from sandboxd.policy.network.host_rules import HostRule

# The addresses of the gate's own names (see address_book).
_OWN = IPv4Network("127.64.0.0/10")
_SO_ATTACH_FILTER, _INSTRUCTION = 26, struct.Struct("=HBBI")
_MAX_INSTRUCTIONS = 4096
_LD_WORD, _LD_BYTE_X, _LDX_IP_HEADER = 0x20, 0x50, 0xB1
_AND, _JEQ, _RETURN = 0x54, 0x15, 0x06
_NETWORK_HEADER = 0xFFF00000  # SKF_NET_OFF
_DESTINATION, _TCP_FLAGS = 16, 13
_SYN, _ACK, _RST = 0x02, 0x10, 0x04
_PASS, _DROP = (_RETURN, 0, 0, 0xFFFFFFFF), (_RETURN, 0, 0, 0)
_PACKET_MAX = 256
_QUEUED_MAX = 512  # more than the kernel holds for a raw socket
Instruction = tuple[int, int, int, int]
Report = Callable[[IPv4Address, int], None]


class Listed:
    """The IPv4 addresses at which listeners for all addresses accept connections."""

    def __init__(self, rules: Iterable[HostRule]) -> None:
        self.addresses: set[IPv4Address] = set()
        for rule in rules:
            if isinstance(rule.address, IPv4Address):
                self.addresses.add(rule.address)
            elif rule.name == "localhost":
                self.addresses.add(IPv4Address("127.0.0.1"))

    def __contains__(self, address: IPv4Address) -> bool:
        return address in _OWN or address in self.addresses


def limit_to(listener: socket.socket, listed: Listed) -> None:
    """Drop the packets of connections to any other address."""
    program: list[Instruction] = []
    tests = [(int(_OWN.netmask), int(_OWN.network_address))]
    tests += [(0xFFFFFFFF, int(address)) for address in sorted(listed.addresses)]
    for mask, value in tests:
        program += [
            (_LD_WORD, 0, 0, _NETWORK_HEADER + _DESTINATION), (_AND, 0, 0, mask),
            (_JEQ, 0, 1, value), _PASS,
        ]  # fmt: skip
    _attach(listener, [*program, _DROP])


def show_attempts_only(raw: socket.socket) -> None:
    """Limit the raw socket to the first packets (SYN) of TCP connections, and to resets."""
    _attach(raw, [
        (_LDX_IP_HEADER, 0, 0, 0), (_LD_BYTE_X, 0, 0, _TCP_FLAGS), (_AND, 0, 0, _SYN | _ACK | _RST),
        (_JEQ, 0, 1, _SYN), _PASS, (_JEQ, 0, 1, _RST | _ACK), _PASS, _DROP,
    ])  # fmt: skip


def _attach(sock: socket.socket, program: Sequence[Instruction]) -> None:
    if len(program) > _MAX_INSTRUCTIONS:
        raise OSError("the rules name more addresses than a filter can hold")
    code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*one) for one in program))
    given = struct.pack("@HP", len(program), ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, given)


class Attempts:
    """Reports and resets every attempt at one of `ports` that no listener accepts. `closed`: told
    of attempts that the kernel refused, because nothing listens there."""

    def __init__(
        self, raw: socket.socket, listed: Listed, ports: frozenset[int], report: Report,
        closed: Report,
    ) -> None:  # fmt: skip
        self._raw = raw
        self._listed = listed
        self._ports = ports
        self._report = report
        self._closed = closed

    async def serve(self) -> None:
        turn = Turn(TURN_STEPS)
        while True:
            await turn.step()
            try:
                self._judge(self._raw.recv(_PACKET_MAX))
            except BlockingIOError:
                await event_loop.wait_readable(self._raw)
            except OSError:
                await anyio.sleep(0.01)

    def catch_up(self) -> None:
        """Judge the packets that the kernel holds. The kernel refuses at once: a command can end
        before the event loop has read the packet of its refusal."""
        with suppress(OSError):
            for _ in range(_QUEUED_MAX):
                self._judge(self._raw.recv(_PACKET_MAX))

    def _judge(self, packet: bytes) -> None:
        attempt = parse(packet)
        if attempt is None and (refused := parse_refusal(packet)) is not None:
            self._closed(*refused)
        if attempt is None or attempt.port not in self._ports or attempt.target in self._listed:
            return
        self._report(attempt.target, attempt.port)
        with suppress(OSError):
            self._raw.sendto(attempt.reset(), (str(attempt.source), 0))


class UnlistedAttempt:
    """The first packet of a TCP connection."""

    __slots__ = ("_number", "_source_port", "port", "source", "target")

    def __init__(self, packet: bytes, tcp: int) -> None:
        self.source, self.target = IPv4Address(packet[12:16]), IPv4Address(packet[16:20])
        self._source_port, self.port, self._number = struct.unpack_from("!HHI", packet, tcp)

    def reset(self) -> bytes:
        """The answer of a host where nothing listens, with its IP header."""
        after = (self._number + 1) & 0xFFFFFFFF
        head = struct.pack(
            "!HHIIBBHHH", self.port, self._source_port, 0, after, 5 << 4, _RST | _ACK, 0, 0, 0
        )
        ends = self.target.packed + self.source.packed
        checked = _checksum(ends + struct.pack("!HH", socket.IPPROTO_TCP, len(head)) + head)
        tcp = head[:16] + struct.pack("!H", checked) + head[18:]
        # Length, number and checksum of the IP header are filled in by the kernel.
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, socket.IPPROTO_TCP, 0)
        return ip + ends + tcp


def parse(packet: bytes) -> UnlistedAttempt | None:
    """None for anything but an IPv4 packet that begins a TCP connection."""
    tcp = _header(packet)
    if tcp is None or packet[tcp + _TCP_FLAGS] & (_SYN | _ACK) != _SYN:
        return None
    return UnlistedAttempt(packet, tcp)


def parse_refusal(packet: bytes) -> tuple[IPv4Address, int] | None:
    """The address and port where nothing listens: the reset that answers a first packet has the
    number 0. None for any other packet."""
    tcp = _header(packet)
    if tcp is None:
        return None
    port, _, number = struct.unpack_from("!HHI", packet, tcp)
    if packet[tcp + _TCP_FLAGS] & (_SYN | _ACK | _RST) != _RST | _ACK or number != 0:
        return None
    return IPv4Address(packet[12:16]), port


def _header(packet: bytes) -> int | None:
    """Where the TCP header of an IPv4 packet begins."""
    tcp = (packet[0] & 15) * 4 if packet else 0
    if tcp < 20 or packet[0] >> 4 != 4 or len(packet) < tcp + 20:
        return None
    return tcp if packet[9] == socket.IPPROTO_TCP else None


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF
