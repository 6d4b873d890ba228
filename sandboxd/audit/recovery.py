"""Recover a killed daemon's trail: move an unfinished line away, list what was still open."""

from __future__ import annotations

import os

import msgspec

from sandboxd.audit.files import (
    FIRST_PREV,
    TrailFile,
    last_line,
    line_digest,
    lines_of,
    torn_bytes,
    trail_files,
)
from sandboxd_proto.messages.audit import Head

Open = list[tuple[str, str | None]]


class _Start(msgspec.Struct):
    """The fields that recovery needs."""

    seq: int
    type: str
    session: str | None = None
    execution_id: str | None = None
    data: dict[str, object] = msgspec.field(default_factory=dict)


_decoder = msgspec.json.Decoder(_Start)


EMPTY = Head(seq=0, sha256=FIRST_PREV)


class Recovered(msgspec.Struct, frozen=True):
    head: Head = EMPTY
    torn_bytes: int = 0
    open_executions: Open = msgspec.field(default_factory=list)
    open_approvals: Open = msgspec.field(default_factory=list)


def recover(folder: str) -> Recovered:
    files = trail_files(folder)
    torn = _move_torn(files[-1].path) if files else 0
    head = _head(files)
    executions, approvals = _open_at_end(files)
    return Recovered(head, torn, executions, approvals)


def _move_torn(path: str) -> int:
    """Move the unfinished last line to `*.torn`."""
    count = torn_bytes(path)
    if count:
        with open(path, "r+b") as opened:
            opened.seek(-count, os.SEEK_END)
            position = opened.tell()
            with open(path + ".torn", "ab") as torn:
                torn.write(opened.read() + b"\n")
            opened.truncate(position)
    return count


def _head(files: list[TrailFile]) -> Head:
    """A file may hold no whole line (killed right after rotation): then the one before counts."""
    for file in reversed(files):
        line = last_line(file.path)
        if line is not None:
            return Head(seq=_decoder.decode(line).seq, sha256=line_digest(line))
    return Head(seq=files[0].first_seq - 1, sha256=FIRST_PREV) if files else EMPTY


def _open_at_end(files: list[TrailFile]) -> tuple[Open, Open]:
    """Executions and approvals of the last daemon that have a beginning and no end."""
    executions: dict[str, str | None] = {}
    approvals: dict[str, str | None] = {}
    for file in _since_last_start(files):
        for line in lines_of(file):
            try:
                record = _decoder.decode(line)
            except msgspec.MsgspecError:
                continue
            if record.type == "daemon.started":
                executions.clear()
                approvals.clear()
            elif record.type == "execution.started" and record.execution_id:
                executions[record.execution_id] = record.session
            elif record.type in ("execution.ended", "execution.lost") and record.execution_id:
                executions.pop(record.execution_id, None)
            elif record.type == "approval.requested":
                approvals[str(record.data.get("approval"))] = record.session
            elif record.type == "approval.resolved":
                approvals.pop(str(record.data.get("approval")), None)
    return list(executions.items()), list(approvals.items())


def _since_last_start(files: list[TrailFile]) -> list[TrailFile]:
    for index in range(len(files) - 1, -1, -1):
        with open(files[index].path, "rb") as opened:
            if b'"type":"daemon.started"' in opened.read():
                return files[index:]
    return files
