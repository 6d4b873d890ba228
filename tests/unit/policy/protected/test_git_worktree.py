"""Worktrees and submodules: their git dir elsewhere is granted only if it points back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.policy.mounts.mount_plan import MountKind, MountPlan, mount_plan
from sandboxd.policy.plan import Plan
from sandboxd.policy.request import Machine

MakePlan = Callable[..., Plan]
Git = Callable[..., str]


@pytest.fixture
def worktree(repository: Path, git: Git) -> Path:
    path = repository.parent / "feature"
    git(repository, "worktree", "add", "-q", "-b", "feature", str(path))
    return path


@pytest.fixture
def places(plan: MakePlan, machine: Machine) -> Callable[..., MountPlan]:
    def make(workspace: Path, on: Machine = machine, preset: str = "workspace-write") -> MountPlan:
        return mount_plan(plan(preset=preset, workspace=workspace, machine=on).sandbox, on.host)

    return make


def test_a_worktree_can_commit_and_the_shared_doors_stay_shut(
    worktree: Path, repository: Path, places: Callable[..., MountPlan]
) -> None:
    shared = repository / ".git"
    (shared / "hooks").mkdir(exist_ok=True)
    seen = places(worktree)
    for name in ("objects/aa", "refs/heads/feature", "logs/refs", "packed-refs.lock"):
        assert seen.at(str(shared / name)).kind is MountKind.WRITE
    assert seen.at(str(shared / "worktrees/feature/index")).kind is MountKind.WRITE
    for name in (
        "config", "hooks/pre-commit", "worktrees/other/HEAD", "worktrees/feature/commondir",
        "worktrees/feature/gitdir",
    ):  # fmt: skip
        assert seen.at(str(shared / name)).kind is MountKind.PROTECTED, name
    assert seen.at(str(worktree / ".git")).kind is MountKind.PROTECTED
    assert not seen.shows_host(str(repository / "file"))


def test_a_worktree_is_readable_under_read_only(
    worktree: Path, repository: Path, places: Callable[..., MountPlan]
) -> None:
    seen = places(worktree, preset="read-only")
    assert seen.at(str(repository / ".git" / "objects")).kind is MountKind.READ
    assert not seen.writable(str(repository / ".git" / "worktrees" / "feature" / "index"))


def test_a_git_file_that_names_another_repository_widens_nothing(
    repository: Path, places: Callable[..., MountPlan]
) -> None:
    other = repository.parent / "other"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {repository}/.git\n")
    assert not places(other).shows_host(str(repository / ".git" / "objects"))


def test_a_git_file_that_names_anothers_worktree_widens_nothing(
    worktree: Path, repository: Path, places: Callable[..., MountPlan]
) -> None:
    other = repository.parent / "other"
    other.mkdir()
    (other / ".git").write_text((worktree / ".git").read_text())
    assert not places(other).shows_host(str(repository / ".git" / "objects"))


def test_a_git_dir_of_ones_own_cannot_name_anothers_shared_part(
    repository: Path, places: Callable[..., MountPlan]
) -> None:
    """The back pointer is easily forged; being in the shared part's own folder is not."""
    other = repository.parent / "other"
    forged = repository.parent / "forged" / "worktrees" / "x"
    other.mkdir()
    (forged / "objects").mkdir(parents=True)
    (other / ".git").write_text(f"gitdir: {forged}\n")
    (forged / "HEAD").write_text("ref: refs/heads/main\n")
    (forged / "gitdir").write_text(f"{other}/.git\n")
    (forged / "commondir").write_text(f"{repository}/.git\n")
    seen = places(other)
    assert not seen.shows_host(str(repository / ".git" / "objects"))
    assert not seen.shows_host(str(forged))


def test_the_ceiling_holds_for_the_git_dir_too(
    worktree: Path, repository: Path, places: Callable[..., MountPlan],
    machine_with: Callable[..., Machine],
) -> None:  # fmt: skip
    objects = str(repository / ".git" / "objects")
    assert not places(worktree, machine_with(roots=[str(worktree)])).shows_host(objects)
    assert places(worktree, machine_with(roots=[str(worktree.parent)])).shows_host(objects)


def test_worktrees_inside_the_workspace_can_be_worked_in(
    repository: Path, git: Git, places: Callable[..., MountPlan]
) -> None:
    git(repository, "worktree", "add", "-q", "-b", "in", "trees/in")
    git(repository, "worktree", "add", "-q", "-b", "out", str(repository.parent / "out"))
    seen = places(repository)
    state = repository / ".git" / "worktrees"
    assert seen.at(str(state / "in" / "index")).kind is MountKind.WRITE
    assert seen.at(str(state / "in" / "commondir")).kind is MountKind.PROTECTED
    assert seen.at(str(state / "out" / "rebase-merge")).kind is MountKind.PROTECTED
    assert seen.at(str(repository / "trees" / "in" / ".git")).kind is MountKind.PROTECTED


@pytest.fixture
def submodule(repository: Path, git: Git, base: Path) -> Path:
    library = base / "library"
    library.mkdir()
    git(library, "init", "-q")
    git(library, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "submodule", "--quiet", "add", str(library), "libs/one")
    git(repository, "commit", "-q", "-m", "add")
    return repository / "libs" / "one"


def test_a_submodules_doors_are_shut_and_it_can_be_worked_in(
    submodule: Path, repository: Path, places: Callable[..., MountPlan], plan: MakePlan
) -> None:
    module = repository / ".git" / "modules" / "libs" / "one"
    (module / "hooks").mkdir(exist_ok=True)
    seen = places(repository)
    assert seen.at(str(module / "config")).kind is MountKind.PROTECTED
    assert seen.at(str(module / "hooks" / "x")).kind is MountKind.PROTECTED
    assert seen.at(str(repository / ".git/modules/new")).kind is MountKind.PROTECTED
    assert seen.at(str(module / "index")).kind is MountKind.WRITE
    assert seen.at(str(submodule / ".git")).kind is MountKind.PROTECTED
    assert seen.at(str(submodule / "file")).kind is MountKind.WRITE
    assert seen.at(str(repository / ".gitmodules")).kind is MountKind.PROTECTED
    pins = {
        g.path
        for g in plan(preset="workspace-write", workspace=repository).sandbox.grants
        if g.origin == "pin"
    }
    assert {f"{repository}/.git", f"{repository}/libs", str(submodule)} <= pins


def test_a_submodule_as_the_workspace_reaches_its_git_dir(
    submodule: Path, repository: Path, places: Callable[..., MountPlan]
) -> None:
    module = repository / ".git" / "modules" / "libs" / "one"
    seen = places(submodule)
    assert seen.at(str(module / "index")).kind is MountKind.WRITE
    assert seen.at(str(module / "config")).kind is MountKind.PROTECTED
    assert not seen.shows_host(str(repository / ".git" / "config"))


def test_an_uninitialised_submodule_is_watched(
    submodule: Path, repository: Path, git: Git, plan: MakePlan
) -> None:
    git(repository, "submodule", "--quiet", "deinit", "-f", "libs/one")
    made = plan(preset="workspace-write", workspace=repository)
    assert f"{submodule}/.git" in {p.path for p in made.sandbox.protected if not p.present}


def test_too_many_modules_are_all_read_only(
    repository: Path, places: Callable[..., MountPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxd.policy.protected.git_dir._MOST_MODULES", 2)
    for name in "abc":
        module = repository / ".git" / "modules" / name
        (module / "objects").mkdir(parents=True)
        (module / "HEAD").write_text("")
    assert places(repository).at(f"{repository}/.git/modules/a/x").kind is MountKind.PROTECTED
