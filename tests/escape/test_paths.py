"""Spellings of a path: `..`, doubled slashes, other roots; and names that look like options."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.attacks import Box, Victim, freely, python, weakest
from support.rpc import RpcError

pytestmark = pytest.mark.isolation

READ = python("worked() if open(args[0]).read() == args[1] else blocked('other content')")
WRITE = python("open(args[0], 'w').write('changed'); worked()")


def test_dots_do_not_lead_out_of_the_working_directory(
    box: Box, workspace: Path, victim: Victim
) -> None:
    """Climb with `..` from the working directory to a file that is not allowed."""
    climbed = "../outside/victim"
    assert freely(READ, climbed, Victim.ORIGINAL, cwd=workspace).worked
    manifest = weakest(workspace)
    assert box.attack(READ, climbed, Victim.ORIGINAL, cwd=str(workspace), manifest=manifest).blocked


def test_dots_in_the_manifest_are_resolved_before_they_are_judged(
    box: Box, workspace: Path, outside: Path, victim: Victim
) -> None:
    """Allow `workspace/link/..`: textually the workspace, really the folder above the target."""
    (outside / "deep").mkdir()
    (workspace / "link").symlink_to(outside / "deep")
    spelled = f"{workspace}/link/.."
    assert os.path.normpath(spelled) == str(workspace)
    assert freely(READ, f"{spelled}/victim", Victim.ORIGINAL).worked
    with pytest.raises(RpcError) as refusal:
        box.check(manifest=weakest(fs_read_allow=[spelled]))
    assert refusal.value.kind == "PathDenied"
    assert str(outside) in str(refusal.value.remedy)


@pytest.mark.parametrize(
    "spelling",
    ["{0}/./secret", "{0}//secret", "{0}/sub/../secret", "/proc/self/root{0}/secret"],
)
def test_denied_file_is_denied_by_every_spelling(box: Box, workspace: Path, spelling: str) -> None:
    """Read a file of fs_deny through another spelling of its path."""
    Victim(workspace / "secret")
    (workspace / "sub").mkdir()
    path = spelling.format(workspace)
    assert freely(READ, path, Victim.ORIGINAL).worked
    manifest = weakest(workspace, fs_deny=[str(workspace / "secret")])
    assert box.attack(READ, path, Victim.ORIGINAL, manifest=manifest).blocked


def test_renaming_the_folder_above_does_not_uncover_a_denied_file(
    box: Box, workspace: Path
) -> None:
    """Rename the folder that holds a denied file; the mask stays behind at the old name."""
    attack = python("""
        os.rename(args[0], args[0] + "-moved")
        path = args[0] + "-moved/secret"
        worked() if open(path).read() == args[1] else blocked("other content")
    """)
    folder = workspace / "folder"
    folder.mkdir()
    secret = Victim(folder / "secret")
    assert freely(attack, folder, Victim.ORIGINAL).worked
    os.rename(f"{folder}-moved", folder)
    manifest = weakest(workspace, fs_deny=[str(secret)])
    assert box.attack(attack, folder, Victim.ORIGINAL, manifest=manifest).blocked
    # Nor in two steps: what one command moves, the next one reads.
    after = box.attack(READ, f"{folder}-moved/secret", Victim.ORIGINAL, manifest=weakest(workspace))
    assert after.blocked


def test_replacing_the_folder_above_does_not_uncover_a_denied_file(
    box: Box, workspace: Path
) -> None:
    """Exchange the folder that holds a denied file with another one."""
    attack = python("""
        os.mkdir(args[0] + "-other")
        c("renameat2", -100, args[0].encode(), -100, (args[0] + "-other").encode(), 2)
        path = args[0] + "-other/secret"
        worked() if open(path).read() == args[1] else blocked("other content")
    """)
    folder = workspace / "folder"
    folder.mkdir()
    secret = Victim(folder / "secret")
    assert freely(attack, folder, Victim.ORIGINAL).worked
    os.rmdir(folder)
    os.rename(f"{folder}-other", folder)
    manifest = weakest(workspace, fs_deny=[str(secret)])
    assert box.attack(attack, folder, Victim.ORIGINAL, manifest=manifest).blocked


@pytest.mark.parametrize("name", ["--bind", "--args 0", "a'b\"c", "$(id)", "%s%n", "a\\040b"])
def test_names_are_never_read_as_options(
    box: Box, workspace: Path, victim: Victim, name: str
) -> None:
    """A writable folder whose name is an option, a quote or an escape of the mounting tools."""
    odd = workspace / name
    odd.mkdir()
    assert freely(WRITE, "new", cwd=odd).worked
    (odd / "new").unlink()
    manifest = weakest(odd)
    assert box.attack(WRITE, "new", cwd=str(odd), manifest=manifest).worked
    assert (odd / "new").read_text() == "changed"
    assert box.attack(READ, victim, Victim.ORIGINAL, cwd=str(odd), manifest=manifest).blocked


@pytest.mark.parametrize("name", ["two\nlines", "escape\x1b[2J", "nul\0"])
def test_names_with_control_characters_are_refused(box: Box, workspace: Path, name: str) -> None:
    """A path that would break a line of a profile, a log or a command line."""
    if "\0" not in name:
        (workspace / name).mkdir()
    with pytest.raises(RpcError) as refusal:
        box.run("true", manifest={"fs_write_allow": [str(workspace / name)]})
    assert refusal.value.kind == "PathDenied"
    assert refusal.value.field == "fs_write_allow[0]"
