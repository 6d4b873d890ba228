"""What each ABI covers, and what is said about the rest; kernels without Landlock."""

from __future__ import annotations

import os
import subprocess
import sys
from errno import EIO, ENOSYS, EOPNOTSUPP, EPERM
from pathlib import Path

import pytest

from sandboxd.linux.landlock import (
    FEATURES,
    NEWEST_KNOWN_ABI,
    RulesetSpec,
    access_dev,
    access_handled,
    access_read,
    access_write,
    build_ruleset,
    kernel_abi,
    layers,
    missing_features,
    on_file,
)
from sandboxd.linux.seccomp.compiler import assemble
from sandboxd.linux.seccomp.rules import ALLOW, SyscallRule

ABIS = range(NEWEST_KNOWN_ABI + 3)
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
READ_DIR, REFER, TRUNCATE, IOCTL_DEV = 1 << 3, 1 << 13, 1 << 14, 1 << 15

ASK = """
import ctypes, sys
from sandboxd.linux.landlock import kernel_abi, build_ruleset, RulesetSpec, syscalls
before = kernel_abi()
code = sys.stdin.buffer.read()
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(code) // 8, code))) == 0
print(before > 0, kernel_abi())
"""


def ask_kernel_that_answers(code: int) -> subprocess.CompletedProcess[bytes]:
    """The ABI before and after a filter makes this kernel look like one without Landlock."""
    program = assemble([SyscallRule("landlock_create_ruleset", code)], default=ALLOW)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-c", ASK], input=program, capture_output=True, env=env, check=False
    )


@pytest.mark.requires("landlock", "seccomp")
@pytest.mark.parametrize("code", [ENOSYS, EOPNOTSUPP, EPERM])
def test_a_kernel_without_landlock_has_abi_0(code: int) -> None:
    assert ask_kernel_that_answers(code).stdout == b"True 0\n"


@pytest.mark.requires("landlock", "seccomp")
def test_an_unexpected_failure_is_not_taken_for_absence() -> None:
    done = ask_kernel_that_answers(EIO)
    assert done.returncode != 0
    assert b"landlock_create_ruleset: Input/output error" in done.stderr


def test_no_ruleset_is_built_without_landlock() -> None:
    with pytest.raises(OSError, match="not available") as caught:
        build_ruleset(RulesetSpec(), 0)
    assert caught.value.errno == ENOSYS


@pytest.mark.parametrize("abi", ABIS)
def test_every_feature_is_a_layer_or_missing(abi: int) -> None:
    if abi == 0:
        assert layers(abi) == ()
        assert len(missing_features(abi)) == 1
        assert "not available" in missing_features(abi)[0]
    else:
        assert len(layers(abi)) + len(missing_features(abi)) == len(FEATURES)


def test_the_newest_abi_lacks_nothing() -> None:
    assert missing_features(NEWEST_KNOWN_ABI) == ()
    assert missing_features(NEWEST_KNOWN_ABI + 1) == ()


def test_missing_names_the_abi_and_the_kernel() -> None:
    assert missing_features(2)[0] == (
        "truncate is not covered (needs Landlock ABI 3, Linux 6.2; this kernel has ABI 2)"
    )


@pytest.mark.parametrize("abi", ABIS)
def test_masks_hold_only_what_the_abi_handles(abi: int) -> None:
    handled = access_handled(abi)
    for mask in (access_read(abi), access_write(abi), access_dev(abi)):
        assert mask & ~handled == 0
    assert access_read(abi) & ~access_write(abi) == 0
    assert not access_write(abi) & (MAKE_CHAR | MAKE_BLOCK)
    assert bool(handled & REFER) == (abi >= 2)
    assert bool(handled & TRUNCATE) == (abi >= 3)
    assert bool(handled & IOCTL_DEV) == (abi >= 5)
    assert not on_file(handled) & (READ_DIR | REFER | MAKE_CHAR)


def test_reading_grants_no_write_and_no_ioctl() -> None:
    assert access_read(NEWEST_KNOWN_ABI) == 0b1101


@pytest.mark.requires("landlock")
@pytest.mark.parametrize("abi", range(1, NEWEST_KNOWN_ABI + 1))
def test_every_abi_up_to_the_kernels_builds(abi: int, tmp_path: Path) -> None:
    if abi > kernel_abi():
        pytest.skip("newer than this kernel")
    (tmp_path / "f").touch()
    spec = RulesetSpec(
        read=("/usr", str(tmp_path / "f")),
        write=(str(tmp_path),),
        devices=("/dev/null",),
        deny_tcp=True,
        connect_ports=(443,),
        scope_abstract=True,
        scope_signal=True,
    )
    with build_ruleset(spec, abi) as ruleset:
        assert ruleset.handled_fs == access_handled(abi)
        assert ruleset.missing == missing_features(abi)


@pytest.mark.requires("landlock")
def test_a_newer_kernel_than_known_is_used_as_far_as_known() -> None:
    if kernel_abi() < NEWEST_KNOWN_ABI:
        pytest.skip("older than what is known")
    with build_ruleset(RulesetSpec(read=("/usr",)), NEWEST_KNOWN_ABI + 5) as ruleset:
        assert ruleset.handled_fs == access_handled(NEWEST_KNOWN_ABI)
        assert ruleset.missing == ()
