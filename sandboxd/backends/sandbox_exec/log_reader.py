"""The system's log while the daemon runs: refusals of its sandboxes, as evidence."""

from __future__ import annotations

import errno
import logging
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from sandboxd.event_loop import running_loop
from sandboxd.macos.logs import LogBook, LogDenial
from sandboxd.types import NO_EVIDENCE, ConnectAttempt, Evidence, RefusedAccess, Wanted

log = logging.getLogger(__name__)
_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 18
_REMOTE = re.compile(r"^(?:remote:)?(?P<host>.+?):(?P<port>\d+)$")
# The part of an operation's name → what the command wanted. The first that fits counts.
_WANTED: tuple[tuple[str, Wanted], ...] = (
    ("file-write-create", "create"),
    ("file-write-unlink", "remove"),
    ("file-write-data", "write"),
    ("file-write", "change"),
    ("file-link", "create"),
    ("file-read-data", "read"),
    ("file-read", "look"),
    ("file-map-executable", "exec"),
    ("process-exec", "exec"),
)


class LogReader:
    """Reads the output of one `log stream`. It may end at any time; then there is no evidence."""

    def __init__(self, book: LogBook, process: subprocess.Popen[bytes]) -> None:
        self._book = book
        assert process.stdout is not None
        self._fd = process.stdout.fileno()
        self._rest = b""
        self._loop = running_loop()
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            log.warning("the system's log ended: refusals are told by what commands print only")
            self.close()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            self._rest = b""
        for line in lines:
            self._book.note(line)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1


@contextmanager
def reading(command: Sequence[str] | None, book: LogBook) -> Iterator[None]:
    """Without a command, or where it cannot be started, nothing is read."""
    if command is None:
        yield
        return
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        log.warning("the system's log cannot be read: %s", error)
        yield
        return
    reader = LogReader(book, process)
    try:
        yield
    finally:
        reader.close()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def evidence(denials: Iterable[LogDenial]) -> Evidence:
    connections: list[ConnectAttempt] = []
    refused: list[RefusedAccess] = []
    for denial in denials:
        remote = _REMOTE.match(denial.target)
        if denial.operation == "network-outbound" and remote is not None:
            connections.append(ConnectAttempt(remote["host"], int(remote["port"])))
        elif denial.target.startswith("/"):
            for sign, wanted in _WANTED:
                if denial.operation.startswith(sign):
                    refused.append(RefusedAccess(denial.target, wanted, errno.EPERM))
                    break
    if not connections and not refused:
        return NO_EVIDENCE
    return Evidence(connections=tuple(connections), refused=tuple(refused))
