"""Presets: what each allows, and that those without a sandbox need the daemon's own consent."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rpc import RpcError
from support.subject import Subject

PRESET_FIELDS = {
    "fs_read_allow", "fs_write_allow", "network", "syscall_policy", "max_processes"
}  # fmt: skip


def test_read_only_reads_the_machine(subject: Subject) -> None:
    ran = subject.shell("test -r /etc/passwd && ls /usr/bin > /dev/null", preset="read-only")
    assert ran.exited(0), ran.story
    assert set(ran.enforcement) == PRESET_FIELDS


@pytest.mark.holds("fs_write_allow")
def test_read_only_writes_nothing(subject: Subject, workspace: Path) -> None:
    (workspace / "file").write_text("kept")
    ran = subject.shell(
        'cat file && echo x > file', cwd=str(workspace), preset="read-only",
        workspace=str(workspace),
    )  # fmt: skip
    assert ran.stdout == "kept", ran.story
    assert (workspace / "file").read_text() == "kept"


def test_workspace_write_writes_the_workspace(subject: Subject, workspace: Path) -> None:
    ran = subject.shell("echo x > new", preset="workspace-write", workspace=str(workspace))
    assert ran.exited(0), ran.story
    assert (workspace / "new").read_text() == "x\n"


@pytest.mark.holds("fs_write_allow")
def test_workspace_write_writes_nothing_else(subject: Subject, workspace: Path) -> None:
    other = workspace.parent / "other"
    other.mkdir()
    subject.shell(
        'echo x > "$1/new"; true', str(other), preset="workspace-write", workspace=str(workspace)
    )
    assert not (other / "new").exists()


@pytest.mark.holds("fs_write_allow")
def test_workspace_write_keeps_what_runs_later(subject: Subject, workspace: Path) -> None:
    """A change is prevented, or it is undone and reported."""
    hooks = workspace / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (hooks / "pre-commit").write_text("kept")
    subject.shell(
        "echo x > .git/hooks/pre-commit; true", preset="workspace-write", workspace=str(workspace)
    )
    assert (hooks / "pre-commit").read_text() == "kept"


def test_workspace_write_needs_a_workspace(subject: Subject) -> None:
    with pytest.raises(RpcError) as refusal:
        subject.run("true", preset="workspace-write")
    assert (refusal.value.kind, refusal.value.field) == ("ManifestInvalid", "workspace")


def test_a_request_may_widen_a_preset(subject: Subject, workspace: Path) -> None:
    other = workspace.parent / "other"
    other.mkdir()
    ran = subject.shell(
        'echo x > "$1/new"', str(other), preset="workspace-write", workspace=str(workspace),
        manifest={"fs_write_allow": [str(other)]},
    )  # fmt: skip
    assert ran.exited(0), ran.story
    assert (other / "new").exists()


@pytest.mark.parametrize("preset", ["danger-full-access", "external-sandbox"])
def test_no_request_alone_runs_without_a_sandbox(subject: Subject, preset: str) -> None:
    """Only a daemon whose own two keys say so; then nothing claims to be held."""
    try:
        ran = subject.run("true", preset=preset)
    except RpcError as refusal:
        assert refusal.kind == "SandboxUnavailable"
    else:
        assert ran.raw["backend"] == "none"
        assert set(ran.enforcement.values()) == {"none"}


def test_an_unknown_preset_is_refused(subject: Subject) -> None:
    with pytest.raises(RpcError) as refusal:
        subject.run("true", preset="no-such-preset")
    assert (refusal.value.kind, refusal.value.field) == ("ManifestInvalid", "preset")
