"""Folders that are held by descriptor: whether they were moved, and where they are now."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sandboxd.policy.plan import Grant, Identity
from sandboxd.types import PathChanged
from sandboxd.workspace_guard.moves import Moves

if sys.platform == "linux":
    from sandboxd.workspace_guard.held_roots import HeldRoots


def grant(path: Path) -> Grant:
    return Grant(str(path), "write", Identity.of(path.lstat()))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "ws/inner").mkdir(parents=True)
    return tmp_path.resolve()


@pytest.fixture
def roots(base: Path) -> Iterator[HeldRoots]:
    held = HeldRoots([grant(base / "ws"), grant(base / "ws/inner")])
    yield held
    held.release()


def test_where_it_is_stays_until_it_moves(base: Path, roots: HeldRoots) -> None:
    assert not roots.moved
    assert roots.places() == {}
    (base / "ws").rename(base / "now")
    (base / "ws").mkdir()
    assert roots.moved
    assert roots.places() == {
        str(base / "ws"): f"{base}/now",
        f"{base}/ws/inner": f"{base}/now/inner",
    }
    assert roots.moves().path(f"{base}/ws/inner/x") == f"{base}/now/inner/x"
    assert f"moved to {base}/now" in roots.why


def test_a_folder_above(base: Path, roots: HeldRoots) -> None:
    now = base.rename(base.with_name("elsewhere"))
    assert roots.moved
    assert roots.moves().path(str(base / "ws")) == f"{now}/ws"
    now.rename(base)
    assert roots.moved  # it was
    assert roots.moves().path(str(base / "ws")) == f"{base}/ws"


def test_a_name_that_looks_like_a_removed_one(base: Path, roots: HeldRoots) -> None:
    (base / "ws").rename(base / "ws (deleted)")
    assert roots.moved
    assert roots.moves().path(f"{base}/ws/x") == f"{base}/ws (deleted)/x"


def test_removed(base: Path, roots: HeldRoots) -> None:
    (base / "ws/inner").rmdir()
    assert not roots.moved  # nothing of it is left, and the folder around it is looked at
    (base / "ws").rmdir()
    (base / "ws").mkdir()
    assert roots.moved
    assert roots.moves().paths([f"{base}/ws/x", f"{base}/y"]) == (f"{base}/y",)
    assert f"{base}/ws was removed" in " ".join(roots.warnings())


def test_a_removed_cache_is_called_one(base: Path) -> None:
    held = HeldRoots([msgspec.structs.replace(grant(base / "ws/inner"), origin="cache")])
    (base / "ws/inner").rmdir()
    (line,) = held.warnings()
    assert "private cache" in line
    assert ".git" not in line
    held.release()


@pytest.mark.parametrize(
    ("to", "moved"), [("ws/other", False), ("other", True), ("o (deleted)", True)]
)
def test_one_inside_another(base: Path, roots: HeldRoots, to: str, moved: bool) -> None:
    (base / "ws/inner").rename(base / to)
    assert roots.moved == moved


def test_one_inside_another_that_protects_something_is_brought_back(base: Path) -> None:
    grants = [grant(base / "ws"), grant(base / "ws/inner")]
    held = HeldRoots(grants, [f"{base}/ws/inner"])
    (base / "ws/inner").rename(base / "ws/other")
    (base / "ws/inner").mkdir()
    (base / "ws/inner/made").touch()
    (base / "ws/other/own").touch()
    assert held.moved
    (moved,) = held.bring_back()
    assert os.listdir(moved.moved_to or "") == ["made"]
    assert os.listdir(base / "ws/inner") == ["own"]
    assert held.places() == {one.path: one.path for one in grants}
    held.release()


def test_another_folder_in_its_place(base: Path) -> None:
    planned = grant(base / "ws")
    (base / "ws").rename(base / "now")
    (base / "ws").mkdir()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(PathChanged):
        HeldRoots([grant(base / "now"), planned])
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_looks_follow_it_wherever_it_goes(base: Path, roots: HeldRoots) -> None:
    places = ["ws", "one", "two", "three"]
    looked: list[str] = []
    at = str(base / "ws")

    def follow(moves: Moves) -> None:
        nonlocal at
        at = moves.told(at)

    def look() -> None:
        looked.append(at)
        assert sorted(os.listdir(at)) == ["inner"]
        if len(looked) < len(places):
            os.rename(at, base / places[len(looked)])

    roots.follower().look(follow, look)
    assert looked == [str(base / one) for one in places]
    assert not roots.unseen


def test_looks_at_what_never_rests_are_given_up(base: Path, roots: HeldRoots) -> None:
    count = 0

    def look() -> None:
        nonlocal count
        count += 1
        os.rename(f"/proc/self/fd/{fd}/{count - 1}", f"/proc/self/fd/{fd}/{count}")

    (base / "ws").rename(base / "0")
    fd = os.open(base, os.O_PATH)
    roots.follower().look(lambda moves: None, look)
    os.close(fd)
    assert str(base / "ws") in roots.unseen
    assert "could not all be looked at" in " ".join(roots.warnings())


def test_held_until_the_last_one_releases_it(base: Path, roots: HeldRoots) -> None:
    roots.hold().release()
    (base / "ws").rename(base / "now")
    assert roots.moved
