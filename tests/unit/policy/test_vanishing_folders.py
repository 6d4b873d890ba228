"""Others remove folders of a workspace while a plan is made: what is gone counts as absent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandboxd.platform.current import files
from sandboxd.policy import resolve
from sandboxd.policy.plan import Plan
from sandboxd.policy.protected import distant_git
from sandboxd_proto.errors import PathDenied

LOOKS = ("access", "exists", "isdir", "isfile", "islink", "lexists", "lstat", "open_regular",
         "readlink", "realpath", "scandir", "stat")  # fmt: skip


class Vanishing:
    """Moves `folder` away before the look at it that `at` counts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.aside = folder, folder.parent.parent / "aside"
        self.seen, self.at = 0, -1
        self.looks: list[tuple[str, str]] = []
        for name in LOOKS:
            monkeypatch.setattr(files, name, self._counted(name, getattr(files, name)))

    def _counted(self, name: str, look: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: str, *rest: Any, **more: Any) -> Any:
            if f"{path}/".startswith(f"{self.folder}/"):
                self.seen += 1
                self.looks.append((name, path))
                if self.seen == self.at:
                    os.rename(self.folder, self.aside)
            return look(path, *rest, **more)

        return counted

    def changed_looks(self) -> list[int]:
        """The first and the last of each kind at each path that exists."""
        looks = [(at, one) for at, one in enumerate(self.looks, 1) if os.path.lexists(one[1])]
        first = {look: at for at, look in reversed(looks)}
        last = {look: at for at, look in looks}
        return sorted({*first.values(), *last.values()})

    def begin(self, at: int) -> None:
        if self.aside.exists():
            os.rename(self.aside, self.folder)
        self.seen, self.at = 0, at


@pytest.fixture
def strangers(workspace: Path, git: Callable[..., str]) -> Path:
    """A repository with all that a plan looks into."""
    folder = workspace / "strangers"
    (folder / ".vscode").mkdir(parents=True)
    (folder / ".vscode" / "tasks.json").write_text("{}")
    (folder / ".vscode" / "link").symlink_to("../tool")
    (folder / "tool").write_text("")
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    git(folder, "worktree", "add", "-q", "tree")
    git(folder, "config", "core.hooksPath", "hooks")
    (folder / "hooks").mkdir()
    (folder / ".git" / "modules").mkdir()
    return folder


def test_a_folder_may_vanish_at_any_look_of_a_plan(
    workspace: Path,
    strangers: Path,
    plan: Callable[..., Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make() -> Plan:
        distant_git.forget(str(workspace))
        return plan(preset="workspace-write", workspace=str(workspace))

    before = make()
    git_dir = f"{strangers}/.git/"
    assert any(one.present and one.path.startswith(git_dir) for one in before.sandbox.protected)
    vanishing = Vanishing(strangers, monkeypatch)
    make()
    for at in vanishing.changed_looks():
        vanishing.begin(at)
        make()
        assert vanishing.aside.exists()


def test_what_vanishes_at_each_attempt_is_refused_in_the_end(
    workspace: Path, plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def vanish(*_: Any) -> Plan:
        attempts.append(1)
        raise FileNotFoundError(2, "No such file or directory", str(workspace / "x"))

    monkeypatch.setattr(resolve, "_plan_for", vanish)
    with pytest.raises(PathDenied, match="changed while it was looked at"):
        plan(preset="workspace-write", workspace=str(workspace))
    assert 1 < len(attempts) <= 8


def test_what_cannot_be_read_is_not_tried_again(
    workspace: Path, plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def fail(*_: Any) -> Plan:
        attempts.append(1)
        raise OSError(5, "Input/output error", str(workspace / "x"))

    monkeypatch.setattr(resolve, "_plan_for", fail)
    with pytest.raises(PathDenied, match="Input/output error"):
        plan(preset="workspace-write", workspace=str(workspace))
    assert attempts == [1]
