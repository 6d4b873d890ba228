"""The rules of overlapping lists, for any lists: the deeper rule wins, at one path the mask."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.policy.mounts import mount_plan as module
from sandboxd.policy.mounts.mount_plan import Host, MountKind, mount_plan
from sandboxd.policy.mounts.rename_pins import pins
from sandboxd.policy.plan import Grant, Identity, Mask, NetworkRule, SandboxSpec

HOST = Host(system=(("/usr", None),), homes=("/home",))
PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(
    lambda parts: "/srv/" + "/".join(parts)
)
FOLDER = Identity(1, 1, True)


def spec_of(read: set[str], write: set[str], deny: set[str]) -> SandboxSpec:
    grants = [Grant(p, "read", FOLDER) for p in read] + [Grant(p, "write", FOLDER) for p in write]
    masks = tuple(sorted(Mask(p, True) for p in deny))
    return SandboxSpec("minimal", NetworkRule("deny"), tuple(sorted(grants)), masks)


SETS = st.sets(PATHS, max_size=5)


@given(SETS, SETS, SETS, PATHS)
def test_the_deepest_rule_at_or_above_a_path_decides(
    read: set[str], write: set[str], deny: set[str], path: str
) -> None:
    above = [path, *map(str, PurePosixPath(path).parents)]
    ruling = next((p for p in above if p in read | write | deny), None)
    kind = mount_plan(spec_of(read, write, deny), HOST).at(path).kind
    if ruling is None:
        assert kind is MountKind.ROOT
    elif ruling in deny:
        assert kind is MountKind.MASK
    else:
        assert kind is (MountKind.WRITE if ruling in write else MountKind.READ)


@given(SETS, SETS, SETS)
def test_what_contains_another_place_is_mounted_before_it(
    read: set[str], write: set[str], deny: set[str]
) -> None:
    order = [place.path for place in mount_plan(spec_of(read, write, deny), HOST).places]
    for index, path in enumerate(order):
        assert not any(path.startswith(later.rstrip("/") + "/") for later in order[index + 1 :])


@given(SETS, SETS, SETS)
def test_pins_change_nothing_but_renames(read: set[str], write: set[str], deny: set[str]) -> None:
    """Every folder between a writable root and a rule inside it is pinned, and stays writable."""
    spec = spec_of(read, write, deny)
    before = mount_plan(spec, HOST)
    with mock.patch("sandboxd.policy.paths.recording_fs.files.lstat", return_value=os.stat("/")):
        pinned = {grant.path for grant in pins(spec, HOST)}
    assert all(before.at(path).kind is MountKind.WRITE for path in pinned)
    for path in deny | (read - write):
        parent = os.path.dirname(path)
        ruling = before.at(parent)
        if ruling.kind is MountKind.WRITE and ruling.path != parent:
            assert parent in pinned


def test_many_paths_are_one_layout() -> None:
    read = {f"/srv/{i // 25}/{i}" for i in range(500)}
    places = mount_plan(spec_of(read, set(), set()), HOST)
    assert all(places.at(f"{path}/x").kind is MountKind.READ for path in read)


@pytest.mark.parametrize(
    ("home", "hidden"),
    [
        ("/srv/me", True), ("/var/lib/jenkins", True), ("/opt/me", True),
        ("/srv", False), ("/var", False), ("/usr/local", False), ("/tmp/x", False), ("/", False),
        ("relative", False),
    ],
)  # fmt: skip
def test_a_home_folder_that_only_the_variable_names_is_hidden(
    home: str, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a folder of the system, nor one around it: what programs need would be gone."""
    monkeypatch.setattr(module.recording_fs, "isdir", lambda path: True)
    host = Host.current("/root", home)
    assert (home in host.homes) == hidden
    kept = SandboxSpec("host", NetworkRule("deny"), (), ())
    assert (mount_plan(kept, host).at(f"{home}/x").kind == MountKind.HIDDEN) == hidden
