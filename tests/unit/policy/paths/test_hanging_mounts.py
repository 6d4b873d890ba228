"""Which mounts may never answer, by the lines of /proc/self/mountinfo."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.policy.paths.hanging_mounts import HangingMounts, hanging_points


def line(point: str, kind: str) -> str:
    return f"36 35 98:0 / {point} rw shared:1 - {kind} /dev/x rw\n"


def test_only_mounts_with_a_server_are_listed() -> None:
    assert hanging_points(line("/", "ext4") + line("/net", "nfs4") + line("/me", "fuse.sshfs")) == (
        "/me", "/net",
    )  # fmt: skip


def test_a_mount_that_another_one_covers_is_not_listed() -> None:
    assert hanging_points(line("/net", "nfs") + line("/net", "tmpfs")) == ()


@pytest.mark.parametrize("odd", ["\x0b", "\x0c", "\r", "\x85", "\u2028"])
def test_a_line_end_that_the_kernel_does_not_escape_is_part_of_the_path(odd: str) -> None:
    assert hanging_points(line(f"/a{odd}b", "nfs") + line("/c", "nfs")) == (f"/a{odd}b", "/c")


def test_a_line_that_is_cut_is_left_out() -> None:
    assert hanging_points("36 35\n" + line("/c", "nfs")) == ("/c",)


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HangingMounts:
    """One that may hang, at `net`, with a link to a folder in it."""
    (tmp_path / "link").symlink_to(tmp_path / "net" / "far")
    found = HangingMounts()
    monkeypatch.setattr(found, "points", lambda: (str(tmp_path / "net"),))
    return found


@pytest.mark.parametrize(
    ("path", "below", "touched"),
    [
        ("net", False, True),
        ("net/far/away", False, True),
        ("link", False, True),
        ("link/x", False, True),
        ("other/../link", False, True),
        (".", False, False),
        (".", True, True),
        ("other/x", True, False),
        ("netx", True, False),
    ],
)
def test_a_path_touches_the_mount_that_it_leads_to(
    mounts: HangingMounts, tmp_path: Path, path: str, below: bool, touched: bool
) -> None:
    before = [f"{tmp_path}/other", f"{tmp_path}/a/b/c"]  # shares folders with the path
    reached = mounts.reached([*before, f"{tmp_path}/{path}"], below=below)
    assert reached == ({str(tmp_path / "net")} if touched else set())


def test_a_name_that_paths_share_is_looked_at_once(
    mounts: HangingMounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    read = os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: (looked.append(path), read(path))[1])
    mounts.reached([f"{tmp_path}/a/{name}" for name in range(50)])
    assert len(looked) == len(set(looked))


def test_a_path_with_very_many_names_is_followed(mounts: HangingMounts, tmp_path: Path) -> None:
    assert mounts.reached([f"{tmp_path}/net" + "/a" * 2000])
    assert not mounts.reached(["/a" * 2000, "a" * 3, ""])
