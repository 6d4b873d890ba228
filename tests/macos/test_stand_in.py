"""The stand-in's census finds what the tests started, and never a process of another sandbox."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from macos.stand_in.census import NamespaceCensus


@pytest.mark.requires("root")
def test_a_process_with_other_mounts_is_no_member(tmp_path: Path) -> None:
    """As if the number of a namespace that ended were used again by a container."""
    (tmp_path / "lock").touch()
    (tmp_path / "tag").symlink_to(os.readlink("/proc/self/ns/uts"))
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as mine,
        subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as other,
    ):  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        members = NamespaceCensus(tmp_path).members("tag", os.getuid())
        for process in (mine, other):
            process.kill()
    assert mine.pid in members
    assert other.pid not in members
