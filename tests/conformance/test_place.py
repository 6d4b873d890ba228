"""Where a command runs and what its paths mean: the working directory and symlinked spellings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.rpc import RpcError
from support.subject import Subject


def test_it_starts_in_the_root_unless_told_otherwise(subject: Subject) -> None:
    assert subject.run("pwd", manifest={}).stdout == "/\n"


def test_it_starts_where_it_is_told_to(subject: Subject, workspace: Path) -> None:
    (workspace / "file").write_text("here")
    manifest = {"fs_read_allow": [str(workspace)]}
    ran = subject.shell("pwd; cat file", cwd=str(workspace), manifest=manifest)
    assert ran.stdout == f"{workspace}\nhere"


def test_it_starts_in_the_workspace_of_a_preset(subject: Subject, workspace: Path) -> None:
    ran = subject.run("pwd", preset="workspace-write", workspace=str(workspace))
    assert ran.stdout == f"{workspace}\n"


@pytest.fixture
def spelled(workspace: Path) -> Path:
    """The workspace by a path through two symlinks; `file` in it says "here"."""
    (workspace / "file").write_text("here")
    (workspace.parent / "one").symlink_to("two")
    (workspace.parent / "two").symlink_to(workspace)
    return workspace.parent / "one"


@pytest.mark.parametrize("field", ["fs_read_allow", "fs_write_allow"])
def test_the_callers_spelling_works_inside(subject: Subject, spelled: Path, field: str) -> None:
    """As the working directory, in arguments, and as what the manifest allows."""
    params = {"cwd": str(spelled), "manifest": {field: [str(spelled)]}}
    ran = subject.shell('cat file "$1"', f"{spelled}/file", **params)
    assert ran.stdout == "herehere", ran.story


def test_a_symlinked_workspace_works(subject: Subject, spelled: Path) -> None:
    ran = subject.shell(
        f"echo new > {spelled}/new && cat {spelled}/file",
        preset="workspace-write", workspace=str(spelled),
    )  # fmt: skip
    assert ran.stdout == "here", ran.story
    assert (spelled / "new").read_text() == "new\n"


def test_a_missing_directory_is_refused(subject: Subject, workspace: Path) -> None:
    manifest = {"fs_read_allow": [str(workspace)]}
    with pytest.raises(RpcError) as refusal:
        subject.run("true", cwd=str(workspace / "missing"), manifest=manifest)
    assert (refusal.value.kind, refusal.value.field) == ("PathDenied", "cwd")


@pytest.mark.parametrize("cwd", ["relative", "", "/a\nb"])
def test_a_malformed_directory_is_refused(subject: Subject, cwd: str) -> None:
    with pytest.raises(RpcError) as refusal:
        subject.run("true", cwd=cwd)
    kind = "InvalidParams" if cwd == "relative" else "PathDenied"  # there is no workspace
    assert (refusal.value.kind, refusal.value.field) == (kind, "cwd")


def test_a_file_is_no_directory(subject: Subject, workspace: Path) -> None:
    (workspace / "file").touch()
    manifest = {"fs_read_allow": [str(workspace)]}
    with pytest.raises(RpcError) as refusal:
        subject.run("true", cwd=str(workspace / "file"), manifest=manifest)
    assert (refusal.value.kind, refusal.value.field) == ("PathDenied", "cwd")


@pytest.mark.holds("fs_read_allow")
def test_a_directory_that_is_not_allowed_is_not_entered(subject: Subject, workspace: Path) -> None:
    other = workspace.parent / "other"
    other.mkdir()
    (other / "file").write_text("secret")
    try:
        ran = subject.shell(
            "cat file", cwd=str(other), manifest={"fs_read_allow": [str(workspace)]}
        )
    except RpcError as refusal:
        assert (refusal.kind, refusal.field) == ("PathDenied", "cwd")
    else:
        assert ran.stdout == ""


def test_names_that_are_not_text_work(subject: Subject, workspace: Path) -> None:
    """A name on disk need not be UTF-8: it can be in an allowed folder, and be used inside."""
    os.mkdir(os.fsencode(workspace) + b"/\xff\xfe")
    code = "import os; print(os.fsencode(os.listdir('.')[0]).hex())"
    manifest = {"fs_read_allow": [str(workspace)]}
    assert subject.python(code, cwd=str(workspace), manifest=manifest).stdout == "fffe\n"
