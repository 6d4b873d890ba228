"""Records of ReadDirectoryChangesW, and what a sweep finds by names."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd.platform.current import files
from sandboxd.policy.plan import Protected, Rule
from sandboxd.windows.folders.change_records import records
from sandboxd.workspace_guard.by_name import planted_repositories
from sandboxd.workspace_guard.by_name.quarantine import PathQuarantine, unpinned
from sandboxd.workspace_guard.by_name.sweep import NameSweep
from sandboxd_client.cli import kept
from sandboxd_proto.locations import KEPT_FOLDER


def record(action: int, name: str, *, last: bool) -> bytes:
    body = name.encode("utf-16-le")
    size = 12 + len(body)
    padding = -size % 4
    return (
        struct.pack("<III", 0 if last else size + padding, action, len(body))
        + body
        + bytes(padding)
    )


def test_records_are_read_in_order() -> None:
    data = record(1, "a\\b", last=False) + record(5, "ü", last=True)
    assert list(records(data + bytes(8))) == [(1, "a/b"), (5, "ü")]


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 11, struct.pack("<III", 0, 1, 99), struct.pack("<III", 4, 1, 0) + b"\0" * 9],
)
def test_garbage_is_no_record(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(records(data))


def watched(root: Path, name: str, rule: Rule = "absent") -> Protected:
    base = files.internal(str(root))
    path = f"{base}/{name}" if name else base
    return Protected(path, base, present=False, rule=rule)


def test_what_was_missing_and_appears_is_moved_aside(tmp_path: Path) -> None:
    watch = NameSweep([watched(tmp_path, "made"), watched(tmp_path, "not")])
    (tmp_path / "made").write_text("x")
    (found,) = watch.sweep()
    assert found.path.endswith("/made")
    assert not (tmp_path / "made").exists()
    assert watch.sweep() == []


def test_a_git_dir_gets_only_what_git_makes_every_day(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    watch = NameSweep([watched(tmp_path, "", "git_dir")])
    for name in ("index.lock", "hooks", "commondir", "config.worktree"):
        (tmp_path / name).write_text("")
    (tmp_path / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "index").write_bytes(index())
    found = {one.path.rpartition("/")[2] for one in watch.sweep()}
    assert found == {"hooks", "commondir", "config.worktree"}
    assert (tmp_path / "index").exists()
    assert (tmp_path / "config").exists()
    assert all(watch.ends_command(f"/w/{name}") for name in found)


def test_a_work_tree_does_not_become_a_git_dir(tmp_path: Path) -> None:
    watch = NameSweep([watched(tmp_path, "", "top")])
    (tmp_path / "HEAD").write_text("ref: refs/heads/x")
    assert watch.sweep() == []
    (tmp_path / "commondir").write_text("x")
    assert watch.sweep()
    assert watch.sweep() == []


def repository(path: Path) -> Path:
    for folder in (path, path / "objects", path / "refs"):
        folder.mkdir(parents=True)
    (path / "HEAD").write_bytes(b"ref: refs/heads/main\n")
    (path / "config").write_bytes(b"[core]\n")
    return path


OID = b"1" * 40 + b"\n"


def index(*entries: tuple[int, bytes]) -> bytes:
    body = struct.pack(">4sII", b"DIRC", 2, len(entries))
    for mode, name in entries:
        entry = struct.pack(">10I20sH", *[0] * 6, mode, 0, 0, 0, bytes(20), len(name)) + name
        body += entry + bytes(8 - len(entry) % 8)
    return body + hashlib.sha1(body).digest()


# A name in the git dir: what is harmless there, and what makes git run or use something else.
CONTENTS = {
    "HEAD": (b"ref: refs/heads/other\n", b"nonsense\n"),
    "MERGE_HEAD": (OID, b"--upload-pack=x\n"),
    "index": (index((0o100644, b"a")), index((0o160000, b"sub"))),
    "rebase-merge/git-rebase-todo": (b"pick 1234567 x\n", b"exec evil\n"),
}


@pytest.mark.parametrize("name", list(CONTENTS))
@pytest.mark.parametrize("harmful", [False, True])
@pytest.mark.parametrize("where", [".git", ".git/modules/m", ".git/worktrees/w"])
def test_what_git_acts_upon_is_judged_by_its_content_and_put_back(
    tmp_path: Path, name: str, harmful: bool, where: str
) -> None:
    repository(tmp_path / ".git")
    git_dir = tmp_path / ".git"
    if where != ".git":
        git_dir = repository(tmp_path / where)
    repository(tmp_path / "sub" / ".git")
    target = git_dir / name
    before = target.read_bytes() if target.exists() else None
    watch = NameSweep([watched(tmp_path, where, "git_dir")])
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(CONTENTS[name][harmful])
    found = [one.path.rpartition(f"{where}/")[2] for one in watch.sweep()]
    if not harmful:
        assert found == []
        assert target.read_bytes() == CONTENTS[name][0]
        return
    assert found == [name.partition("/")[0]]
    assert (target.read_bytes() if target.exists() else None) == before
    assert watch.sweep() == []
    assert len(kept.entries(str(tmp_path))) == 1


@pytest.mark.parametrize("change", ["alternates", "no head", "no objects", "large head"])
def test_a_git_dir_stays_one_and_uses_no_other(tmp_path: Path, change: str) -> None:
    git = repository(tmp_path / ".git")
    watch = NameSweep([watched(tmp_path, ".git", "git_dir")])
    if change == "alternates":
        (git / "objects" / "info").mkdir()
        (git / "objects" / "info" / "alternates").write_text("/elsewhere")
    elif change == "no head":
        (git / "HEAD").unlink()
    elif change == "no objects":
        (git / "objects").rename(tmp_path / "moved")
    else:
        (git / "HEAD").write_bytes(b"ref: refs/heads/x\n" + b" " * (1 << 20) + b"\nnonsense")
    assert len(watch.sweep()) == 1
    assert (git / "HEAD").read_bytes() == b"ref: refs/heads/main\n"
    assert (git / "objects").is_dir()
    assert not (git / "objects" / "info" / "alternates").exists()
    assert watch.sweep() == []


def test_a_gitlink_to_a_repository_that_the_plan_knows_is_harmless(tmp_path: Path) -> None:
    git = repository(tmp_path / ".git")
    repository(git / "modules" / "m")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / ".git").write_text("gitdir: ../.git/modules/m\n")
    one, other = watched(tmp_path, ".git", "git_dir"), watched(git, "modules/m", "git_dir")
    watch = NameSweep([one, other])
    (git / "index").write_bytes(index((0o160000, b"m"), (0o160000, b"missing")))
    assert watch.sweep() == []
    (tmp_path / "m" / ".git").write_text("gitdir: ../elsewhere\n")
    (git / "index").write_bytes(index((0o160000, b"m")))
    assert len(watch.sweep()) == 1


def test_a_folder_of_the_user_that_became_a_repository_is_none_afterwards(tmp_path: Path) -> None:
    repository(tmp_path / "sub" / ".git")
    repository(tmp_path / "bare")
    root = files.internal(str(tmp_path))
    moved = planted_repositories.undo(root, [f"{root}/sub", f"{root}/bare", f"{root}/no"], unpinned)
    assert [one.path for one in moved] == [f"{root}/sub/.git", f"{root}/bare/HEAD"]
    assert {entry.origin for entry in kept.entries(str(tmp_path))} == {"sub/.git", "bare/HEAD"}


@pytest.mark.posix  # symlinks; Wine makes none
def test_a_link_in_the_place_of_a_folder_is_moved_and_not_followed(tmp_path: Path) -> None:
    """The attack: the daemon renames a file of the user's outside of the workspace."""
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    for folder in (outside, workspace, workspace / "a"):
        folder.mkdir()
    (outside / "mise.toml").write_text("the user's own")
    (workspace / "a" / "config").symlink_to(outside)
    held: list[str] = []

    @contextmanager
    def pin(path: str) -> Iterator[bool]:
        held.append(path)
        yield os.path.islink(path)
        held.remove(path)

    parts = ["a", "config", "mise.toml"]
    os.rename(workspace / "a" / "config" / "mise.toml", outside / "control")  # it is reached so
    os.rename(outside / "control", outside / "mise.toml")
    moved, to = PathQuarantine(str(workspace), pin).take(parts)
    assert moved == ["a", "config"]
    assert os.listdir(outside) == ["mise.toml"]
    assert os.listdir(workspace / "a") == []
    assert (workspace.joinpath(*to)).is_symlink()
    assert held == []


def test_what_is_moved_aside_is_found_by_sandboxctl_kept(tmp_path: Path) -> None:
    for name in (".vscode", "a"):
        (tmp_path / name).mkdir()
    (tmp_path / ".vscode" / "tasks.json").write_text("1")
    (tmp_path / "a" / ".envrc").write_text("2")
    folder = PathQuarantine(str(tmp_path), unpinned)
    folder.take([".vscode"])
    folder.take(["a", ".envrc"])
    found = {entry.origin: Path(entry.path) for entry in kept.entries(str(tmp_path))}
    assert (found[".vscode"] / "tasks.json").read_text() == "1"
    assert found["a/.envrc"].read_text() == "2"
    assert (tmp_path / KEPT_FOLDER / ".gitignore").read_text() == "*\n"
    with pytest.raises(FileNotFoundError):
        folder.take([".vscode"])


@pytest.mark.posix  # symlinks; Wine makes none
@pytest.mark.parametrize("made", ["link", "file"])
def test_what_a_command_put_in_the_place_of_the_kept_folder_is_not_used(
    tmp_path: Path, made: str
) -> None:
    """The attack: the daemon moves a file out of the workspace, where something reads it."""
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    if made == "link":
        (workspace / KEPT_FOLDER).symlink_to(outside)
    else:
        (workspace / KEPT_FOLDER).write_text("")
    (workspace / ".envrc").write_text("x")
    _, to = PathQuarantine(str(workspace), unpinned).take([".envrc"])
    assert to[0].startswith(f"{KEPT_FOLDER}-")
    assert os.listdir(outside) == []
    assert [entry.origin for entry in kept.entries(str(workspace))] == [".envrc"]


@pytest.mark.posix
def test_a_prepared_gitignore_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "w" / KEPT_FOLDER
    outside.write_text("the user's own")
    folder.mkdir(parents=True)
    (folder / ".gitignore").symlink_to(outside)
    (tmp_path / "w" / "x").write_text("")
    PathQuarantine(str(tmp_path / "w"), unpinned).take(["x"])
    assert outside.read_text() == "the user's own"
    assert (folder / ".gitignore").read_text() == "*\n"
    assert not (folder / ".gitignore").is_symlink()


@pytest.mark.posix
def test_without_a_kept_folder_it_still_goes(tmp_path: Path) -> None:
    (tmp_path / ".envrc").write_text("x")

    @contextmanager
    def pin(path: str) -> Iterator[bool]:
        if KEPT_FOLDER in path:
            raise OSError("the disk is full")
        yield False

    _, to = PathQuarantine(str(tmp_path), pin).take([".envrc"])
    assert to[0].startswith(".envrc.sandboxd-")
    assert not (tmp_path / ".envrc").exists()
