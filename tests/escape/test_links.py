"""Symlinks, hard links and other second names for a file that the plan does not allow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.attacks import Box, Victim, freely, python, weakest

pytestmark = pytest.mark.isolation

READ = python("worked() if open(args[0]).read() == args[1] else blocked('other content')")
WRITE = python("open(args[0], 'w').write('changed'); worked()")


def test_symlink_in_the_workspace_does_not_read_outside(
    box: Box, workspace: Path, victim: Victim
) -> None:
    """Make a symlink in the writable folder to a file outside, and read it."""
    attack = python("""
        os.symlink(args[0], args[1])
        worked() if open(args[1]).read() == args[2] else blocked("other content")
    """)
    assert freely(attack, victim, workspace / "free", Victim.ORIGINAL).worked
    manifest = weakest(workspace)
    assert box.attack(attack, victim, workspace / "in", Victim.ORIGINAL, manifest=manifest).blocked
    # One that was there before is no better.
    assert box.attack(READ, workspace / "free", Victim.ORIGINAL, manifest=manifest).blocked


def test_symlink_in_the_workspace_does_not_write_outside(
    box: Box, workspace: Path, victim: Victim
) -> None:
    """Write through a symlink to a file that is only readable."""
    link = workspace / "link"
    link.symlink_to(victim.path)
    assert freely(WRITE, link).worked
    assert victim.was_hit()
    manifest = weakest(workspace, fs_read_allow=[str(victim.path.parent)])
    assert box.attack(WRITE, link, manifest=manifest).blocked
    assert victim.untouched


def test_symlinked_folder_does_not_create_files_outside(
    box: Box, workspace: Path, outside: Path
) -> None:
    """Create a file below a symlinked folder whose target is only readable."""
    (workspace / "link").symlink_to(outside)
    planted = workspace / "link" / "planted"
    assert freely(WRITE, planted).worked
    (outside / "planted").unlink()
    manifest = weakest(workspace, fs_read_allow=[str(outside)])
    assert box.attack(WRITE, planted, manifest=manifest).blocked
    assert not (outside / "planted").exists()


def test_hard_link_into_the_workspace_does_not_make_a_file_writable(
    box: Box, workspace: Path, victim: Victim
) -> None:
    """Link a readable file into the writable folder and write the new name."""
    attack = python("""
        os.link(args[0], args[1])
        open(args[1], "w").write("changed")
        worked()
    """)
    assert freely(attack, victim, workspace / "free").worked
    assert victim.was_hit()
    manifest = weakest(workspace, fs_read_allow=[str(victim.path.parent)])
    assert box.attack(attack, victim, workspace / "in", manifest=manifest).blocked
    assert victim.untouched


def test_rename_does_not_replace_a_file_outside(box: Box, workspace: Path, victim: Victim) -> None:
    """Rename a file of the writable folder over one that is only readable."""
    attack = python("""
        open(args[0], "w").write("changed")
        os.rename(args[0], args[1])
        worked()
    """)
    assert freely(attack, workspace / "new", victim).worked
    assert victim.was_hit()
    manifest = weakest(workspace, fs_read_allow=[str(victim.path.parent)])
    assert box.attack(attack, workspace / "new", victim, manifest=manifest).blocked
    assert victim.untouched


def test_exchange_of_folders_does_not_make_one_writable(
    box: Box, workspace: Path, outside: Path, victim: Victim
) -> None:
    """renameat2(RENAME_EXCHANGE) of a writable folder and a readable one."""
    attack = python("""
        os.mkdir(args[0])
        c("renameat2", -100, args[0].encode(), -100, args[1].encode(), 2)
        worked()
    """)
    assert freely(attack, workspace / "d", outside).worked
    assert not victim.path.exists()
    os.rename(outside, workspace / "away")
    os.rename(workspace / "d", outside)
    victim.reset()
    manifest = weakest(workspace, fs_read_allow=[str(outside)])
    assert box.attack(attack, workspace / "e", outside, manifest=manifest).blocked
    assert victim.untouched


def test_nameless_file_cannot_be_linked_outside(box: Box, workspace: Path, outside: Path) -> None:
    """Open an O_TMPFILE in the writable folder and give it a name in the readable one."""
    attack = python("""
        fd = os.open(args[0], os.O_TMPFILE | os.O_WRONLY, 0o644)
        os.write(fd, b"planted")
        c("linkat", -100, f"/proc/self/fd/{fd}".encode(), -100, args[1].encode(), 0x400)
        worked()
    """)
    assert freely(attack, workspace, outside / "planted").worked
    (outside / "planted").unlink()
    manifest = weakest(workspace, fs_read_allow=[str(outside)])
    assert box.attack(attack, workspace, outside / "planted", manifest=manifest).blocked
    assert not (outside / "planted").exists()


def test_descriptor_opened_for_reading_is_not_reopened_for_writing(
    box: Box, victim: Victim
) -> None:
    """Open a readable file, then open it again for writing through /proc/self/fd."""
    attack = python("""
        fd = os.open(args[0], os.O_RDONLY)
        again = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_TRUNC)
        os.write(again, b"changed")
        worked()
    """)
    assert freely(attack, victim).worked
    assert victim.was_hit()
    manifest = weakest(fs_read_allow=[str(victim.path.parent)])
    assert box.attack(attack, victim, manifest=manifest).blocked
    assert victim.untouched


def test_path_descriptor_does_not_lead_around_the_plan(
    box: Box, workspace: Path, victim: Victim
) -> None:
    """Open a folder with O_PATH, and from there the file, with `..` and for writing."""
    attack = python("""
        fd = os.open(args[0], os.O_PATH)
        there = os.open("../outside/victim", os.O_WRONLY | os.O_TRUNC, dir_fd=fd)
        os.write(there, b"changed")
        worked()
    """)
    assert freely(attack, workspace).worked
    assert victim.was_hit()
    manifest = weakest(workspace, fs_read_allow=[str(victim.path.parent)])
    assert box.attack(attack, workspace, manifest=manifest).blocked
    assert victim.untouched


def test_file_handle_does_not_open_a_file_outside(box: Box, victim: Victim) -> None:
    """open_by_handle_at: a file by its inode number, past every path. Root's technique."""
    attack = python("""
        handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
        mount = ctypes.create_string_buffer(4)
        if len(args) == 1:
            c("name_to_handle_at", -100, args[0].encode(), handle, mount, 0)
            end(42, "worked", handle.raw.hex())
        handle = ctypes.create_string_buffer(bytes.fromhex(args[1]), 136)
        anchor = os.open("/usr", os.O_RDONLY)
        for anchor in (anchor, os.open(".", os.O_RDONLY)):
            try:
                fd = c("open_by_handle_at", anchor, handle, os.O_RDONLY)
            except OSError as error:
                continue
            worked() if os.read(fd, 99).decode() == args[2] else blocked("other content")
        blocked(errno.errorcode[ctypes.get_errno()])
    """)
    handle = freely(attack, victim).words
    control = freely(attack, victim, handle, Victim.ORIGINAL, cwd=victim.path.parent)
    assert control.worked == (os.geteuid() == 0)
    assert box.attack(attack, victim, handle, Victim.ORIGINAL).blocked
