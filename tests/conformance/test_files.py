"""fs_read_allow, fs_write_allow, fs_deny: what they open, what they close, and how they nest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.rpc import RpcError
from support.runs import Ran
from support.subject import Subject


@pytest.fixture
def other(workspace: Path) -> Path:
    """A folder beside the workspace with a secret in it."""
    folder = workspace.parent / "other"
    folder.mkdir()
    (folder / "file").write_text("secret")
    return folder


def cat(subject: Subject, *paths: Path, **manifest: object) -> Ran:
    return subject.shell('cat -- "$@" 2>/dev/null', *map(str, paths), manifest=manifest)


def write(subject: Subject, path: Path, **manifest: object) -> Ran:
    return subject.shell('echo new > "$1"', str(path), manifest=manifest)


def test_what_is_readable_is_read(subject: Subject, other: Path) -> None:
    assert cat(subject, other / "file", fs_read_allow=[str(other)]).stdout == "secret"
    assert cat(subject, other / "file", fs_read_allow=[str(other / "file")]).stdout == "secret"


def test_what_is_writable_is_read_and_written(subject: Subject, workspace: Path) -> None:
    (workspace / "in").write_text("content")
    script = 'cd "$1" && cat in > out && mkdir d && mv out d && chmod 600 d/out && ln -s d e'
    ran = subject.shell(script, str(workspace), manifest={"fs_write_allow": [str(workspace)]})
    assert ran.exited(0), ran.story
    assert (workspace / "e" / "out").read_text() == "content"


@pytest.mark.holds("fs_read_allow")
def test_what_is_not_allowed_is_not_read(subject: Subject, workspace: Path, other: Path) -> None:
    assert cat(subject, other / "file", fs_read_allow=[str(workspace)]).stdout == ""


@pytest.mark.holds("fs_read_allow")
def test_what_is_only_readable_is_not_written(subject: Subject, other: Path) -> None:
    for path in (other / "file", other / "new"):
        ran = write(subject, path, fs_read_allow=[str(other)])
        assert ran.exited(0) == subject.works_on_copies  # a copy can be written
    assert (other / "file").read_text() == "secret"
    assert not (other / "new").exists()


@pytest.mark.holds("fs_write_allow")
def test_what_is_not_allowed_is_not_written(subject: Subject, workspace: Path, other: Path) -> None:
    write(subject, other / "file", fs_write_allow=[str(workspace)])
    assert (other / "file").read_text() == "secret"


CHANGES = ['rm -f "$1"', 'truncate -s 0 "$1"', 'touch -d 2001-01-01 "$1"', 'mv "$1" "$1.moved"']


@pytest.mark.holds("fs_read_allow")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.split()[0])
def test_what_is_only_readable_is_not_changed_otherwise(
    subject: Subject, other: Path, change: str
) -> None:
    subject.fully = change.startswith("touch")
    before = (other / "file").stat().st_mtime_ns
    manifest = {"fs_read_allow": [str(other)]}
    subject.shell(f"{change} 2>/dev/null; true", str(other / "file"), manifest=manifest)
    assert (other / "file").read_text() == "secret"
    assert (other / "file").stat().st_mtime_ns == before


@pytest.mark.holds("fs_read_allow", fully=True)
def test_the_mode_of_what_is_only_readable_is_not_changed(subject: Subject, other: Path) -> None:
    """Landlock does not cover chmod, and a backend of it alone says best_effort."""
    (other / "file").chmod(0o644)
    manifest = {"fs_read_allow": [str(other)]}
    subject.shell('chmod 777 "$1"; true', str(other / "file"), manifest=manifest)
    assert (other / "file").stat().st_mode & 0o777 == 0o644


@pytest.mark.holds("fs_deny")
def test_a_denied_file_in_an_allowed_folder_is_not_read(subject: Subject, other: Path) -> None:
    (other / "shown").write_text("shown")
    lists = {"fs_read_allow": [str(other)], "fs_deny": [str(other / "file")]}
    assert cat(subject, other / "shown", other / "file", **lists).stdout == "shown"


@pytest.mark.holds("fs_deny")
def test_a_denied_folder_in_an_allowed_one_is_not_read(subject: Subject, workspace: Path) -> None:
    hidden = workspace / "a" / "hidden"
    (hidden / "deep").mkdir(parents=True)
    (hidden / "deep" / "file").write_text("secret")
    lists = {"fs_write_allow": [str(workspace)], "fs_deny": [str(hidden)]}
    assert cat(subject, hidden / "deep" / "file", **lists).stdout == ""
    write(subject, hidden / "new", **lists)
    assert not (hidden / "new").exists()


@pytest.mark.holds("fs_deny")
def test_what_is_allowed_in_a_denied_folder_shows_alone(subject: Subject, workspace: Path) -> None:
    """The deeper path rules: deny a folder, allow one file in it."""
    for name in ("open", "closed"):
        (workspace / name).write_text(name)
    lists = {"fs_read_allow": [str(workspace / "open")], "fs_deny": [str(workspace)]}
    assert cat(subject, workspace / "open", workspace / "closed", **lists).stdout == "open"


NESTED = [("read", "write", {"inner"}), ("write", "read", {"outer"})]


@pytest.mark.holds("fs_write_allow")
@pytest.mark.parametrize(("outside", "inside", "written"), NESTED)
def test_the_deeper_of_two_lists_rules(
    subject: Subject, workspace: Path, outside: str, inside: str, written: set[str]
) -> None:
    inner = workspace / "inner"
    inner.mkdir()
    manifest = {f"fs_{outside}_allow": [str(workspace)], f"fs_{inside}_allow": [str(inner)]}
    script = 'cd "$1"; echo > outer; echo > inner/inner; true'
    ran = subject.shell(script, str(workspace), manifest=manifest)
    found = {p.name for p in (workspace / "outer", inner / "inner") if p.exists()}
    # Best effort may refuse more than it has to, and never less.
    assert found <= written
    assert found == written or ran.enforcement["fs_write_allow"] == "best_effort"


def test_a_path_in_both_lists_is_writable(subject: Subject, workspace: Path) -> None:
    both = {"fs_read_allow": [str(workspace)], "fs_write_allow": [str(workspace)]}
    assert write(subject, workspace / "file", **both).exited(0)


@pytest.mark.holds("fs_write_allow")
def test_a_writable_file_is_all_that_is_writable(subject: Subject, workspace: Path) -> None:
    (workspace / "file").touch()
    grant = {"fs_write_allow": [str(workspace / "file")]}
    assert write(subject, workspace / "file", **grant).exited(0)
    assert (workspace / "file").read_text() == "new\n"
    write(subject, workspace / "sibling", **grant)
    assert not (workspace / "sibling").exists()


def test_many_paths_are_no_problem(subject: Subject, workspace: Path) -> None:
    folders = [workspace / f"folder{number}" for number in range(150)]
    for folder in folders:
        folder.mkdir()
        (folder / "file").write_text("x")
    grant = {"fs_read_allow": [str(folder) for folder in folders]}
    assert len(cat(subject, *(f / "file" for f in folders), **grant).stdout) == 150


FIELDS = ["fs_read_allow", "fs_write_allow", "fs_deny"]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "path", ["relative", "", "~/x", "/missing-from-this-machine", "/a\0b", "/a\nb"]
)
def test_a_bad_path_is_refused_before_anything_runs(
    subject: Subject, workspace: Path, field: str, path: str
) -> None:
    with pytest.raises(RpcError) as refusal:
        subject.run("true", manifest={field: [str(workspace), path]})
    assert refusal.value.kind == "PathDenied"
    assert refusal.value.field == f"{field}[1]"
    assert refusal.value.message


def test_a_loop_of_symlinks_is_refused(subject: Subject, workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    with pytest.raises(RpcError) as refusal:
        subject.run("true", manifest={"fs_read_allow": [str(workspace / "a")]})
    assert refusal.value.kind == "PathDenied"


def test_a_refused_request_changes_nothing(subject: Subject, workspace: Path) -> None:
    """Masking or binding a missing path by hand would create it on the host."""
    missing = workspace / "missing"
    for field in FIELDS:
        with pytest.raises(RpcError):
            subject.run("true", manifest={field: [str(missing)]})
    assert os.listdir(workspace) == []
