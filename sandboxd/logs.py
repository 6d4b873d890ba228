"""Structured logs: one JSON object a line on stderr, or plain lines on a terminal.

A thread writes them: stderr may be a pipe without a reader, and then a write blocks forever. What
does not fit into a bounded queue meanwhile is dropped and counted. The next line that goes through
says how many were dropped.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import stat
import sys
import threading
import time
from collections.abc import Mapping

import msgspec

LEVELS = ("debug", "info", "warning", "error")
MOST_LINES = 1000
MOST_BYTES = 16 * 1024  # of one line
LAST_WORDS_S = 1.0


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shortened(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = _shortened(self.formatException(record.exc_info))
        return msgspec.json.encode(entry).decode()


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_BYTES else f"{text[:MOST_BYTES]}… ({len(text)} characters)"


class QueuedLines(logging.Handler):
    """Never waits for the reader of `fd`. `dropped`: lines that were lost since the start."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._lines: queue.Queue[bytes | None] = queue.Queue(MOST_LINES)
        self._thread: threading.Thread | None = None
        self._told = 0
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Called with the handler's lock held."""
        try:
            line = self._line(record)
            if self.dropped > self._told:
                self._put(self._line(_about_dropped(self.dropped - self._told)))
                self._told = self.dropped
            self._put(line)
        except queue.Full:
            self.dropped += 1
        except Exception:
            self.dropped += 1

    def _line(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode(errors="replace") + b"\n"

    def _put(self, line: bytes) -> None:
        self._lines.put_nowait(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="logs", daemon=True)
            self._thread.start()

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                while line:
                    line = line[os.write(self._fd, line) :]
            except OSError:  # closed, or a full disk
                self.dropped += 1

    def close(self) -> None:
        """Gives the reader a moment for the last lines."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                self._lines.put(None, timeout=LAST_WORDS_S)
                thread.join(LAST_WORDS_S)
            except queue.Full:
                pass
        super().close()


def _about_dropped(count: int) -> logging.LogRecord:
    message = "%d log lines were dropped: stderr was not read"
    return logging.LogRecord(__name__, logging.WARNING, "", 0, message, (count,), None)


def configure(level: str) -> None:
    handler = QueuedLines(sys.stderr.fileno())
    if sys.stderr.isatty():
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    else:
        handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    atexit.register(handler.close)


def dropped() -> int:
    """How many log lines of this process were lost."""
    handlers = logging.getLogger().handlers
    return sum(handler.dropped for handler in handlers if isinstance(handler, QueuedLines))


def find_log(env: Mapping[str, str]) -> str | None:
    """The file that stderr is, or the command that shows systemd's journal; None for another."""
    try:
        status = os.fstat(2)
        if env.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}":
            return "journalctl --user -u sandboxd"
        return os.readlink("/proc/self/fd/2") if stat.S_ISREG(status.st_mode) else None
    except OSError:
        return None
