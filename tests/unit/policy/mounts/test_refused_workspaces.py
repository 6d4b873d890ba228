"""Folders of secrets, and those from which the host runs programs, as the workspace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.policy.plan import Plan
from sandboxd.policy.request import Machine
from sandboxd_proto.errors import PathDenied

MakePlan = Callable[..., Plan]
SECRET = [".ssh", ".ssh/keys", ".aws", ".config/gh", ".local/share/keyrings", ".password-store/a"]
RUN = [".local/bin", "bin", "bin/tools", ".config/systemd/user", ".config/autostart", ".cargo/bin"]


@pytest.mark.parametrize("name", SECRET + RUN)
def test_is_refused_where_it_would_be_writable(name: str, home: Path, plan: MakePlan) -> None:
    (home / name).mkdir(parents=True)
    with pytest.raises(PathDenied) as refused:
        plan(preset="workspace-write", workspace=home / name)
    assert f"{home / name} cannot be the workspace" in str(refused.value)
    assert refused.value.field == "workspace"


@pytest.mark.parametrize("name", SECRET)
def test_secrets_are_not_shown_by_a_preset_that_only_reads(
    name: str, home: Path, plan: MakePlan
) -> None:
    (home / name).mkdir(parents=True)
    with pytest.raises(PathDenied) as refused:
        # As sandboxctl sends it from that folder.
        plan(preset="read-only", workspace=home / name, fs_read_allow=[str(home / name)])
    assert name not in str(refused.value.remedy), "a remedy that an agent would apply"


def test_programs_may_be_read(home: Path, plan: MakePlan) -> None:
    (home / "bin").mkdir()
    assert plan(preset="read-only", workspace=home / "bin").workspace == str(home / "bin")


@pytest.mark.parametrize("name", [".ssh", ".local/bin"])
def test_a_caller_that_names_it_may_write_there(name: str, home: Path, plan: MakePlan) -> None:
    folder = home / name
    folder.mkdir(parents=True)
    made = plan(preset="workspace-write", workspace=folder, fs_write_allow=[str(folder)])
    assert str(folder) in made.sandbox.paths("write")
    with pytest.raises(PathDenied):
        plan(preset="workspace-write", workspace=folder, fs_write_allow=[str(home)])


@pytest.mark.parametrize("name", [".ssh", ".config/systemd", "bin"])
def test_a_folder_that_a_dotfile_leads_to_is_the_same(
    name: str, home: Path, plan: MakePlan
) -> None:
    kept = home / "dotfiles" / "kept"
    kept.mkdir(parents=True)
    (home / name).parent.mkdir(exist_ok=True)
    assert plan(preset="workspace-write", workspace=kept)  # control: not yet linked
    (home / name).symlink_to(kept)
    for workspace in (kept, home / name):
        with pytest.raises(PathDenied):
            plan(preset="workspace-write", workspace=workspace)


@pytest.mark.parametrize(
    "name", ["src/bin", "binary", ".sshd", ".local/share/work", ".cursor/worktrees/project/a"]
)
def test_projects_are_workspaces(name: str, home: Path, plan: MakePlan) -> None:
    (home / name).mkdir(parents=True)
    assert plan(preset="workspace-write", workspace=home / name).workspace == str(home / name)


@pytest.mark.parametrize("name", [".ssh", ".local/bin"])
def test_home_of_the_caller_or_of_the_daemon_counts_as_well(
    name: str, base: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    """HOME need not be the folder that the user database names."""
    other = base / "srv" / "me"
    (other / name).mkdir(parents=True)
    assert plan(preset="workspace-write", workspace=other / name)  # control: nobody's home
    with pytest.raises(PathDenied):
        plan(preset="workspace-write", workspace=other / name, env=[("HOME", str(other))])
    machine = machine_with(variable_home=str(other))
    with pytest.raises(PathDenied):
        plan(preset="workspace-write", workspace=other / name, machine=machine)


@pytest.mark.parametrize("name", [".ssh", ".local/bin"])
def test_a_home_in_another_home_counts_as_well(
    name: str, home: Path, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    inner = home / "inner"
    (inner / name).mkdir(parents=True)
    assert plan(preset="workspace-write", workspace=inner / name)  # control: an ordinary folder
    with pytest.raises(PathDenied):
        plan(
            preset="workspace-write", workspace=inner / name,
            machine=machine_with(variable_home=str(inner)),
        )  # fmt: skip
