"""Setuid programs, file capabilities, root's own rights, other users' files."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest
from support.attacks import Box, Victim, freely, python, weakest
from support.rpc import RpcError
from support.users import as_user, open_to_others, unprivileged_user

pytestmark = pytest.mark.isolation

ROOT = os.geteuid() == 0
READ = python("worked() if open(args[0]).read() == args[1] else blocked('other content')")


def test_setuid_program_gains_nothing(box: Box) -> None:
    """Start su(1), which is setuid root, and look whose it is while it waits for a password."""
    attack = python("""
        import subprocess
        su = subprocess.Popen(["/usr/bin/su"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, user=int(args[0]) if args else None)
        for _ in range(500):
            status = dict(line.split(":", 1) for line in open(f"/proc/{su.pid}/status"))
            uid = status["Uid"].split()
            if status["Name"].strip() == "su" or su.poll() is not None:
                su.kill()
                worked(uid) if uid[1] != uid[0] and uid[1] == "0" else blocked(uid)
            time.sleep(0.01)
        raise TimeoutError
    """)
    # Root becomes somebody else first: from root there is nothing to gain.
    other = [unprivileged_user().pw_uid] if ROOT else []
    assert freely(attack, *other).worked
    inside = box.attack(attack)
    assert inside.blocked, inside.words


def test_setuid_bit_in_the_workspace_is_not_honoured(box: Box, workspace: Path) -> None:
    """A setuid program that lies in the allowed folder. Only root can make one of another user."""
    attack_code = "worked() if os.geteuid() != os.getuid() else blocked(os.geteuid())"
    attack = python(attack_code)
    program = workspace / "python"
    shutil.copy("/usr/bin/python3", program)
    other = unprivileged_user()
    if ROOT:
        os.chown(program, other.pw_uid, other.pw_gid)
    program.chmod(0o6755)
    # -I forgets about setuid; what counts is the effective uid that the kernel gave.
    command = (str(program), *attack[1:])
    assert freely(command).worked == ROOT
    assert box.attack(command, manifest=weakest(workspace)).blocked


def test_file_capabilities_are_not_honoured(box: Box, tmp_path: Path) -> None:
    """A program with file capabilities, run by a user who has none. Only root can make one."""
    attack = python("""
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        worked() if int(status["CapEff"], 16) else blocked("none")
    """)
    folder = tmp_path.resolve() / "capable"
    folder.mkdir()
    program = folder / "python"
    shutil.copy("/usr/bin/python3", program)
    if not ROOT:
        with pytest.raises(PermissionError):
            os.setxattr(program, "security.capability", _CAP_DAC_OVERRIDE)
        return
    os.setxattr(program, "security.capability", _CAP_DAC_OVERRIDE)
    other = unprivileged_user()
    open_to_others(folder)
    os.chown(folder, other.pw_uid, other.pw_gid)
    command = (str(program), *attack[1:])
    ids = [word for word in as_user(other) if word != "--no-new-privs"]
    assert freely((*ids, *command)).worked
    # The folder's owner is the user that a daemon of root runs the command as. Where the bounding
    # set is empty the kernel does not even execute such a program.
    try:
        inside = box.attack(command, manifest=weakest(folder))
    except RpcError as refusal:
        if refusal.kind != "ExecFailed":
            raise
    else:
        assert inside.blocked


_CAP_DAC_OVERRIDE = bytes.fromhex("0100000202000000000000000000000000000000")


def test_password_hashes_are_not_readable(box: Box) -> None:
    """/etc/shadow, which root may read whatever its mode is."""
    attack = python("worked() if open('/etc/shadow').read() else blocked('empty')")
    assert freely(attack).worked == ROOT
    for manifest in ({}, {"base": "host"}, {"fs_read_allow": ["/etc"]}):
        assert box.attack(attack, manifest=manifest).blocked


def test_root_does_not_become_another_user(box: Box) -> None:
    """setresuid to another uid, to use its files and processes."""
    attack = python("os.setresuid(*[int(args[0])] * 3); worked()")
    other = unprivileged_user().pw_uid if ROOT else 0
    assert freely(attack, other).worked == ROOT
    assert box.attack(attack, other).blocked


def test_files_are_not_given_away(box: Box, workspace: Path) -> None:
    """chown to another user: with it a setuid program of that user could be made."""
    attack = python("os.chown(args[0], int(args[1]), int(args[1])); worked()")
    file = Victim(workspace / "file")
    other = unprivileged_user().pw_uid if ROOT else 0
    assert freely(attack, file, other).worked == ROOT
    file.reset()
    assert box.attack(attack, file, other, manifest=weakest(workspace)).blocked
    assert file.untouched


def test_file_of_another_user_is_not_readable_for_root(box: Box, outside: Path) -> None:
    """Root reads what belongs to others, whatever the mode: inside it must not."""
    file = Victim(outside / "private")
    other = unprivileged_user()
    if ROOT:
        os.chown(file.path, other.pw_uid, other.pw_gid)
    file.path.chmod(0o600 if ROOT else 0)
    assert freely(READ, file, Victim.ORIGINAL).worked == ROOT
    manifest = weakest(fs_read_allow=[str(outside)])
    assert box.attack(READ, file, Victim.ORIGINAL, manifest=manifest).blocked


def test_command_in_another_users_workspace_is_not_root(box: Box, workspace: Path) -> None:
    """A daemon of root runs the command as the workspace's owner."""
    attack = python("worked() if os.getuid() == 0 or os.getgroups() == [0] else blocked()")
    assert freely(attack).worked == ROOT
    if ROOT:
        other = unprivileged_user()
        open_to_others(workspace)
        os.chown(workspace, other.pw_uid, other.pw_gid)
        subprocess.run([*as_user(other), "test", "-w", str(workspace)], check=True)
    preset = {"preset": "workspace-write", "workspace": str(workspace)}
    assert box.attack(attack, **preset).blocked


@pytest.mark.requires("root")
def test_the_group_of_a_folder_is_not_the_groups_of_its_owner(box: Box, tmp_path: Path) -> None:
    """A workspace of a user whose group is root's, as `mkdir` and `chown USER` leave it."""
    other = unprivileged_user()
    folder = tmp_path.resolve() / "theirs"
    folder.mkdir()
    open_to_others(folder)
    secret = folder / "secret"
    secret.write_text("for the group")
    secret.chmod(0o640)
    command = (*READ, str(secret), "for the group")
    assert freely(command).worked
    assert freely((*as_user(other), *command)).blocked
    for uid in (other.pw_uid, 424_242):  # with an account, and without
        os.chown(folder, uid, 0)
        assert box.attack(command, manifest=weakest(folder)).blocked
    # Without an account, and with the number of a group of this machine.
    number = next(one.gr_gid for one in grp.getgrall() if one.gr_gid and not _has_account(one))
    os.chown(secret, 0, number)
    os.chown(folder, number, number)
    assert box.attack(command, manifest=weakest(folder)).blocked


def _has_account(group: grp.struct_group) -> bool:
    return any(one.pw_uid == group.gr_gid for one in pwd.getpwall())
