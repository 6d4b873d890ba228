"""What is kept with a path: the links that lead to it, and what links in it lead to."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.policy.protected import scan_limits
from sandboxd.policy.protected.protect import LEVELS, protect_names, protect_target


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("root/a/b", "root/a/h", "root/p", "out"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path.resolve() / "root"


def kept(root: Path, path: str) -> dict[str, bool]:
    found = protect_target(path if path.startswith("/") else f"{root}/{path}", str(root), LEVELS)
    return {one.path.removeprefix(f"{root}/"): one.present for one in found}


def test_every_spelling_of_a_path(root: Path) -> None:
    (root / "l").symlink_to("a/b")
    assert kept(root, "a//./h/") == {"a/h": True}
    assert kept(root, "a/b/..") == {"a": True}
    assert kept(root, "l/../h") == {"l": False, "a/h": True}
    assert kept(root, "gone/x/y") == {"gone/x/y": False}
    assert kept(root, "gone/../a/h") == {"gone": False, "a/h": True}
    assert kept(root, "../out") == kept(root, "a/..") == kept(root, "/") == {}
    assert kept(root, "a/" * 4096) == {}


def test_a_path_from_elsewhere(root: Path) -> None:
    (root.parent / "out/l").symlink_to(root / "a")
    assert kept(root, f"{root.parent}/out/l/h") == {"a/h": True}
    (root.parent / "out/hook").symlink_to(root / "gone")
    assert kept(root, f"{root.parent}/out") == {"a": True, "gone": False}


def test_links_in_a_folder(root: Path) -> None:
    (root / "p/in").symlink_to("x")
    (root / "p/up").symlink_to("..")
    (root / "p/round").symlink_to("round")
    (root / "p/h").symlink_to("../a/h")
    (root / "a/h/on").symlink_to("../b")
    (root / "a/h/back").symlink_to("../../p")
    assert kept(root, "p") == {"p": True, "a/h": True, "a/b": True}


def test_a_name_behind_a_link(root: Path) -> None:
    (root / "bin").symlink_to("a")
    found = protect_names(str(root), ["bin/hermit", "bin"], str(root))
    assert {(one.path, one.present) for one in found} >= {
        (f"{root}/bin", False),
        (f"{root}/a/hermit", False),
    }


def test_the_work_is_bounded(root: Path) -> None:
    for number in range(300):
        (root / f"a/f{number}").touch()
        (root / f"p/l{number}").symlink_to(f"../a/f{number}")
    assert len(kept(root, "p")) == 1 + 256
    with (
        scan_limits.for_workspace(str(root)),
        pytest.raises(scan_limits.TooMuch),
        scan_limits.for_repository(str(root), nested=True),
    ):
        kept(root, "p")


def test_the_config_may_include_some_files() -> None:
    scan_limits.check_includes("/x/.git", scan_limits.MOST_INCLUDES)
    with pytest.raises(scan_limits.TooMuch, match="includes more than 256 files"):
        scan_limits.check_includes("/x/.git", scan_limits.MOST_INCLUDES + 1)
