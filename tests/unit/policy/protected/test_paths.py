"""Which paths of a writable workspace stay read-only, with real repositories."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.platform.current import files
from sandboxd.policy.data.protected_names import HOME, WORKSPACE
from sandboxd.policy.mounts.mount_plan import MountKind, mount_plan
from sandboxd.policy.mounts.own_paths import OwnPaths
from sandboxd.policy.paths import homes
from sandboxd.policy.plan import Plan, Protected
from sandboxd.policy.protected import paths as protected_paths
from sandboxd.policy.request import Machine

MakePlan = Callable[..., Plan]
Git = Callable[..., str]


@pytest.fixture
def kind(plan: MakePlan, machine: Machine, workspace: Path) -> Callable[..., MountKind]:
    """What rules a path of the workspace under workspace-write."""

    def ask(path: str | Path, **given: object) -> MountKind:
        made = plan(**({"preset": "workspace-write", "workspace": workspace} | given))
        return mount_plan(made.sandbox, machine.host).at(str(workspace / path)).kind

    return ask


def watched(plan: Plan) -> dict[str, Protected]:
    return {p.path: p for p in plan.sandbox.protected if not p.present}


@pytest.mark.parametrize("name", ["hooks/pre-commit", "config"])
def test_the_doors_of_the_git_dir_are_read_only(
    name: str, repository: Path, kind: Callable[..., MountKind]
) -> None:
    (repository / ".git" / "hooks").mkdir(exist_ok=True)
    assert kind(f".git/{name}") is MountKind.PROTECTED
    for writable in ("index", "HEAD", "objects/aa", "refs/heads/main", "COMMIT_EDITMSG", "logs"):
        assert kind(f".git/{writable}") is MountKind.WRITE


def test_the_git_dir_itself_is_a_mount_point_so_that_it_cannot_be_renamed(
    repository: Path, plan: MakePlan
) -> None:
    made = plan(preset="workspace-write", workspace=repository)
    pins = [g.path for g in made.sandbox.grants if g.origin == "pin"]
    assert pins == [f"{repository}/.git", f"{repository}/.git/info"]


def test_missing_doors_are_watched_and_not_created(repository: Path, plan: MakePlan) -> None:
    found = watched(plan(preset="workspace-write", workspace=repository))
    for name in (".git/commondir", ".git/config.worktree", ".git/modules", ".envrc", ".vscode"):
        assert found[f"{repository}/{name}"].rule == "absent"
        assert not (repository / name).exists()


def test_a_workspace_without_a_repository_may_get_one(workspace: Path, plan: MakePlan) -> None:
    found = watched(plan(preset="workspace-write", workspace=workspace))
    assert found[f"{workspace}/.git"].rule == "new_repository"


@pytest.mark.parametrize("name", sorted(WORKSPACE))
def test_present_files_that_run_later_are_read_only(
    name: str, workspace: Path, kind: Callable[..., MountKind]
) -> None:
    (workspace / name).parent.mkdir(parents=True, exist_ok=True)
    (workspace / name).write_text("")
    assert kind(name) is MountKind.PROTECTED


def test_every_name_has_a_reason() -> None:
    for name, reason in {**WORKSPACE, **HOME}.items():
        assert reason, name
        assert not name.startswith("/")
        assert all(part not in ("", ".", "..") for part in name.split("/"))


def test_what_commands_write_in_ordinary_work_is_not_listed() -> None:
    ordinary = {"package.json", "Makefile", ".npmrc", ".env", ".tool-versions", "AGENTS.md"}
    assert not ordinary & set(WORKSPACE)


def test_the_config_adds_names(
    workspace: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    (workspace / "ci").mkdir()
    (workspace / "ci" / "deploy").write_text("")
    names = [".tool-versions", "ci/deploy", "../outside", "/etc/passwd", "."]
    machine = machine_with(protect=names)
    made = plan(preset="workspace-write", workspace=workspace, machine=machine)
    paths = {p.path: p.present for p in made.sandbox.protected}
    assert paths[f"{workspace}/.tool-versions"] is False
    assert paths[f"{workspace}/ci/deploy"] is True
    assert all(path == str(workspace) or path.startswith(f"{workspace}/") for path in paths)


@pytest.mark.parametrize(
    "value",
    [".githooks", "./.githooks", "tools/../.githooks", "{workspace}/.githooks", '"./.githooks/"'],
)
def test_the_folder_of_core_hookspath_is_read_only(
    value: str, repository: Path, git: Git, kind: Callable[..., MountKind]
) -> None:
    (repository / ".githooks").mkdir()
    text = value.format(workspace=repository)
    with (repository / ".git" / "config").open("a") as config:
        config.write(f"[core]\n\thooksPath = {text} ; ours\n")
    assert git(repository, "config", "core.hooksPath").strip() == text.strip('"')
    assert kind(".githooks/pre-commit") is MountKind.PROTECTED


@pytest.mark.parametrize("setting", ["core.hooksPath", "include.path", "core.fsmonitor"])
@pytest.mark.parametrize(
    "of", ["account", "variable", pytest.param("owner", marks=pytest.mark.requires("root"))]
)
def test_a_home_that_git_s_settings_name_is_that_of_everybody_who_runs_git_there(
    setting: str, of: str, repository: Path, home: Path, base: Path, git: Git, plan: MakePlan,
    machine_with: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """`~` is the home of the daemon's account, the one of its HOME, or of the command's user."""
    changes: dict[str, object] = {}
    if of != "account":
        changes["home"] = str(base)
    if of == "variable":
        changes["variable_home"] = str(home)
    if of == "owner":
        changes["uid"] = 0
        monkeypatch.setattr(homes.system, "home_of", lambda uid: str(home))
    (repository / "named").mkdir()
    named = "~/src/project/named" + ("" if setting == "core.hooksPath" else "/x")
    (repository / "named" / "x").write_text("")
    git(repository, "config", setting, named)
    if of == "owner":
        os.chown(repository, 1234, 1234)
    machine = machine_with(protect=["~/src/project/file"], **changes)
    made = plan(preset="workspace-write", workspace=repository, machine=machine)
    places = mount_plan(made.sandbox, machine.host)
    for name in ("named/x", "file"):
        assert places.at(f"{repository}/{name}").kind is MountKind.PROTECTED


def test_hooks_in_the_top_folder_are_kept_one_by_one(
    repository: Path, git: Git, kind: Callable[..., MountKind]
) -> None:
    git(repository, "config", "core.hooksPath", ".")
    (repository / "pre-commit").write_text("")
    assert kind("pre-commit") is MountKind.PROTECTED
    assert kind("file") is MountKind.WRITE


def test_an_included_config_in_the_workspace_is_read_only(
    repository: Path, git: Git, kind: Callable[..., MountKind]
) -> None:
    (repository / "shared.gitconfig").write_text("[core]\nhooksPath = hooks-of-ours\n")
    (repository / "hooks-of-ours").mkdir()
    git(repository, "config", "include.path", "../shared.gitconfig")
    assert git(repository, "config", "core.hooksPath").strip() == "hooks-of-ours"
    assert kind("shared.gitconfig") is MountKind.PROTECTED
    assert kind("hooks-of-ours/pre-push") is MountKind.PROTECTED


def test_configs_that_include_each_other_end(
    repository: Path, kind: Callable[..., MountKind]
) -> None:
    (repository / "a").write_text("[include]\npath = b\n")
    (repository / "b").write_text("[include]\npath = a\n[include]\npath = ../..\n")
    with (repository / ".git" / "config").open("a") as config:
        config.write("[include]\n\tpath = ../a\n")
    assert kind("b") is MountKind.PROTECTED


def test_hookspath_of_the_users_own_config_counts(
    home: Path, repository: Path, kind: Callable[..., MountKind]
) -> None:
    (home / ".gitconfig").write_text("[core]\n\thooksPath = .hooks\n")
    (repository / ".hooks").mkdir()
    assert kind(".hooks/pre-commit") is MountKind.PROTECTED


def test_links_on_the_way_to_what_git_runs_are_kept(
    home: Path, repository: Path, git: Git, plan: MakePlan, kind: Callable[..., MountKind]
) -> None:
    """In the workspace a command could put a folder in the link's place; elsewhere it could not,
    but the hooks that the link leads to are in the workspace."""
    for name in ("scripts/x", "own"):
        (repository / name).mkdir(parents=True)
    (repository / "tools").symlink_to("scripts")
    (repository / "here").symlink_to(".")
    (home / ".githooks").symlink_to(repository / "own")
    (home / ".gitconfig").write_text("[core]\n\thooksPath = ~/.githooks\n")
    for value, link in (("tools/x", "tools"), ("here", "here")):
        git(repository, "config", "core.hooksPath", value)
        found = watched(plan(preset="workspace-write", workspace=repository))
        assert f"{repository}/{link}" in found
    git(repository, "config", "core.hooksPath", "tools/x")
    assert kind("scripts/x/pre-commit") is MountKind.PROTECTED
    assert kind("scripts/y") is MountKind.WRITE
    (home / ".gitconfig").write_text(f"[core]\n\thooksPath = {home}/.githooks\n")
    assert kind("own/pre-commit") is MountKind.PROTECTED


@pytest.mark.parametrize("where", [".", "nested"])
def test_a_link_in_the_place_of_a_folder_with_protected_names(
    where: str, repository: Path, git: Git, plan: MakePlan, kind: Callable[..., MountKind]
) -> None:
    folder = repository / where
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    (folder / "src").mkdir()
    (folder / "src" / "hermit").write_text("")
    (folder / "bin").symlink_to("src")
    (folder / ".config").symlink_to(".config")
    (folder / ".github").symlink_to("/etc")
    assert kind(f"{where}/src/hermit") is MountKind.PROTECTED
    assert kind(f"{where}/src/main") is MountKind.WRITE
    found = watched(plan(preset="workspace-write", workspace=repository))
    names = ("bin", ".config", ".github", "src/activate-hermit")
    assert {f"{folder}/{name}" for name in names} <= found.keys()
    through = tuple(f"{folder}/{name}/" for name in ("bin", ".config", ".github"))
    assert not [path for path in found if path.startswith(through)]


def test_a_symlinked_name_is_watched_and_its_target_read_only(
    repository: Path, plan: MakePlan, kind: Callable[..., MountKind]
) -> None:
    (repository / "editor").mkdir()
    (repository / ".vscode").symlink_to("editor")
    assert kind("editor/tasks.json") is MountKind.PROTECTED
    found = watched(plan(preset="workspace-write", workspace=repository))
    assert f"{repository}/.vscode" in found


def test_a_name_that_leads_out_of_the_workspace_widens_nothing(
    repository: Path, base: Path, plan: MakePlan
) -> None:
    (base / "elsewhere").mkdir()
    (repository / ".vscode").symlink_to(base / "elsewhere")
    made = plan(preset="workspace-write", workspace=repository)
    assert not any(p.path.startswith(f"{base}/elsewhere") for p in made.sandbox.protected)


def test_naming_a_protected_path_makes_it_writable(
    repository: Path, kind: Callable[..., MountKind]
) -> None:
    (repository / ".vscode").mkdir()
    assert kind(".vscode/a") is MountKind.PROTECTED
    assert kind(".vscode/a", fs_write_allow=[str(repository / ".vscode")]) is MountKind.WRITE
    assert kind(".vscode/a", fs_write_allow=[str(repository.parent)]) is MountKind.PROTECTED


def test_a_protected_file_in_a_denied_folder_does_not_show(
    repository: Path, kind: Callable[..., MountKind]
) -> None:
    assert kind(".git/config", fs_deny=[str(repository / ".git")]) is MountKind.MASK


def test_start_up_files_are_kept_when_the_workspace_is_a_home(
    home: Path, plan: MakePlan, machine: Machine
) -> None:
    (home / ".bashrc").write_text("")
    (home / ".config" / "fish").mkdir(parents=True)
    made = plan(preset="workspace-write", workspace=home)
    places = mount_plan(made.sandbox, machine.host)
    assert places.at(f"{home}/.bashrc").kind is MountKind.PROTECTED
    assert places.at(f"{home}/.config/fish/config.fish").kind is MountKind.PROTECTED
    assert f"{home}/.config" in {g.path for g in made.sandbox.grants if g.origin == "pin"}
    assert {f"{home}/{name}" for name in HOME} <= {p.path for p in made.sandbox.protected}


def test_start_up_files_do_not_matter_in_a_project(workspace: Path, plan: MakePlan) -> None:
    made = plan(preset="workspace-write", workspace=workspace)
    assert f"{workspace}/.bashrc" not in {p.path for p in made.sandbox.protected}


def test_a_bare_repository_as_the_workspace_has_the_same_doors(
    workspace: Path, git: Git, kind: Callable[..., MountKind]
) -> None:
    git(workspace, "init", "-q", "--bare")
    (workspace / "hooks").mkdir(exist_ok=True)
    assert kind("config") is MountKind.PROTECTED
    assert kind("hooks/post-receive") is MountKind.PROTECTED
    assert kind("refs/heads/x") is MountKind.WRITE


def test_the_daemons_code_stays_read_only_and_its_folders_cannot_be_renamed(
    base: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    code = base / "opt" / "lib" / "sandboxd"
    code.mkdir(parents=True)
    machine = machine_with(own=OwnPaths(read_only=(str(code),)))
    made = plan(fs_write_allow=[str(base / "opt")], machine=machine)
    assert mount_plan(made.sandbox, machine.host).at(str(code / "x")).kind is MountKind.PROTECTED
    assert [g.path for g in made.sandbox.grants if g.origin == "pin"] == [f"{base}/opt/lib"]


def test_a_name_that_is_not_utf8_is_kept_as_it_is(repository: Path, git: Git) -> None:
    name = os.fsdecode(b"h\xff\xfeks")
    (repository / name).mkdir()
    with open(repository / ".git" / "config", "ab") as config:
        config.write(b"[core]\n\thooksPath = h\xff\xfeks\n")
    found = protected_paths.for_workspace(str(repository), ())
    assert any(p.path == f"{repository}/{name}" and p.present for p in found.protected)


def test_a_pipe_in_the_place_of_a_config_does_not_block(repository: Path) -> None:
    (repository / ".gitmodules").unlink(missing_ok=True)
    os.mkfifo(repository / ".gitmodules")
    found = protected_paths.for_workspace(str(repository), ())
    assert f"{repository}/.gitmodules" in {p.path for p in found.protected if p.present}


def test_a_deep_tree_is_not_walked(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "node_modules" / "a").mkdir(parents=True)
    looked: list[str] = []
    real = os.scandir

    def scandir(path: str) -> object:
        looked.append(str(path))
        return real(path)

    monkeypatch.setattr(files, "scandir", scandir)
    protected_paths.for_workspace(str(repository), ())
    assert not any("node_modules" in path for path in looked)


def hooks_lead_to(repository: Path, target: str) -> None:
    hooks = repository / ".git" / "hooks"
    for sample in hooks.glob("*"):
        sample.unlink()
    hooks.rmdir()
    hooks.symlink_to(target)


def test_what_a_dangling_link_leads_to_must_not_come_into_being(
    repository: Path, plan: MakePlan
) -> None:
    hooks_lead_to(repository, "../nothere/deeper")
    found = watched(plan(preset="workspace-write", workspace=repository))
    assert found[f"{repository}/.git/hooks"].rule == "absent"
    assert found[f"{repository}/nothere/deeper"].rule == "absent"


def test_every_link_on_the_way_is_watched(
    repository: Path, plan: MakePlan, kind: Callable[..., MountKind]
) -> None:
    hooks_lead_to(repository, "../first")
    (repository / "first").symlink_to("folder/second")
    (repository / "folder").symlink_to("real")
    (repository / "real").mkdir()
    (repository / "real" / "second").symlink_to(f"{repository}/hooks")
    (repository / "hooks").mkdir()
    found = watched(plan(preset="workspace-write", workspace=repository))
    for name in (".git/hooks", "first", "folder", "real/second"):
        assert f"{repository}/{name}" in found
    assert kind("hooks/pre-commit") is MountKind.PROTECTED
    assert kind("real/other") is MountKind.WRITE


def test_links_that_lead_nowhere_or_round_are_watched(repository: Path, plan: MakePlan) -> None:
    hooks_lead_to(repository, "../a")
    (repository / "a").symlink_to("b")
    (repository / "b").symlink_to("a")
    found = watched(plan(preset="workspace-write", workspace=repository))
    assert {f"{repository}/a", f"{repository}/b"} <= set(found)
    hooks_out = repository / ".git" / "hooks"
    hooks_out.unlink()
    hooks_out.symlink_to("/nonexistent/outside")
    found = watched(plan(preset="workspace-write", workspace=repository))
    assert "/nonexistent/outside" not in found


@pytest.mark.parametrize("preset", ["workspace-write", "read-only"])
def test_start_up_files_of_a_writable_home_stay_read_only(
    preset: str, plan: MakePlan, machine: Machine, workspace: Path, home: Path
) -> None:
    (home / ".bashrc").write_text("")
    (home / ".config/fish").mkdir(parents=True)

    def kinds(*granted: Path) -> list[MountKind]:
        allowed = [str(path) for path in granted]
        made = plan(preset=preset, workspace=workspace, fs_write_allow=allowed)
        places = mount_plan(made.sandbox, machine.host)
        paths = (".bashrc", ".config/fish/config.fish", "notes")
        assert f"{home}/.zshrc" in watched(made)
        return [places.at(f"{home}/{path}").kind for path in paths]

    write, read = MountKind.WRITE, MountKind.PROTECTED
    assert kinds(home) == [read, read, write]
    assert kinds(home, home / ".bashrc") == [write, read, write]


def test_a_path_in_two_writable_folders_belongs_to_the_inner_one(
    repository: Path, git: Git, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    git(repository, "init", "inner")
    found = protected_paths.for_workspace(
        str(elsewhere), (), writable=(str(repository), str(repository / "inner"))
    )
    roots = {one.path: one.root for one in found.protected}
    assert roots[f"{repository}/inner/.envrc"] == f"{repository}/inner"
    assert roots[f"{repository}/.envrc"] == str(repository)
