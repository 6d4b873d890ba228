"""The trail: a chain of records that survives kills, full disks and rotation."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd.audit.files import line_digest, trail_files
from sandboxd.audit.query import lines_after, page, records_after
from sandboxd.audit.trail import Trail, TrailInUse, open_trail
from sandboxd.audit.verify_chain import verify
from sandboxd.config.config import AuditConfig
from sandboxd_proto.errors import SandboxUnavailable


def opened(folder: Path, **config: object) -> Trail:
    return open_trail(str(folder), AuditConfig(**config))  # type: ignore[arg-type]


def lines(folder: Path) -> list[bytes]:
    found = trail_files(str(folder))
    return [line for file in found for line in Path(file.path).read_bytes().splitlines()]


def test_records_are_chained_and_numbered_without_gaps(tmp_path: Path) -> None:
    trail = opened(tmp_path)
    for number in range(5):
        trail.record("execution.started", {"n": number}, execution_id=f"ex-{number}")
    trail.close()
    records = [json.loads(line) for line in lines(tmp_path)]
    assert [r["seq"] for r in records] == [1, 2, 3, 4, 5]
    assert records[0]["prev"] == "0" * 64
    for before, after in zip(lines(tmp_path), records[1:], strict=False):
        assert after["prev"] == line_digest(before)
    assert verify(str(tmp_path)).ok


def test_the_chain_holds_for_records_that_something_waits_for(tmp_path: Path) -> None:
    """Their digest is made later: with the next record, or when somebody asks."""
    trail = opened(tmp_path, max_file_bytes=600)
    for number in range(8):
        trail.record("execution.started", {"n": number}, must=True)
        if number % 3 == 0:
            assert trail.head.sha256 == line_digest(lines(tmp_path)[-1])
        if number % 2:
            trail.record("execution.ended", {"n": number})
    assert trail.head.sha256 == line_digest(lines(tmp_path)[-1])
    trail.close()
    assert len(trail_files(str(tmp_path))) > 1
    assert verify(str(tmp_path)).ok


def test_the_chain_goes_on_after_a_restart(tmp_path: Path) -> None:
    for _ in range(3):
        trail = opened(tmp_path)
        trail.record("daemon.started", {})
        trail.close()
    found = verify(str(tmp_path))
    assert found.ok
    assert found.head.seq == 3


def test_two_daemons_never_share_a_chain(tmp_path: Path) -> None:
    trail = opened(tmp_path)
    with pytest.raises(TrailInUse):
        opened(tmp_path)
    trail.close()
    opened(tmp_path).close()


def edit(text: bytes) -> bytes:
    return text.replace(b'"n":2', b'"n":9')


def remove(text: bytes) -> bytes:
    rows = text.splitlines(keepends=True)
    return b"".join(rows[:2] + rows[3:])


def insert(text: bytes) -> bytes:
    rows = text.splitlines(keepends=True)
    return b"".join([*rows[:2], rows[1], *rows[2:]])


def renumber(text: bytes) -> bytes:
    """A record less, and a chain that is whole again: only the numbers have a gap."""
    rows = [json.loads(row) for row in remove(text).splitlines()]
    made = b""
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None:
            row["prev"] = line_digest(made.splitlines(keepends=True)[-1])
        made += json.dumps(row, separators=(",", ":")).encode() + b"\n"
    return made


@pytest.mark.parametrize("change", [edit, remove, insert, renumber], ids=lambda f: f.__name__)
def test_a_changed_trail_does_not_verify(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    trail = opened(tmp_path)
    for number in range(6):
        trail.record("x", {"n": number})
    trail.close()
    file = Path(trail_files(str(tmp_path))[0].path)
    file.write_bytes(change(file.read_bytes()))
    found = verify(str(tmp_path))
    assert not found.ok
    assert found.broken_at is not None


@pytest.mark.parametrize("kept", [0, 1, 50])
def test_a_torn_last_line_is_moved_aside(tmp_path: Path, kept: int) -> None:
    trail = opened(tmp_path)
    trail.record("execution.started", {}, execution_id="ex-1", session="se-1")
    trail.record("approval.requested", {"approval": "ap-1"}, session="se-1")
    trail.close()
    file = Path(trail_files(str(tmp_path))[0].path)
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:kept])
    opened(tmp_path).close()
    types = [json.loads(line)["type"] for line in lines(tmp_path)]
    recovered = ["audit.recovered"] if kept else []
    assert types[2:] == [*recovered, "execution.lost", "approval.resolved"]
    assert Path(f"{file}.torn").exists() == bool(kept)
    assert verify(str(tmp_path)).ok


def test_what_ended_is_not_lost(tmp_path: Path) -> None:
    trail = opened(tmp_path)
    trail.record("execution.started", {}, execution_id="ex-1")
    trail.record("execution.ended", {}, execution_id="ex-1")
    trail.close()
    opened(tmp_path).close()
    assert len(lines(tmp_path)) == 2


WRITER = """
import sys
from sandboxd.audit.trail import open_trail
from sandboxd.config.config import AuditConfig
trail = open_trail(sys.argv[1], AuditConfig())
number = 0
while True:
    number += 1
    trail.record("execution.started", {"argv": ["x" * (number % 3000)]}, execution_id=str(number))
    trail.record("execution.ended", {}, execution_id=str(number))
    if number == 20:
        print("going", flush=True)
"""


def test_a_killed_daemon_loses_nothing_that_was_written(tmp_path: Path) -> None:
    seen = 0
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
        trail = opened(tmp_path)
        trail.close()
        found = verify(str(tmp_path))
        assert found.ok, found
        assert found.records > seen
        seen = found.records


def test_rotation_keeps_the_chain_and_names_each_file_by_its_first_record(tmp_path: Path) -> None:
    trail = opened(tmp_path, max_file_bytes=2000)
    for number in range(40):
        trail.record("x", {"n": number})
    trail.close()
    files = trail_files(str(tmp_path))
    assert len(files) > 2
    for file in files:
        assert json.loads(Path(file.path).read_bytes().splitlines()[0])["seq"] == file.first_seq
    assert verify(str(tmp_path)).ok


def test_a_new_day_has_a_new_file(tmp_path: Path) -> None:
    trail = opened(tmp_path)
    now = 1_800_000_000.0
    trail._clock = lambda: now
    trail.record("x", {})
    trail.record("x", {})
    before = len(trail_files(str(tmp_path)))
    now += 86400
    trail.record("x", {})
    trail.close()
    assert len(trail_files(str(tmp_path))) == before + 1


def test_old_files_are_removed_whole_and_recorded(tmp_path: Path) -> None:
    trail = opened(tmp_path, max_file_bytes=1500, max_bytes=6000)
    for number in range(100):
        trail.record("x", {"n": number})
    trail.close()
    files = trail_files(str(tmp_path))
    assert files[0].first_seq > 1
    assert sum(os.stat(f.path).st_size for f in files) <= 6000 + 2 * 1500
    removed = [r for r in records_after(str(tmp_path), 0) if r.type == "audit.removed"]
    assert removed
    assert verify(str(tmp_path)).ok


@contextmanager
def full_disk() -> Iterator[None]:
    """Writes beyond 4000 bytes fail, as on a full disk.

    Only while the trail writes: pytest's own output may go to a file too.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_work_goes_on_when_the_disk_is_full_and_the_gap_is_recorded(tmp_path: Path) -> None:
    trail = opened(tmp_path)
    with full_disk():
        fill(trail)
    assert trail.lost > 0
    assert trail.failure is not None
    lost = trail.lost
    trail.record("x", {"n": 50})
    trail.close()
    gaps = [r.data for r in records_after(str(tmp_path), 0) if r.type == "audit.gap"]
    assert gaps == [{"lost": lost}]
    assert verify(str(tmp_path)).ok


def fill(trail: Trail) -> None:
    for number in range(50):
        trail.record("x", {"n": number})


def test_a_required_trail_refuses_when_it_cannot_write(tmp_path: Path) -> None:
    trail = opened(tmp_path, required=True)
    with full_disk():
        fill(trail)  # what has happened already is counted as lost
        assert trail.lost > 0
        with pytest.raises(SandboxUnavailable):
            trail.record("execution.started", {}, must=True)
    trail.close()


def test_pages_follow_one_another(tmp_path: Path) -> None:
    trail = opened(tmp_path, max_file_bytes=1500)
    for number in range(25):
        trail.record("a" if number % 2 else "b", {"n": number})
    found: list[object] = []
    after = 0
    while True:
        one = page(str(tmp_path), after, None, 4, lambda r: r.type in "ab", trail.head)
        found += [record.data["n"] for record in one.records]
        if one.next is None:
            break
        after = int(one.next)
    trail.close()
    assert found == list(range(25))


def test_reading_on_begins_near_the_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A late reader takes one batch after the other, and the whole file only once."""
    monkeypatch.setattr("sandboxd.audit.files.NEAR_BYTES", 1000)
    trail = opened(tmp_path)
    for number in range(2000):
        trail.record("x", {"n": number, "pad": "y" * (number % 700)})
    trail.close()
    for after in (0, 1, 2, 500, 1337, 1998, 1999, 2000, 5000):
        found = [record.seq for record in records_after(str(tmp_path), after)]
        assert found == list(range(after + 1, 2001))
    read = sum(1 for _ in lines_after(str(tmp_path), 1900))
    assert read < 200
