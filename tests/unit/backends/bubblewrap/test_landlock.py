"""A ruleset made outside, passed into a bwrap sandbox and applied there, holds for its mounts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd.linux.landlock import RulesetSpec, access_write, build_ruleset, kernel_abi

pytestmark = [pytest.mark.isolation, pytest.mark.requires("landlock", "bubblewrap")]

# Receives the ruleset, adds a rule for the mount that exists only in here, applies it, and tries.
INSIDE = """
import array, ctypes, errno, os, socket, sys
channel, apply, own, rights = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
_, (ruleset, *_), _, _ = socket.recv_fds(socket.socket(fileno=channel), 1, 4)

class PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("fd", ctypes.c_int32)]

if own:
    rule = PathBeneath(rights, os.open("/mnt/own", os.O_PATH))
    assert libc.syscall(445, ruleset, 1, ctypes.byref(rule), 0) == 0
if apply:
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.syscall(446, ruleset, 0) == 0
for path in ("/mnt/bound/f", "/mnt/other/f", "/mnt/own/f"):
    try:
        open(path, "w").write("x")
        print(path, "ok")
    except OSError as error:
        print(path, errno.errorcode[error.errno])
"""


def inside(tmp_path: Path, *, apply: bool, own: bool) -> dict[str, str]:
    for name in ("granted", "other"):
        (tmp_path / name).mkdir(exist_ok=True)
    abi = kernel_abi()
    here, there = socket.socketpair()
    command = [
        "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--tmpfs", "/mnt",
        "--bind", str(tmp_path / "granted"), "/mnt/bound",
        "--bind", str(tmp_path / "other"), "/mnt/other",
        "--dir", "/mnt/own", "--",
        os.path.realpath(sys.executable), "-I", "-c", INSIDE,
        str(there.fileno()), str(int(apply)), str(int(own)), str(access_write(abi)),
    ]  # fmt: skip
    spec = RulesetSpec(read=("/usr",), write=(str(tmp_path / "granted"),))
    with here, there, build_ruleset(spec, abi) as ruleset:
        socket.send_fds(here, [b"r"], [ruleset.fileno()])
        done = subprocess.run(
            command, pass_fds=[there.fileno()], capture_output=True, text=True, check=True
        )
    return dict(line.split() for line in done.stdout.splitlines())


def test_rules_of_host_paths_hold_for_the_bound_inodes(tmp_path: Path) -> None:
    assert set(inside(tmp_path, apply=False, own=False).values()) == {"ok"}
    assert inside(tmp_path, apply=True, own=False) == {
        "/mnt/bound/f": "ok",
        "/mnt/other/f": "EACCES",
        "/mnt/own/f": "EACCES",
    }
    assert (tmp_path / "granted/f").read_text() == "x"


def test_a_rule_added_inside_opens_a_mount_of_the_sandbox(tmp_path: Path) -> None:
    assert inside(tmp_path, apply=True, own=True) == {
        "/mnt/bound/f": "ok",
        "/mnt/other/f": "EACCES",
        "/mnt/own/f": "ok",
    }
