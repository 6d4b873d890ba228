"""Which changes of the host a sandbox that is up does not cover."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from sandboxd.policy.mounts.mask_links import first_changed
from sandboxd.policy.plan import Link, Plan
from sandboxd.policy.renewal import first_uncovered
from sandboxd.policy.request import Machine

pytestmark = pytest.mark.requires("git")
MakePlan = Callable[..., Plan]


def git(folder: Path, *args: str) -> None:
    subprocess.run(["git", "-C", str(folder), *args], check=True)


@pytest.fixture
def uncovered(machine: Machine) -> Callable[[Plan, Plan], str | None]:
    return lambda then, now: first_uncovered(then, now, machine.host)


Uncovered = Callable[[Plan, Plan], str | None]


def test_links_on_the_way_of_masks(home: Path, plan: MakePlan, uncovered: Uncovered) -> None:
    for name in ("one", "two"):
        (home / name).mkdir()
    secret = home / ".aws"
    secret.symlink_to("one")
    (home / "other").symlink_to("one")
    then = plan(fs_read_allow=[str(home)])
    assert then.mask_links == (Link(str(secret), "one"),)
    assert first_changed(then.mask_links) is None
    secret.unlink()
    assert first_changed(then.mask_links) is None
    secret.symlink_to("two")
    assert first_changed(then.mask_links) == str(secret)
    assert str(secret) in (uncovered(then, plan(fs_read_allow=[str(home)])) or "")
    secret.unlink()
    secret.mkdir()
    assert first_changed(then.mask_links) == str(secret)
    assert f"{secret} is to be hidden" in (uncovered(then, plan(fs_read_allow=[str(home)])) or "")


def test_links_of_a_home_that_does_not_show(home: Path, workspace: Path, plan: MakePlan) -> None:
    (home / "one").mkdir()
    (home / ".aws").symlink_to("one")
    assert plan(fs_read_allow=[str(workspace)]).mask_links == ()


def test_less_is_covered(home: Path, plan: MakePlan, uncovered: Uncovered) -> None:
    (home / ".netrc").write_text("token")
    now = plan(fs_read_allow=[str(home)])
    less = replace(now, sandbox=replace(now.sandbox, masks=(), protected=()))
    assert uncovered(now, less) is None
    assert str(home / ".netrc") in (uncovered(less, now) or "")


def test_settings_of_git(workspace: Path, plan: MakePlan, uncovered: Uncovered) -> None:
    git(workspace, "init", "-q")

    def made() -> Plan:
        return plan(preset="workspace-write", workspace=str(workspace))

    then = made()
    git(workspace, "config", "user.name", "x")
    assert uncovered(then, made()) is None
    git(workspace, "config", "core.hooksPath", "hooks")
    assert f"{workspace}/hooks is protected now" in (uncovered(then, made()) or "")


def test_repositories_that_are_newer(workspace: Path, plan: MakePlan, uncovered: Uncovered) -> None:
    (workspace / "old").mkdir()

    def made() -> Plan:
        return plan(preset="workspace-write", workspace=str(workspace))

    then = made()
    for folder in (workspace / "old", workspace / "new", workspace):
        folder.mkdir(exist_ok=True)
        git(folder, "init", "-q")
        assert uncovered(then, made()) is None
    git(workspace, "config", "core.hooksPath", "hooks")
    assert "hooks is protected now" in (uncovered(then, made()) or "")
