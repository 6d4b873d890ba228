"""Caches of one workspace only, and programs of the home folder that PATH leads to."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.policy.mounts import caches
from sandboxd.policy.mounts.mount_plan import MountKind, mount_plan
from sandboxd.policy.mounts.toolchains import toolchains
from sandboxd.policy.plan import Plan, RunAs
from sandboxd.policy.request import Machine

MakePlan = Callable[..., Plan]


def test_a_workspace_has_caches_of_its_own(base: Path, workspace: Path, plan: MakePlan) -> None:
    made = plan(preset="workspace-write", workspace=workspace)
    (folder,) = [g.path for g in made.sandbox.grants if g.origin == "cache"]
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    env = dict(made.env)
    for name in ("CARGO_HOME", "PIP_CACHE_DIR", "UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "GOCACHE"):
        assert env[name].startswith(folder + "/")


def test_workspaces_of_the_same_name_do_not_share(base: Path) -> None:
    one = caches.for_workspace("/a/project", str(base))
    two = caches.for_workspace("/b/project", str(base))
    assert one.grants[0].path != two.grants[0].path
    assert one == caches.for_workspace("/a/project", str(base))


def test_the_callers_own_value_wins(workspace: Path, plan: MakePlan) -> None:
    made = plan(preset="workspace-write", workspace=workspace, env=[("PIP_CACHE_DIR", "/x")])
    assert dict(made.env)["PIP_CACHE_DIR"] == "/x"


def test_read_only_has_no_caches(base: Path, workspace: Path, plan: MakePlan) -> None:
    made = plan(preset="read-only", workspace=workspace)
    assert made.env == ()
    assert not (base / "caches").exists()


def test_a_symlink_in_the_place_of_the_cache_is_not_used(base: Path) -> None:
    folder = caches.for_workspace("/a/project", str(base)).grants[0].path
    os.rmdir(folder)
    os.symlink("/", folder)
    assert caches.for_workspace("/a/project", str(base)) == caches.Caches((), ())


def test_a_cache_that_cannot_be_made_is_done_without(base: Path) -> None:
    (base / "file").write_text("")
    assert caches.for_workspace("/a", str(base / "file")) == caches.Caches((), ())


@pytest.mark.requires("root")
def test_a_daemon_of_root_gives_the_cache_to_the_owner(base: Path) -> None:
    root = base / "caches"
    folder = caches.for_workspace("/a", str(root), RunAs(1234, 1235)).grants[0].path
    status = os.stat(folder)
    assert (status.st_uid, status.st_gid) == (1234, 1235)
    assert stat.S_IMODE(os.stat(root).st_mode) & 0o011 == 0o011


def make_program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def granted(home: Path, *search: Path | str) -> set[str]:
    found = toolchains((("PATH", ":".join(map(str, search))),), [str(home)])
    return {os.path.relpath(grant.path, home) for grant in found.grants}


def test_a_known_toolchain_on_path_is_readable_whole(home: Path) -> None:
    make_program(home / ".pyenv" / "shims" / "python")
    (home / ".cargo" / "bin").mkdir(parents=True)
    (home / ".rustup").mkdir()
    assert granted(home, home / ".pyenv/shims") == {".pyenv"}
    assert granted(home, home / ".cargo/bin", "/usr/bin") == {".cargo/bin", ".rustup"}
    assert granted(home, "/usr/bin", "/nowhere", "relative", "") == set()


def test_a_toolchain_that_a_variable_names_is_readable_and_the_home_folder_is_none(
    home: Path,
) -> None:
    (home / "jdk" / "bin").mkdir(parents=True)
    named = (("PATH", "/usr/bin"), ("JAVA_HOME", f"{home}/jdk"), ("RUSTUP_HOME", str(home)))
    assert [g.path for g in toolchains(named, [str(home)]).grants] == [f"{home}/jdk"]


def test_an_installation_is_readable_with_what_it_needs(home: Path) -> None:
    make_program(home / "tools" / "node" / "bin" / "node")
    (home / "tools" / "node" / "lib").mkdir()
    make_program(home / "bin" / "mine")
    (home / "lib").mkdir()
    assert granted(home, home / "tools/node/bin") == {"tools/node"}
    assert granted(home, home / "bin") == {"bin"}  # never the home folder itself


def test_the_home_of_the_environment_has_toolchains_and_is_none_itself(home: Path) -> None:
    other = home / "other"
    make_program(other / ".pyenv" / "shims" / "python")
    make_program(other / ".local" / "bin" / "tool")
    make_program(other / "bin" / "mine")
    for name in ("lib", ".local/share"):
        (other / name).mkdir()
    search = ":".join(f"{other}/{name}" for name in ("bin", ".local/bin", ".pyenv/shims"))
    found = toolchains((("PATH", search),), [str(home), str(other)])
    names = {os.path.relpath(grant.path, other) for grant in found.grants}
    assert names == {"bin", ".local/bin", ".pyenv"}


def test_symlinked_programs_are_followed(home: Path) -> None:
    single = make_program(home / ".local" / "share" / "agent" / "versions" / "1.2")
    venv = home / "venvs" / "tool"
    program = make_program(venv / "bin" / "tool")
    python = make_program(home / "miniconda3" / "bin" / "python3")
    (python.parent.parent / "lib").mkdir()
    (venv / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    bin_dir = home / ".local" / "bin"
    bin_dir.mkdir(parents=True)
    (bin_dir / "agent").symlink_to(single)
    (bin_dir / "tool").symlink_to(program)
    (bin_dir / "loop").symlink_to("loop")
    (bin_dir / "gone").symlink_to(home / "gone")
    (bin_dir / "system").symlink_to("/usr/bin/env")
    assert granted(home, bin_dir) == {
        ".local/bin", ".local/share/agent/versions/1.2", "venvs/tool", "miniconda3",
    }  # fmt: skip


@pytest.mark.parametrize("inside", [True, False])
def test_a_project_leads_to_toolchains_only(home: Path, inside: bool) -> None:
    """A command could have written what is in a project: of this request, or of an earlier one."""
    venv = home / "project" / ".venv"
    make_program(venv / "bin" / "tool")
    (venv / "lib").mkdir()
    private = make_program(home / "private" / "notes" / "file")
    (venv / "bin" / "notes").symlink_to(private)
    (venv / "pyvenv.cfg").write_text(f"home = {private.parent}\n")
    path = (("PATH", f"{venv}/bin"),)

    def shown() -> set[str]:
        writable = [str(home / "project")] if inside else []
        found = toolchains(path, [str(home)], writable)
        return {os.path.relpath(grant.path, home) for grant in found.grants}

    assert shown() == {"project/.venv"}
    python = make_program(home / ".pyenv" / "versions" / "3.11" / "bin" / "python3")
    (python.parent.parent / "lib").mkdir()
    (venv / "bin" / "python").symlink_to(python)
    (venv / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    assert shown() == {"project/.venv", ".pyenv/versions/3.11"}
    (venv / "bin").rename(venv / "moved")
    (venv / "lib").rmdir()
    (venv / "pyvenv.cfg").unlink()
    (venv / "bin").symlink_to(private.parent)
    assert shown() == set()


def test_a_link_that_a_command_may_write_is_nobodys_own(home: Path) -> None:
    private = make_program(home / "private" / "file")
    (home / "bin").mkdir()
    (home / "bin" / "x").symlink_to(private)
    path = (("PATH", f"{home}/bin"),)
    assert [g.path for g in toolchains(path, [str(home)]).grants] == [f"{home}/bin", str(private)]
    found = toolchains(path, [str(home)], [f"{home}/bin"])
    assert [g.path for g in found.grants] == [f"{home}/bin"]


def test_a_symlinked_entry_keeps_its_spelling(home: Path) -> None:
    make_program(home / "store" / "abc" / "bin" / "x")
    (home / ".profile-link").symlink_to(home / "store" / "abc")
    found = toolchains((("PATH", f"{home}/.profile-link/bin"),), [str(home)])
    assert [g.path for g in found.grants] == [f"{home}/store/abc/bin"]
    assert (f"{home}/.profile-link", f"{home}/store/abc") in {
        (link.path, link.target) for link in found.links
    }


def test_the_number_of_grants_is_bounded(home: Path) -> None:
    for index in range(100):
        make_program(home / f"tool{index}" / "bin" / "x")
    assert len(granted(home, *(home / f"tool{i}" / "bin" for i in range(100)))) == 64


def test_a_virtual_environment_in_the_workspace_stays_writable(
    workspace: Path, plan: MakePlan, machine: Machine
) -> None:
    make_program(workspace / ".venv" / "bin" / "python")
    (workspace / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    env = [("PATH", f"{workspace}/.venv/bin:/usr/bin")]
    made = plan(preset="workspace-write", workspace=workspace, env=env)
    assert (
        mount_plan(made.sandbox, machine.host).at(f"{workspace}/.venv/lib").kind is MountKind.WRITE
    )
