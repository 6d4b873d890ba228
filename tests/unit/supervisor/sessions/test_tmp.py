"""The size of a session's /tmp, whatever its commands do meanwhile."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sandboxd.supervisor.sessions import tmp
from sandboxd.supervisor.sessions.tmp import size_of


def test_links_are_not_followed_and_blocks_are_counted(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to("/usr")
    assert 100_000 <= size_of(str(tmp_path)) < 200_000


def test_files_that_come_and_go_hide_no_others(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"kept-{number}").write_bytes(b"x" * 10_000)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for number in range(50):
                (tmp_path / f"gone-{number}").touch()
            for number in range(50):
                os.unlink(tmp_path / f"gone-{number}")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert min(size_of(str(tmp_path)) for _ in range(200)) >= 50 * 10_000
    finally:
        stop.set()
        thread.join()


def test_too_many_entries_are_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tmp, "MOST_ENTRIES", 10)
    for number in range(11):
        (tmp_path / str(number)).touch()
    assert size_of(str(tmp_path)) == tmp.BEYOND
