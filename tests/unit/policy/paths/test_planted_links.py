"""Symlinks that a command could have made do not speak for the caller of the next request."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.policy.paths.canonical import resolve
from sandboxd.policy.plan import Plan
from sandboxd_proto.errors import PathDenied

MakePlan = Callable[..., Plan]
FIELDS = ["fs_read_allow", "fs_write_allow"]


@pytest.fixture
def other(base: Path) -> Path:
    folder = base / "other" / "place"
    folder.mkdir(parents=True)
    return folder


def refusal(make: MakePlan, **given: object) -> PathDenied:
    with pytest.raises(PathDenied) as caught:
        make(**given)
    return caught.value


def test_a_workspace_behind_a_link_is_refused_by_its_target(
    workspace: Path, other: Path, plan: MakePlan
) -> None:
    (workspace / "pkg").symlink_to(other)
    found = refusal(plan, preset="workspace-write", workspace=workspace / "pkg")
    assert found.field == "workspace"
    assert str(other) in (found.remedy or "")
    assert plan(preset="workspace-write", workspace=other).workspace == str(other)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("target", ["other", "/", "..", ".", "/usr/share"])
def test_a_link_that_leaves_its_folder_is_refused(
    workspace: Path, other: Path, plan: MakePlan, field: str, target: str
) -> None:
    (workspace / "x").symlink_to(other if target == "other" else target)
    found = refusal(plan, **{field: [str(workspace / "x")]})
    assert found.field == f"{field}[0]"


def test_a_link_further_up_counts_too(workspace: Path, other: Path, plan: MakePlan) -> None:
    (other / "deep").mkdir()
    (workspace / "x").symlink_to(other)
    assert refusal(plan, fs_read_allow=[str(workspace / "x" / "deep")]).remedy


def test_a_chain_of_links_is_judged_at_its_end(
    workspace: Path, other: Path, plan: MakePlan
) -> None:
    (workspace / "one").symlink_to("two")
    (workspace / "two").symlink_to(other)
    refusal(plan, fs_read_allow=[str(workspace / "one")])


def test_a_link_that_stays_in_its_folder_works(workspace: Path, plan: MakePlan) -> None:
    (workspace / "releases" / "42").mkdir(parents=True)
    (workspace / "current").symlink_to("releases/42")
    made = plan(fs_read_allow=[str(workspace / "current")])
    assert made.sandbox.paths("read") == [str(workspace / "releases" / "42")]


def test_a_link_that_stays_in_the_workspace_works(workspace: Path, plan: MakePlan) -> None:
    (workspace / "a").mkdir()
    (workspace / "b").mkdir()
    (workspace / "a" / "x").symlink_to("../b")
    asked = {"fs_read_allow": [str(workspace / "a" / "x")]}
    refusal(plan, **asked)
    assert plan(preset="workspace-write", workspace=workspace, **asked)


def test_dots_behind_a_link_do_not_leave_the_workspace(workspace: Path, plan: MakePlan) -> None:
    """`x/..` reads as the workspace; through the link it is the folder above it."""
    (workspace / "x").symlink_to(".")
    wanted = {"preset": "workspace-write", "workspace": workspace}
    refusal(plan, **wanted, fs_write_allow=[f"{workspace}/x/.."])
    (workspace / "a" / "b").mkdir(parents=True)
    (workspace / "y").symlink_to("a/b")
    assert plan(**wanted, fs_read_allow=[f"{workspace}/y/.."])


@pytest.mark.parametrize("target", [".ssh", ".ssh/id_ed25519"])
@pytest.mark.parametrize("field", FIELDS)
def test_a_link_lifts_no_mask(home: Path, plan: MakePlan, field: str, target: str) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_ed25519").write_text("key")
    (home / "data").symlink_to(target)
    asked = {"fs_read_allow": [str(home)]}
    asked[field] = [*asked.get(field, []), str(home / "data")]
    found = refusal(plan, **asked)
    assert str(home / target) in found.message
    assert str(home / target) not in (found.remedy or "")
    by_name = {**asked, field: [*asked[field][:-1], str(home / target)]}
    assert str(home / target) not in {m.path for m in plan(**by_name).sandbox.masks}


def test_a_link_lifts_no_protection(repository: Path, plan: MakePlan) -> None:
    (repository / "x").symlink_to(".git/hooks")
    wanted = {"preset": "workspace-write", "workspace": repository}
    refusal(plan, **wanted, fs_write_allow=[str(repository / "x")])
    refusal(plan, **wanted, fs_write_allow=[str(repository / "x" / "pre-commit.sample")])


def test_links_of_the_system_are_the_callers_own(plan: MakePlan) -> None:
    assert plan(fs_read_allow=["/bin", "/lib"])


def test_a_secret_in_the_place_of_a_setting_is_not_shown(
    home: Path, workspace: Path, plan: MakePlan
) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_ed25519").write_text("key")
    (home / ".gitconfig").symlink_to(".ssh/id_ed25519")
    made = plan(preset="workspace-write", workspace=workspace)
    assert str(home / ".ssh" / "id_ed25519") not in made.sandbox.paths("read")


def test_settings_behind_links_of_a_dotfile_manager_are_shown(
    home: Path, workspace: Path, plan: MakePlan
) -> None:
    (home / "dotfiles").mkdir()
    (home / "dotfiles" / "gitconfig").write_text("")
    (home / ".gitconfig").symlink_to("dotfiles/gitconfig")
    made = plan(preset="workspace-write", workspace=workspace)
    assert str(home / "dotfiles" / "gitconfig") in made.sandbox.paths("read")


def test_absent_secrets_are_those_that_would_show(
    home: Path, workspace: Path, plan: MakePlan
) -> None:
    (home / ".ssh").mkdir()
    shown = plan(fs_read_allow=[str(home)]).absent_secrets
    assert str(home / ".pgpass") in shown
    assert str(home / ".ssh") not in shown
    assert plan(preset="workspace-write", workspace=workspace).absent_secrets == ()


SWAP = """
import ctypes, sys
libc = ctypes.CDLL(None)
one, other = (name.encode() for name in sys.argv[1:])
print("up", flush=True)
while True:
    libc.renameat2(-100, one, -100, other, 2)
"""


def test_a_link_that_is_swapped_in_and_out_is_followed_and_listed_or_neither(
    workspace: Path, other: Path
) -> None:
    folder, link = workspace / "folder", workspace / "link"
    folder.mkdir()
    link.symlink_to(other)
    command = [sys.executable, "-c", SWAP, str(folder), str(link)]
    seen = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout is not None
            assert swapper.stdout.readline() == b"up\n"
            for _ in range(5000):
                try:
                    found = resolve(str(folder), "field")
                except PathDenied:  # at the end of the way stood the link
                    continue
                seen.add((found.path, bool(found.planted)))
        finally:
            swapper.kill()
    assert seen == {(str(folder), False), (str(other), True)}
