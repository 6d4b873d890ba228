"""Where nothing can be mounted: protected files are put back as they were, and reported."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandboxd.policy.protected import paths as protected_paths
from sandboxd.workspace_guard.protected_snapshot import ProtectedSnapshot
from sandboxd.workspace_guard.snapshot import SnapshotBudget

Snapshot = Callable[[Path], ProtectedSnapshot]


@pytest.fixture
def snapshot() -> Iterator[Snapshot]:
    with ExitStack() as stack:

        def take(workspace: Path) -> ProtectedSnapshot:
            made = ProtectedSnapshot(protected_paths.for_workspace(str(workspace), ()).protected)
            stack.callback(made.close)
            return made

        yield take


@pytest.fixture
def hook(repository: Path) -> Path:
    path = repository / ".git" / "hooks" / "pre-commit"
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    path.chmod(0o755)
    return path


def test_an_untouched_workspace_is_unchanged(
    repository: Path, hook: Path, snapshot: Snapshot
) -> None:
    before = snapshot(repository)
    (repository / "file").write_text("2")
    os.utime(hook)
    assert before.verify() == []
    assert before.unverified == ()


def test_a_changed_file_is_put_back(repository: Path, snapshot: Snapshot) -> None:
    config = repository / ".git" / "config"
    text = config.read_text()
    before = snapshot(repository)
    config.write_text("[core]\n\tfsmonitor = evil\n")
    (changed,) = before.verify()
    assert changed.path == str(config)
    assert changed.moved_to is not None
    assert "evil" in Path(changed.moved_to).read_text()
    assert config.read_text() == text


@pytest.mark.parametrize("attack", ["write", "add", "remove", "chmod", "replace", "rename"])
def test_a_changed_folder_is_put_back(
    attack: str, repository: Path, hook: Path, snapshot: Snapshot
) -> None:
    hooks = hook.parent
    (hooks / "link").symlink_to("pre-commit")
    (hooks / "lib").mkdir()
    (hooks / "lib" / "x").write_text("x")
    before = snapshot(repository)
    match attack:
        case "write":
            (hooks / "lib" / "x").write_text("y")
        case "add":
            (hooks / "post-checkout").write_text("evil")
        case "remove":
            hook.unlink()
        case "chmod":
            hook.chmod(0o644)
        case "replace":
            hooks.rename(repository / "old")
            hooks.symlink_to("../..")
        case "rename":
            hooks.rename(repository / "old")
    (changed,) = before.verify()
    assert changed.path == str(hooks)
    assert hook.read_text() == "mine"
    assert stat.S_IMODE(hook.stat().st_mode) == 0o755
    assert os.readlink(hooks / "link") == "pre-commit"
    assert (hooks / "lib" / "x").read_text() == "x"
    assert not (hooks / "post-checkout").exists()


def test_the_rename_trick_is_undone(repository: Path, hook: Path, snapshot: Snapshot) -> None:
    before = snapshot(repository)
    (repository / ".git").rename(repository / "x")
    (repository / ".git" / "hooks").mkdir(parents=True)
    (repository / ".git" / "hooks" / "pre-commit").write_text("evil")
    assert {c.path for c in before.verify()} >= {str(hook.parent)}
    assert hook.read_text() == "mine"


def test_a_link_out_of_the_workspace_is_not_written_through(
    repository: Path, hook: Path, base: Path, snapshot: Snapshot
) -> None:
    outside = base / "outside"
    outside.mkdir()
    before = snapshot(repository)
    (repository / ".git").rename(repository / "x")
    (repository / ".git").symlink_to(outside)
    assert before.verify()
    assert list(outside.iterdir()) == []


def test_what_is_too_large_to_keep_is_reported(
    repository: Path, hook: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SnapshotBudget
    monkeypatch.setattr(
        "sandboxd.workspace_guard.protected_snapshot.SnapshotBudget",
        lambda *own: real(entries=1000, bytes=2),
    )
    before = snapshot(repository)
    hook.write_text("evil")
    (changed,) = before.verify()
    assert changed.path == str(hook.parent)
    assert hook.exists()  # what cannot be put back is not taken away


def test_what_was_not_looked_at_is_named(
    repository: Path, hook: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SnapshotBudget
    monkeypatch.setattr(
        "sandboxd.workspace_guard.protected_snapshot.SnapshotBudget",
        lambda *own: real(entries=0, bytes=1000),
    )
    assert str(hook.parent) in snapshot(repository).unverified
