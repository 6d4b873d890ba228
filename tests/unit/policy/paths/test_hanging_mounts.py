"""Which mounts may never answer, by the lines of /proc/self/mountinfo."""

from __future__ import annotations

import pytest

from sandboxd.policy.paths.hanging_mounts import hanging_points


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
