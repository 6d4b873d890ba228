"""Why bwrap fails and what to do: on recorded words with the facts of their hosts, and for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.users import as_user, unprivileged_user

from sandboxd.backends.bubblewrap.diagnosis import UsernsFacts, explain, mounts_moved

SUPPORT = Path(__file__).parents[3] / "support"
NORMAL = UsernsFacts(max_user_namespaces=96343)
NO_PERMISSION = (
    "bwrap: No permissions to create new namespace, likely because the kernel does not allow "
    "non-privileged user namespaces. See <https://deb.li/bubblewrap> or "
    "<file:///usr/share/doc/bubblewrap/README.Debian.gz>."
)
TOO_MANY = (
    "bwrap: Creating new namespace failed: nesting depth or "
    "/proc/sys/user/max_*_namespaces exceeded (ENOSPC)"
)

# (what was said, on which host, words of the reason, words of the remedy)
RECORDED: dict[str, tuple[str, UsernsFacts, str, str]] = {
    "ubuntu 24.04": (
        "bwrap: setting up uid map: Permission denied",
        UsernsFacts(apparmor_restricts=True, max_user_namespaces=63000, userns_clone=1),
        "kernel.apparmor_restrict_unprivileged_userns is 1",
        "userns,",
    ),
    "ubuntu 24.04, with a network namespace": (
        "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
        UsernsFacts(apparmor_restricts=True, max_user_namespaces=63000, userns_clone=1),
        "kernel.apparmor_restrict_unprivileged_userns is 1",
        "/etc/apparmor.d/bwrap",
    ),
    "debian 10": (
        NO_PERMISSION,
        UsernsFacts(max_user_namespaces=63000, userns_clone=0),
        "kernel.unprivileged_userns_clone is 0",
        "sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    "hardened": (
        TOO_MANY,
        UsernsFacts(max_user_namespaces=0),
        "user.max_user_namespaces is 0",
        "sysctl -w user.max_user_namespaces=",
    ),
    "old bwrap, hardened": (
        "bwrap: Creating new namespace failed: No space left on device",
        UsernsFacts(max_user_namespaces=0),
        "user.max_user_namespaces is 0",
        "sysctl -w user.max_user_namespaces=",
    ),
    "limit of an outer namespace": (
        TOO_MANY,
        NORMAL,
        "limit of an outer namespace",
        "on the host of this container",
    ),
    "docker's filter": (
        NO_PERMISSION,
        UsernsFacts(max_user_namespaces=63000, container=True, filtered=True),
        "filter or container profile",
        "landlock backend",
    ),
    "docker without its filter": (
        "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
        UsernsFacts(max_user_namespaces=63000, container=True),
        "this container does not allow bwrap to mount /proc",
        "systempaths=unconfined",
    ),
    "kubernetes, no mounts": (
        "bwrap: Failed to make / slave: Permission denied",
        UsernsFacts(max_user_namespaces=63000, root=True),
        "does not allow bwrap to mount",
        "landlock backend",
    ),
    "inside another sandbox": (
        "bwrap: pivot_root: Operation not permitted",
        NORMAL,
        "container or sandbox does not allow bwrap to mount",
        "landlock backend",
    ),
    "setuid bwrap": (
        NO_PERMISSION,
        UsernsFacts(max_user_namespaces=63000, setuid=True),
        "no effect under no_new_privs",
        "chmod u-s",
    ),
    "setuid bwrap, mode bits in effect": (
        "bwrap: cannot open /proc/sys/user/max_user_namespaces: Permission denied",
        UsernsFacts(max_user_namespaces=63000, setuid=True),
        "no effect under no_new_privs",
        "chmod u-s",
    ),
    "setuid bwrap and the switch of debian 10": (
        NO_PERMISSION,
        UsernsFacts(max_user_namespaces=63000, setuid=True, userns_clone=0),
        "kernel.unprivileged_userns_clone is 0",
        "sysctl",
    ),
    "ambient capabilities": (
        "bwrap: Unexpected capabilities but not setuid, old file caps config?",
        NORMAL,
        "has capabilities without being root",
        "ambient capabilities",
    ),
    "kernel without user namespaces": (
        "bwrap: Creating new namespace failed: Invalid argument",
        UsernsFacts(),
        "this kernel has no user namespaces",
        "CONFIG_USER_NS",
    ),
    "unknown": ("bwrap: something new", NORMAL, "bwrap failed: bwrap: something new", "doctor"),
    "silence": ("", NORMAL, "without a word", "doctor"),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_words_are_explained(name: str):
    said, facts, reason, remedy = RECORDED[name]
    why = explain(said, "/usr/bin/bwrap", facts)
    assert reason in why.reason
    assert remedy in why.remedy
    assert said in why.reason


def test_the_profile_names_the_bwrap_that_was_tried():
    said, facts, _, _ = RECORDED["ubuntu 24.04"]
    assert "profile bwrap /opt/bin/bwrap flags" in explain(said, "/opt/bin/bwrap", facts).remedy


def test_root_is_not_told_about_switches_for_others():
    facts = UsernsFacts(apparmor_restricts=True, userns_clone=0, root=True, filtered=True)
    assert "filter" in explain(NO_PERMISSION, None, facts).reason


# for real

OPTIONS = ["--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/",
           "--proc", "/proc", "--dev", "/dev", "true"]  # fmt: skip
# Runs bwrap with the facts of the place that it runs in, and prints the explanation.
EXPLAIN = """
import subprocess, sys
from sandboxd.backends.bubblewrap.diagnosis import explain
ran = subprocess.run(sys.argv[1:], capture_output=True, text=True)
assert ran.returncode != 0, "bwrap worked"
why = explain(ran.stderr, sys.argv[1])
print(why.reason, why.remedy, sep="\\n")
"""


def explained(*prefix: str, bwrap: str = "bwrap") -> str:
    command = [*prefix, sys.executable, "-c", EXPLAIN, shutil.which(bwrap) or bwrap, *OPTIONS]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.requires("bubblewrap", "seccomp")
def test_a_real_filter_on_namespaces():
    told = explained(sys.executable, str(SUPPORT / "without_syscalls.py"), "userns")
    assert "filter or container profile forbids it" in told
    assert "landlock backend" in told


@pytest.mark.requires("bubblewrap", "seccomp")
def test_a_real_filter_on_mounts():
    told = explained(sys.executable, str(SUPPORT / "without_syscalls.py"), "mount")
    assert "does not allow bwrap to mount: bwrap: Failed to make / slave" in told


@pytest.mark.requires("bubblewrap", "root")
def test_a_real_limit_on_namespaces():
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    told = explained("unshare", "--user", "--map-current-user", "sh", "-c", script, "sh")
    assert "user.max_user_namespaces is 0" in told


@pytest.mark.requires("bubblewrap", "root")
def test_a_real_masked_proc():
    user = as_user(unprivileged_user())
    script = 'mount --bind /dev/null /proc/interrupts && exec "$@"'
    told = explained("unshare", "--mount", "sh", "-c", script, "sh", *user)
    assert "does not allow bwrap to mount /proc" in told
    assert "systempaths=unconfined" in told


@pytest.mark.requires("bubblewrap", "root", "seccomp")
def test_a_real_setuid_bwrap(tmp_path: Path):
    folder = Path("/tmp") / f"sbx-setuid-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        bwrap = folder / "bwrap"
        shutil.copy(shutil.which("bwrap") or "/usr/bin/bwrap", bwrap)
        bwrap.chmod(0o4755)
        user = as_user(unprivileged_user())
        lacking = [sys.executable, str(SUPPORT / "without_syscalls.py"), "userns"]
        told = explained(*user, *lacking, bwrap=str(bwrap))
        assert "bwrap is setuid, which has no effect under no_new_privs" in told
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("said", "moved"),
    [
        (
            "bwrap: Can't bind mount /oldroot/ on /newroot/: Unable to apply mount flags: remount "
            '"/newroot/srv/engine/overlay2/c24d/merged": No such file or directory',
            True,
        ),
        (
            "bwrap: Can't bind mount /oldroot/ on /newroot/: Unable to apply mount flags: remount "
            '"/newroot/srv/engine/overlay2/c24d/merged": Invalid argument',
            True,
        ),
        (TOO_MANY, False),
        (
            "bwrap: Can't bind mount /oldroot/a on /newroot/a: Unable to apply mount flags: "
            'remount "/newroot/a": Operation not permitted',
            False,
        ),
    ],
)
def test_a_mount_that_went_away_is_worth_another_attempt(said: str, moved: bool) -> None:
    assert mounts_moved(said) is moved
