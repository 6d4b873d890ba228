"""A daemon of root runs commands as the workspace's owner: root's HOME and name are not theirs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.users import unprivileged_user

from sandboxd.policy.paths import homes
from sandboxd.policy.plan import Plan
from sandboxd.policy.request import Machine

MakePlan = Callable[..., Plan]


@pytest.fixture
def owner(workspace: Path) -> str:
    user = unprivileged_user()
    os.chown(workspace, user.pw_uid, user.pw_gid)
    return user.pw_name


@pytest.fixture
def their_home(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = base / "home" / "owner"
    made.mkdir(parents=True)
    monkeypatch.setattr(homes.system, "home_of", lambda uid: str(made))
    return made


def variables(
    plan: MakePlan, machine: Machine, workspace: Path, preset: str = "workspace-write", **env: str
) -> dict[str, str]:
    made = plan(machine=machine, preset=preset, workspace=workspace, env=list(env.items()))
    return {name: value for name, value in made.env if name in env}


@pytest.mark.requires("root")
def test_the_owner_has_an_own_home_and_name(
    plan: MakePlan, machine_with: Callable[..., Machine], workspace: Path, owner: str,
    their_home: Path, home: Path,
) -> None:  # fmt: skip
    sent = {"HOME": str(home), "USER": "root", "LOGNAME": "root", "LANG": "C"}
    theirs = {"HOME": str(their_home), "USER": owner, "LOGNAME": owner, "LANG": "C"}
    assert variables(plan, machine_with(uid=0), workspace, **sent) == theirs
    (home / "other").mkdir()
    machine = machine_with(uid=0, variable_home=f"{home}/other")
    sent["HOME"] = f"{home}/other"
    assert variables(plan, machine, workspace, **sent) == theirs
    made = plan(machine=machine, preset="workspace-write", workspace=workspace, env=[])
    assert {("HOME", str(their_home)), ("USER", owner)} <= set(made.env)


@pytest.mark.requires("root")
def test_what_the_caller_chose_stays(
    plan: MakePlan, machine_with: Callable[..., Machine], workspace: Path, owner: str,
    their_home: Path,
) -> None:  # fmt: skip
    sent = {"HOME": "/tmp/chosen", "USER": "somebody"}
    assert variables(plan, machine_with(uid=0), workspace, **sent) == sent


@pytest.mark.requires("root")
def test_an_owner_without_a_home_has_the_private_tmp(
    plan: MakePlan, machine_with: Callable[..., Machine], workspace: Path, owner: str, home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(homes.system, "home_of", lambda uid: None)
    found = variables(plan, machine_with(uid=0), workspace, HOME=str(home), USER="root")
    assert found == {"HOME": "/tmp", "USER": owner}
    made = plan(machine=machine_with(uid=0), preset="workspace-write", workspace=workspace)
    assert dict(made.env)["HOME"] == "/tmp"


def test_a_user_of_the_daemon_whose_home_is_missing_has_the_private_tmp(
    plan: MakePlan, machine_with: Callable[..., Machine], workspace: Path
) -> None:
    machine = machine_with(home="/nonexistent")
    assert variables(plan, machine, workspace, HOME="/nonexistent") == {"HOME": "/tmp"}
    assert variables(plan, machine, workspace, HOME="/other") == {"HOME": "/other"}


def test_the_daemons_own_user_keeps_them(
    plan: MakePlan, machine: Machine, workspace: Path, home: Path
) -> None:
    sent = {"HOME": str(home), "USER": "root"}
    assert variables(plan, machine, workspace, **sent) == sent


@pytest.mark.requires("root")
def test_without_a_sandbox_root_stays_root(
    plan: MakePlan, machine_with: Callable[..., Machine], workspace: Path, owner: str,
    their_home: Path, home: Path,
) -> None:  # fmt: skip
    sent = {"HOME": str(home), "USER": "root"}
    machine = machine_with(uid=0)
    assert variables(plan, machine, workspace, "danger-full-access", **sent) == sent
