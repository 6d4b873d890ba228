"""Paths as they should not be: loops, dangling links, vanished, many, not UTF-8."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.platform.current import files
from sandboxd.policy.mounts.mount_plan import MountKind, mount_plan
from sandboxd.policy.plan import Plan
from sandboxd.policy.request import Machine
from sandboxd.policy.resolve import MAX_PATHS
from sandboxd_proto.errors import ManifestInvalid, PathDenied

MakePlan = Callable[..., Plan]
FIELDS = ("fs_read_allow", "fs_write_allow", "fs_deny")


@pytest.mark.parametrize("field", FIELDS)
def test_a_loop_of_symlinks_is_refused(field: str, base: Path, plan: MakePlan) -> None:
    (base / "a").symlink_to("b")
    (base / "b").symlink_to("a")
    with pytest.raises(PathDenied) as refused:
        plan(**{field: [str(base / "a")]})
    assert refused.value.field == f"{field}[0]"


@pytest.mark.parametrize("field", FIELDS)
def test_a_dangling_symlink_is_refused(field: str, base: Path, plan: MakePlan) -> None:
    (base / "a").symlink_to("gone")
    with pytest.raises(PathDenied):
        plan(**{field: [str(base / "a")]})


def test_the_name_of_the_bad_path_in_a_long_list_is_told(base: Path, plan: MakePlan) -> None:
    paths = []
    for index in range(500):
        (base / str(index)).mkdir()
        paths.append(str(base / str(index)))
    made = plan(fs_read_allow=paths, fs_deny=paths[:250])
    assert len(made.sandbox.grants) == 500
    (base / "321").rmdir()
    with pytest.raises(PathDenied) as refused:
        plan(fs_read_allow=paths)
    assert refused.value.field == "fs_read_allow[321]"


def test_a_path_in_both_lists_is_writable(
    workspace: Path, plan: MakePlan, machine: Machine
) -> None:
    made = plan(fs_read_allow=[str(workspace)], fs_write_allow=[str(workspace)])
    assert mount_plan(made.sandbox, machine.host).at(str(workspace)).kind is MountKind.WRITE


def test_deny_inside_allow_and_allow_inside_deny(
    workspace: Path, plan: MakePlan, machine: Machine
) -> None:
    inner = workspace / "a" / "b"
    inner.mkdir(parents=True)
    made = plan(
        fs_write_allow=[str(workspace)], fs_deny=[str(workspace / "a")], fs_read_allow=[str(inner)]
    )
    places = mount_plan(made.sandbox, machine.host)
    assert places.at(str(workspace / "x")).kind is MountKind.WRITE
    assert places.at(str(workspace / "a" / "x")).kind is MountKind.MASK
    assert places.at(str(inner / "x")).kind is MountKind.READ


def test_a_name_that_is_not_utf8_can_be_allowed_and_denied(
    workspace: Path, plan: MakePlan, machine: Machine
) -> None:
    odd = os.path.join(str(workspace), os.fsdecode(b"\xff\xfe"))
    os.mkdir(odd)
    made = plan(fs_write_allow=[str(workspace)], fs_deny=[odd])
    assert mount_plan(made.sandbox, machine.host).at(odd).kind is MountKind.MASK


def test_a_home_whose_entries_vanish_is_planned_all_the_same(
    home: Path, workspace: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a preset adds is skipped when it goes away between two looks."""
    (home / ".ssh").mkdir()
    (home / ".gitconfig").write_text("")
    real = os.path.lexists

    def lexists(path: str) -> bool:
        found = real(path)
        if str(path).endswith(".ssh") and found:
            (home / ".ssh").rmdir()
        return found

    monkeypatch.setattr(files, "lexists", lexists)
    made = plan(fs_read_allow=[str(home)])
    assert f"{home}/.ssh" not in {m.path for m in made.sandbox.masks}


@pytest.mark.parametrize("field", FIELDS)
def test_more_paths_than_a_manifest_can_name(field: str, base: Path, plan: MakePlan) -> None:
    """Refused before any is looked at; the same path many times is one path."""
    with pytest.raises(ManifestInvalid) as refused:
        plan(**{field: [f"{base}/{number}" for number in range(MAX_PATHS + 1)]})
    assert refused.value.field == field
    assert plan(**{field: [str(base)] * (MAX_PATHS + 1)}) == plan(**{field: [str(base)]})
