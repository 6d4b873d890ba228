"""The small parts, with doubles for what only macOS has: log lines, launchd, peers, census."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Iterable

import pytest

from sandboxd.backends.sandbox_exec import diagnosis
from sandboxd.backends.sandbox_exec.log_reader import evidence
from sandboxd.macos import launchd, lifeline, logs, peers
from sandboxd.macos.census import LivingUsage, decode_rusage
from sandboxd.macos.limit_watch import exceeded
from sandboxd.macos.logs import LogBook, LogDenial
from sandboxd.macos.tree import Tree
from sandboxd.policy.plan import Limits
from sandboxd.types import ConnectAttempt, RefusedAccess

TAG = "dev.sandboxd." + "ab" * 16
OTHER = "dev.sandboxd." + "cd" * 16


def line(message: str) -> str:
    return json.dumps({"eventMessage": message, "processID": 0})


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (f"Sandbox: bash(12) deny(1) file-write-create /w/out/x\n{TAG}",
         LogDenial(TAG, "file-write-create", "/w/out/x", "bash")),
        (f"Sandbox: node (v)(77) deny(1) network-outbound 1.2.3.4:443\n{TAG}",
         LogDenial(TAG, "network-outbound", "1.2.3.4:443", "node (v)")),
        (f"Sandbox: x(5) deny(2) file-read-data /a b/c d\nMetaData: …\n{TAG}\n",
         LogDenial(TAG, "file-read-data", "/a b/c d", "x")),
        (f"Sandbox: 3 duplicate reports for git deny(1) file-read-metadata /Users/me\n{TAG}",
         LogDenial(TAG, "file-read-metadata", "/Users/me", "git")),
        (f"Sandbox: a(1) deny(1) pseudo-tty\n{TAG}", LogDenial(TAG, "pseudo-tty", "", "a")),
        # TCC's own policy, no tag, a tag that only a command printed as a path, and noise.
        (f"Sandbox: htop(12) System Policy: deny(1) mach-priv-task-port\n{TAG}", None),
        ("Sandbox: a(1) deny(1) mach-lookup com.apple.dock.server", None),
        (f"Sandbox: a(1) deny(1) file-read-data /x/{TAG}", None),
        (f"something else\n{TAG}", None),
    ],
)  # fmt: skip
def test_a_line_of_the_log(message: str, found: LogDenial | None) -> None:
    assert logs.parse(line(message)) == found


@pytest.mark.parametrize("text", ["", "Filtering the log data", "[]", "{}", '{"eventMessage": 3}'])
def test_what_is_no_event_is_nothing(text: str) -> None:
    assert logs.parse(text) is None


def test_the_book_keeps_each_executions_own() -> None:
    book = LogBook()
    book.open(TAG)
    for tag in (TAG, TAG, OTHER):
        book.note(line(f"Sandbox: sh(1) deny(1) file-read-data /x\n{tag}"))
    assert [one.target for one in book.take(TAG)] == ["/x"]
    assert book.take(OTHER) == []
    for number in range(1000):
        book.note(line(f"Sandbox: sh(1) deny(1) file-read-data /x{number}\n{TAG}"))
    assert len(book.take(TAG)) == logs.MOST_KEPT
    book.close(TAG)
    assert book.take(TAG) == []


def test_evidence_is_paths_and_connections() -> None:
    found = evidence([
        LogDenial(TAG, "file-write-create", "/w/x", "sh"),
        LogDenial(TAG, "file-read-data", "/y", "sh"),
        LogDenial(TAG, "network-outbound", "1.2.3.4:443", "curl"),
        LogDenial(TAG, "mach-lookup", "com.apple.x", "open"),
    ])  # fmt: skip
    assert found.refused == (
        RefusedAccess("/w/x", "create", errno.EPERM), RefusedAccess("/y", "read", errno.EPERM),
    )  # fmt: skip
    assert found.connections == (ConnectAttempt("1.2.3.4", 443),)
    assert not found.explained  # the log is never complete


def test_launchd_hands_over_its_one_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        fd = theirs.detach()
        os.set_inheritable(fd, True)
        found = launchd.activated_socket(lambda name: (0, [fd]))
        assert found is not None
        with found:
            assert found.fileno() == fd
            assert not found.get_inheritable()


@pytest.mark.parametrize("number", [errno.ESRCH, errno.ENOENT])
def test_without_launchd_there_is_no_socket(number: int) -> None:
    assert launchd.activated_socket(lambda name: (number, [])) is None


def test_two_sockets_are_refused_and_closed() -> None:
    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
    with pytest.raises(OSError, match="2 sockets"):
        launchd.activated_socket(lambda name: (0, fds))
    for fd in fds:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(fd)


class Options:
    def __init__(self, **values: bytes) -> None:
        self._values = {getattr(peers, name): value for name, value in values.items()}

    def getsockopt(self, level: int, name: int, size: int, /) -> bytes:
        assert level == peers.SOL_LOCAL
        if name not in self._values:
            raise OSError(errno.ENOPROTOOPT, "no such option")
        return self._values[name][:size]


XUCRED = struct.pack("=IIh2x16I", 0, 501, 1, *[20] * 16)
TOKEN = struct.pack("=8I", 501, 501, 20, 501, 20, 4242, 100, 77)


def test_the_peer_is_read_from_the_kernels_structures() -> None:
    assert len(XUCRED) == 76
    found = peers.peer_of(Options(LOCAL_PEERCRED=XUCRED, LOCAL_PEERTOKEN=TOKEN))
    assert found == peers.MacPeer(501, 4242, 77)
    older = peers.peer_of(Options(LOCAL_PEERCRED=XUCRED, LOCAL_PEERPID=struct.pack("=i", 4242)))
    assert older == peers.MacPeer(501, 4242, 0)


@pytest.mark.parametrize("raw", [b"", struct.pack("=II", 9, 501)])
def test_credentials_that_are_none_are_an_error(raw: bytes) -> None:
    with pytest.raises(OSError, match="credentials"):
        peers.peer_of(Options(LOCAL_PEERCRED=raw, LOCAL_PEERTOKEN=TOKEN))


def test_only_unsandboxed_peers_of_the_same_user_are_welcome() -> None:
    def sandboxed(pid: int) -> bool:
        return pid == 13

    assert peers.refusal(peers.MacPeer(501, 12), 501, sandboxed) is None
    for peer in (peers.MacPeer(502, 12), peers.MacPeer(501, 13), peers.MacPeer(501, 0)):
        assert peers.refusal(peer, 501, sandboxed) is not None


def test_a_rusage_is_decoded() -> None:
    values = [10, 20, 0, 0, 0, 0, 555, 777, 0, 0, 30, 40, 0, 0, 0, 0]
    raw = b"\0" * 16 + struct.pack("=16Q", *values)
    assert len(raw) == 144
    assert decode_rusage(raw, 0.5) == (777, 50.0)


def test_the_first_limit_that_does_not_hold() -> None:
    now = LivingUsage(processes=5, memory_bytes=100, cpu_s=2.0)
    assert exceeded(now, Limits()) is None
    assert exceeded(now, Limits(memory_bytes=100, processes=5, cpu_s=2.0)) is None
    assert exceeded(now, Limits(memory_bytes=99)) == "memory"
    assert exceeded(now, Limits(processes=4)) == "processes"
    assert exceeded(now, Limits(cpu_s=1.9)) == "cpu"


class Forking:
    """Processes that fork once more whenever they are looked at, a few times."""

    def __init__(self, times: int) -> None:
        self.alive = {100}
        self.left = times
        self.sent: list[tuple[int, int]] = []

    def members(self, tag: str, uid: int) -> list[int]:
        if self.left and self.alive:
            self.left -= 1
            self.alive.add(100 + len(self.sent) + 1)
        return sorted(self.alive)

    def usage(self, pids: Iterable[int]) -> LivingUsage:
        return LivingUsage()

    def kill(self, pid: int, number: int) -> None:
        self.sent.append((pid, number))
        if number == 9:
            self.alive.discard(pid)


@pytest.mark.anyio
async def test_a_tree_that_forks_while_it_is_ended_is_ended() -> None:
    world = Forking(5)
    assert await Tree(world, TAG, 501, 100, world.kill).end()
    assert world.alive == set()
    # Everything is stopped before anything is killed.
    assert [number for _, number in world.sent[:4]] == [19, 19, 9, 9]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_the_lifeline_ends_what_was_not_taken_back() -> None:
    said = [f"+ {TAG} 501\n", f"+ {OTHER} 502\n", f"- {TAG}\n", "+ cut 5"]
    held = lifeline.held_at_end(iter(said))
    assert held == {OTHER: 502}
    world = Forking(3)
    tree = Tree(world, OTHER, 502, 0, world.kill)
    while tree.end_once(group=False):
        pass
    assert world.alive == set()


@pytest.mark.parametrize(
    ("text", "reason"),
    [("sandbox-exec: sandbox_apply: Operation not permitted", "inside a sandbox"),
     ("sandbox-exec: <input string>:12:3: unbound variable: file-lnk", "does not know a rule"),
     ("sandbox-exec: <input string>: syntax", "does not accept the profile"),
     ("sandbox-exec: execvp() of '/x' failed: Permission denied", "execute the launcher"),
     ("", "said nothing")],
)  # fmt: skip
def test_what_sandbox_exec_says_is_explained(text: str, reason: str) -> None:
    error = diagnosis.explain(text)
    assert reason in error.message
    assert error.remedy
