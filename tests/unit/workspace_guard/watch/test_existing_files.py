"""Protected files that exist, watched: each change is found, and a failure ends what runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from sandboxd.linux.inotify import Inotify
from sandboxd.policy.plan import Protected
from sandboxd.workspace_guard.protected_snapshot import ProtectedSnapshot
from sandboxd.workspace_guard.watch import existing_files
from sandboxd.workspace_guard.watch.existing_files import ExistingFilesWatch

pytestmark = pytest.mark.anyio
PATIENCE_S = 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Keeper:
    """Puts back what changed, as the landlock backend does."""

    def __init__(self, protected: list[Protected]) -> None:
        self.protected = protected
        self.snapshot = ProtectedSnapshot(protected)
        self.changed: list[str] = []
        self.failed = anyio.Event()
        self.threads: set[int] = set()

    def check(self) -> bool:
        self.threads.add(threading.get_ident())
        found = self.snapshot.verify()
        self.changed += [one.path for one in found]
        return bool(found)

    def watch(self, check: Callable[[], bool] | None = None) -> ExistingFilesWatch:
        return ExistingFilesWatch(self.protected, check or self.check, self.failed.set)

    async def until(self, holds: Callable[[], bool]) -> None:
        with anyio.fail_after(PATIENCE_S):
            while not holds():  # noqa: ASYNC110
                await anyio.sleep(0.01)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    (tmp_path / "hooks/deep").mkdir(parents=True)
    (tmp_path / "hooks/deep/pre-commit").write_text("mine")
    (tmp_path / "config").write_text("mine")
    made = Keeper(
        [
            Protected(str(tmp_path / name), str(tmp_path), present=True, is_dir=name == "hooks")
            for name in ("hooks", "config")
        ]
    )
    yield made
    made.snapshot.close()


async def test_each_change_is_put_back_also_after_the_folder_is_a_new_one(
    keeper: Keeper, tmp_path: Path
) -> None:
    hook = tmp_path / "hooks/deep/pre-commit"
    watch = keeper.watch()
    for times in range(1, 4):
        hook.write_text("evil")
        await keeper.until(lambda t=times: len(keeper.changed) >= t and hook.exists())
        assert hook.read_text() == "mine"
    assert threading.get_ident() not in keeper.threads
    assert not keeper.failed.is_set()
    watch.close()


async def test_what_changed_before_the_watch_is_found(keeper: Keeper, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("evil")
    watch = keeper.watch()
    await keeper.until(lambda: bool(keeper.changed))
    assert (tmp_path / "config").read_text() == "mine"
    watch.close()


async def test_a_folder_that_is_made_later_goes(keeper: Keeper, tmp_path: Path) -> None:
    watch = keeper.watch()
    await keeper.until(lambda: bool(keeper.threads))
    (tmp_path / "hooks/new").mkdir()
    (tmp_path / "hooks/new/x").write_text("evil")
    await keeper.until(
        lambda: (tmp_path / "hooks").exists() and not (tmp_path / "hooks/new").exists()
    )
    watch.close()


async def test_a_check_that_fails_ends_what_runs(keeper: Keeper) -> None:
    def check() -> bool:
        raise OSError("no more descriptors")

    watch = keeper.watch(check)
    with anyio.fail_after(PATIENCE_S):
        await keeper.failed.wait()
    watch.close()


async def test_changes_without_end_end_what_runs(keeper: Keeper) -> None:
    watch = keeper.watch(lambda: True)
    with anyio.fail_after(PATIENCE_S):
        await keeper.failed.wait()
    watch.close()


async def test_a_read_that_fails_ends_what_runs(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = keeper.watch()
    await keeper.until(lambda: bool(keeper.threads))

    def broken(self: Inotify) -> Iterator[object]:
        raise ValueError("events that cannot be read")

    monkeypatch.setattr(Inotify, "read", broken)
    (tmp_path / "config").write_text("evil")
    with anyio.fail_after(PATIENCE_S):
        await keeper.failed.wait()
    watch.close()


async def test_without_inotify_a_clock_serves(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Inotify) -> None:
        raise OSError(24, os.strerror(24))

    monkeypatch.setattr(Inotify, "__init__", refused)
    watch = keeper.watch()
    (tmp_path / "config").write_text("evil")
    await keeper.until(lambda: "config" in str(keeper.changed))
    watch.close()


async def test_more_folders_than_can_be_watched(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(existing_files, "_MOST_FOLDERS", 1)
    watch = keeper.watch()
    await keeper.until(lambda: bool(keeper.threads))
    (tmp_path / "hooks/deep/pre-commit").write_text("evil")
    await keeper.until(lambda: bool(keeper.changed))
    watch.close()


async def test_folders_side_by_side_count_as_those_below_one_another(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[int] = []
    real = Inotify.add

    def add(self: Inotify, folder: int, mask: int) -> int:
        added.append(folder)
        return real(self, folder, mask)

    monkeypatch.setattr(Inotify, "add", add)
    monkeypatch.setattr(existing_files, "_MOST_FOLDERS", 10)
    for one in range(64):
        (tmp_path / f"hooks/{one % 8}/{one // 8}").mkdir(parents=True)
    watch = keeper.watch()
    await keeper.until(lambda: bool(keeper.threads))
    assert len(added) <= 10 + len(keeper.protected)
    watch.close()
