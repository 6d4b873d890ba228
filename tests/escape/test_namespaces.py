"""Namespaces: new ones with capabilities in them, those of others, and entries a filter misses.

Without namespaces of its own, a sandbox leaves it to the syscall policy whether a command makes
some; what could be done with their capabilities is refused there too, and has its own tests.
"""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest
from support.attacks import Box, Build, Victim, freely, plain_bwrap, python, verdict_of, weakest

pytestmark = pytest.mark.isolation


def test_nested_user_namespace_gives_no_capabilities(box: Box) -> None:
    """unshare(CLONE_NEWUSER): every capability inside the new namespace."""
    attack = python("c('unshare', 0x10000000); worked()")
    assert freely(attack).worked
    assert box.attack(attack, preset="read-only").blocked
    if box.firm:
        assert box.attack(attack).blocked


def test_clone3_gives_no_user_namespace(box: Box, build: Build, workspace: Path) -> None:
    """clone3(CLONE_NEWUSER), whose flags a filter cannot see."""
    attack = build("clone3_userns")
    assert freely(attack).worked
    if box.firm:
        assert box.attack(attack, manifest=weakest(fs_read_allow=[*attack])).blocked
    preset = {"preset": "workspace-write", "workspace": str(workspace)}
    assert box.attack(attack, manifest={"fs_read_allow": [*attack]}, **preset).blocked


@pytest.mark.requires("bubblewrap")
def test_nested_user_namespace_does_not_replace_a_protected_file(
    box: Box, build: Build, workspace: Path
) -> None:
    """Hold the folder by an O_PATH descriptor, drop all mounts in a nested user namespace, rename.

    The control is bwrap as it is often used: the file bound read-only, nested namespaces allowed.
    """
    attack = build("nested_replace")
    git = workspace / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    config = Victim(git / "config")
    args = [str(git), "config", "/tmp"]
    plain = plain_bwrap(workspace, Path(attack[0]).parent)
    plain += ["--unshare-user", "--cap-drop", "ALL"]
    control = subprocess.run(
        [*plain, "--ro-bind", str(config), str(config), *attack, *args],
        capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert verdict_of(control).worked
    assert config.was_hit()
    (git / "away").unlink()
    manifest = {"fs_read_allow": [*attack], "syscall_policy": "inherit"}
    inside = box.attack(
        attack, *args, preset="workspace-write", workspace=str(workspace), manifest=manifest
    )
    assert inside.blocked
    assert config.untouched


def test_namespaces_of_a_host_process_cannot_be_joined(box: Box) -> None:
    """setns into the user and network namespaces of a process outside."""
    attack = python("""
        for name in ("user", "net"):
            with open(f"/proc/{args[0]}/ns/{name}") as file:
                c("setns", file.fileno(), 0)
        worked()
    """)
    with subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", "echo; exec sleep 60"],
        stdout=subprocess.PIPE,
    ) as host:
        try:
            assert host.stdout is not None
            host.stdout.readline()
            assert freely(attack, host.pid).worked
            assert box.attack(attack, host.pid).blocked
        finally:
            host.kill()


def test_own_network_namespace_gives_no_raw_sockets(box: Box) -> None:
    """A nested user and network namespace, and a packet socket in it."""
    attack = python("""
        powers(NEWNET)
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        worked()
    """)
    assert freely(attack).worked
    assert box.attack(attack).blocked


@pytest.mark.skipif(platform.machine() != "x86_64", reason="entries of x86-64")
@pytest.mark.parametrize("entry", ["int80", "x32"])
def test_foreign_entry_does_not_walk_around_the_filter(
    box: Box, build: Build, workspace: Path, entry: str
) -> None:
    """A denied system call through the 32-bit or the x32 entry."""
    attack = build("foreign_entry")
    control = freely(attack, entry)
    # A kernel without that entry answers ENOSYS to everybody.
    assert control.worked or control.words == "keyctl ENOSYS", control
    inside = box.run(
        *attack, entry, preset="workspace-write", workspace=str(workspace),
        manifest={"fs_read_allow": [*attack]},
    )  # fmt: skip
    assert inside.outcome == "signaled" or inside.exit_code == 43, inside.raw


def test_capabilities_cannot_be_raised(box: Box) -> None:
    """What root has by itself: the effective and the bounding set, and ambient capabilities."""
    attack = python("""
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        sets = {name: int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")}
        worked(sets) if sets["CapEff"] and sets["CapPrm"] else blocked(sets)
    """)
    assert freely(attack).worked == (os.geteuid() == 0)
    assert box.attack(attack).blocked
