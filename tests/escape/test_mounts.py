"""Mounts: changing what the plan's paths mean from inside.

Every control has the powers that mounting needs: root's own, or a nested user namespace's.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.attacks import Box, Victim, freely, python, weakest

pytestmark = pytest.mark.isolation


def test_read_only_mount_is_not_remounted_writable(box: Box, victim: Victim) -> None:
    """mount(MS_REMOUNT | MS_BIND) without MS_RDONLY on a read-only folder."""
    attack = python("""
        folder, file = os.path.dirname(args[0]).encode(), args[0]
        try:
            powers()
        except OSError:
            pass
        if args[1:] == ["control"]:
            c("mount", folder, folder, None, BIND, None)
            c("mount", None, folder, None, BIND | REMOUNT | READ_ONLY, None)
        c("mount", None, folder, None, BIND | REMOUNT, None)
        open(file, "w").write("changed")
        worked()
    """)
    assert freely(attack, victim, "control").worked
    assert victim.was_hit()
    manifest = weakest(fs_read_allow=[str(victim.path.parent)])
    assert box.attack(attack, victim, manifest=manifest).blocked
    assert victim.untouched


def test_read_only_flag_is_not_cleared_by_mount_setattr(box: Box, victim: Victim) -> None:
    """mount_setattr, the newer door to the same flag."""
    attack = python("""
        folder, file = os.path.dirname(args[0]).encode(), args[0]
        try:
            powers()
        except OSError:
            pass
        def set_flags(add, remove):
            attributes = ctypes.create_string_buffer(struct.pack("QQQQ", add, remove, 0, 0))
            call("mount_setattr", -100, folder, 0, attributes, 32)
        if args[1:] == ["control"]:
            c("mount", folder, folder, None, BIND, None)
            set_flags(1, 0)
        set_flags(0, 1)
        open(file, "w").write("changed")
        worked()
    """)
    assert freely(attack, victim, "control").worked
    assert victim.was_hit()
    manifest = weakest(fs_read_allow=[str(victim.path.parent)])
    assert box.attack(attack, victim, manifest=manifest).blocked
    assert victim.untouched


def test_mask_is_not_unmounted(box: Box, workspace: Path) -> None:
    """umount2 of what covers a denied file, and read what is below it."""
    attack = python("""
        path = args[0].encode()
        try:
            powers()
        except OSError:
            pass
        if args[2:] == ["control"]:
            c("mount", b"/dev/null", path, None, BIND, None)
        c("umount2", path, DETACH)
        worked() if open(path).read() == args[1] else blocked("still covered")
    """)
    secret = Victim(workspace / "secret")
    assert freely(attack, secret, Victim.ORIGINAL, "control").worked
    manifest = weakest(workspace, fs_deny=[str(secret)])
    assert box.attack(attack, secret, Victim.ORIGINAL, manifest=manifest).blocked


def test_nothing_is_mounted_over_a_folder(box: Box, workspace: Path) -> None:
    """mount(2) of a new file system over a folder."""
    attack = python("""
        try:
            powers()
        except OSError:
            pass
        c("mount", b"none", args[0].encode(), b"tmpfs", 0, None)
        worked()
    """)
    assert freely(attack, workspace).worked
    assert box.attack(attack, workspace, manifest=weakest(workspace)).blocked


def test_new_mount_api_mounts_nothing(box: Box, workspace: Path) -> None:
    """fsopen, fsconfig, fsmount, move_mount, which a filter for mount(2) alone would miss."""
    attack = python("""
        try:
            powers()
        except OSError:
            pass
        context = call("fsopen", b"tmpfs", 0)
        call("fsconfig", context, 6, None, None, 0)
        mount = call("fsmount", context, 0, 0)
        call("move_mount", mount, b"", -100, args[0].encode(), 4)
        worked()
    """)
    assert freely(attack, workspace).worked
    assert box.attack(attack, workspace, manifest=weakest(workspace)).blocked


def test_tree_is_not_cloned_and_moved(box: Box, workspace: Path, victim: Victim) -> None:
    """open_tree(OPEN_TREE_CLONE) of a readable folder and move_mount over the writable one."""
    attack = python("""
        try:
            powers()
        except OSError:
            pass
        tree = call("open_tree", -100, args[0].encode(), 1)
        call("move_mount", tree, b"", -100, args[1].encode(), 4)
        worked()
    """)
    assert freely(attack, victim.path.parent, workspace).worked
    manifest = weakest(workspace, fs_read_allow=[str(victim.path.parent)])
    assert box.attack(attack, victim.path.parent, workspace, manifest=manifest).blocked


def test_root_is_not_pivoted(box: Box, workspace: Path) -> None:
    """pivot_root to a folder of one's own, to bring the old root's mounts under control."""
    attack = python("""
        try:
            powers()
        except OSError:
            pass
        new = args[0].encode()
        c("mount", new, new, None, BIND, None)
        call("pivot_root", new, new)
        worked()
    """)
    assert freely(attack, workspace).worked
    assert box.attack(attack, workspace, manifest=weakest(workspace)).blocked


def test_chroot_breakout_finds_nothing(box: Box, workspace: Path, victim: Victim) -> None:
    """The classic: chroot into a folder while the working directory stays above it, climb, read."""
    attack = python("""
        try:
            powers()
        except OSError:
            pass
        os.chdir(args[0])
        os.mkdir("jail")
        os.chroot("jail")
        for _ in range(64):
            os.chdir("..")
        os.chroot(".")
        worked() if open(args[1]).read() == args[2] else blocked("other content")
    """)
    assert freely(attack, workspace, victim, Victim.ORIGINAL).worked
    (workspace / "jail").rmdir()
    manifest = weakest(workspace)
    assert box.attack(attack, workspace, victim, Victim.ORIGINAL, manifest=manifest).blocked


def test_fresh_procfs_is_not_mounted(box: Box, workspace: Path) -> None:
    """A procfs of one's own, without the covers of the sandbox's /proc."""
    attack = python("""
        try:
            powers(NEWPID)
        except OSError:
            pass
        if os.fork():
            os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
        c("mount", b"none", args[0].encode(), b"proc", 0, None)
        worked()
    """)
    assert freely(attack, workspace).worked
    assert box.attack(attack, workspace, manifest=weakest(workspace)).blocked
