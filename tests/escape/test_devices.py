"""/dev and /sys: disks, the kernel's log, other people's shared memory, the machine's switches."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box, Victim, freely, python, weakest
from support.backends import TEMPLATE, running_backend

pytestmark = pytest.mark.isolation

ROOT = os.geteuid() == 0
READ = python("worked() if open(args[0]).read() == args[1] else blocked('other content')")


def test_disks_are_not_readable(box: Box) -> None:
    """Open any disk in /dev: every file of the machine past every path."""
    attack = python("""
        import stat
        for name in os.listdir("/dev"):
            try:
                if stat.S_ISBLK(os.stat("/dev/" + name).st_mode):
                    os.open("/dev/" + name, os.O_RDONLY)
                    worked(name)
            except OSError:
                continue
        blocked("none")
    """)
    disks = any(stat.S_ISBLK(path.stat().st_mode) for path in Path("/dev").iterdir())
    assert freely(attack).worked == (ROOT and disks)
    for manifest in ({}, {"base": "host"}):
        assert box.attack(attack, manifest=manifest).blocked


NODES = ("null", "zero", "full", "random", "urandom", "tty")
ON_NODES = {
    "mode": "os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))",
    "owner": "os.chown(path, 0, 0)",
    "times": "os.utime(path)",
    "mode by a descriptor": "os.fchmod(os.open(path, os.O_RDWR), 0o666)",
    "times by a descriptor": "os.utime(os.open(path, os.O_RDWR))",
}
# How sandboxes are made: clones, a bwrap each, and a bwrap each because of their network.
WAYS = {
    "clone": ("true", {}),
    "bwrap": ("false", {}),
    "allow_hosts": ("true", {"network": {"kind": "allow_hosts", "hosts": ["localhost"]}}),
}


@pytest.mark.requires("bubblewrap")
@pytest.mark.parametrize("way", WAYS)
def test_device_nodes_of_the_host_are_not_changed(way: str) -> None:
    """The nodes are the host's own: root owns them in the sandbox too. Anybody may set their times,
    with or without a sandbox; a user's bwrap cannot bind them read-only."""
    template, manifest = WAYS[way]
    with running_backend("bubblewrap", env={TEMPLATE: template}) as daemon:
        box = Box("bubblewrap", daemon)
        for what, action in ON_NODES.items():
            attack = python(f"""
                import stat
                refused = set()
                for path in args:
                    try:
                        {action}
                        worked(path)
                    except OSError as error:
                        refused.add(errno.errorcode[error.errno])
                blocked(*refused)
            """)
            nodes = [f"/dev/{name}" for name in NODES]
            assert freely(attack, *nodes).worked == (ROOT or "times" in what)
            if ROOT or way == "clone" or "times" not in what:
                assert box.attack(attack, *nodes, manifest=weakest(**manifest)).blocked, what
        usable = python("open('/dev/null', 'w').write('x'); open('/dev/zero').read(2); worked()")
        assert box.attack(usable, manifest=weakest(**manifest)).worked
        box.close()


def test_device_nodes_are_not_made(box: Box, workspace: Path) -> None:
    """mknod of a disk's number in the writable folder. Root's technique."""
    attack = python("""
        import stat
        os.mknod(args[0], stat.S_IFBLK | 0o600, os.makedev(7, 0))
        worked()
    """)
    node = workspace / "node"
    assert freely(attack, node).worked == ROOT
    node.unlink(missing_ok=True)
    assert box.attack(attack, node, manifest=weakest(workspace)).blocked
    assert not node.exists()


def test_device_node_in_the_workspace_does_not_open(box: Box, workspace: Path) -> None:
    """A device node that lies in the writable folder already: the mount must not honour it.

    Landlock alone knows no devices; it reports its file rules as best effort.
    """
    attack = python("os.read(os.open(args[0], os.O_RDONLY | os.O_NONBLOCK), 8192); worked()")
    node = workspace / "node"
    number = os.makedev(1, 11)  # /dev/kmsg's: one that no sandbox has in its own /dev
    if not ROOT:
        with pytest.raises(PermissionError):
            os.mknod(node, stat.S_IFCHR | 0o666, number)
        return
    os.mknod(node, stat.S_IFCHR | 0o666, number)
    assert freely(attack, node).worked
    if box.firm:
        assert box.attack(attack, node, manifest=weakest(workspace)).blocked


def test_kernel_log_is_not_readable(box: Box) -> None:
    """/dev/kmsg and syslog(2): addresses and events of the whole machine."""
    attack = python("""
        try:
            os.read(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK), 8192)
            worked("kmsg")
        except OSError:
            c("klogctl", 3, ctypes.create_string_buffer(4096), 4096)
            worked("syslog")
    """)
    restricted = Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "1"
    assert freely(attack).worked == (ROOT or not restricted)
    if restricted:
        assert box.attack(attack).blocked
    assert box.attack(attack, preset="read-only").blocked


@pytest.fixture
def shared_memory() -> Iterator[Victim]:
    """A POSIX shared memory object of another program."""
    victim = Victim(Path(f"/dev/shm/sandboxd-test-{os.getpid()}"))
    yield victim
    victim.path.unlink()


def test_shared_memory_of_the_host_is_not_visible(box: Box, shared_memory: Victim) -> None:
    """shm_open: files in /dev/shm belong to other programs of the user."""
    assert freely(READ, shared_memory, Victim.ORIGINAL).worked
    for manifest in ({}, {"base": "host"}):
        assert box.attack(READ, shared_memory, Victim.ORIGINAL, manifest=manifest).blocked


def test_switches_in_sys_are_not_writable(box: Box) -> None:
    """Parameters of modules, memory management, power: opened for writing, never written."""
    attack = python("""
        for top in ("/sys/module", "/sys/kernel/mm", "/sys/power", "/sys/class/net"):
            for at, _, names in os.walk(top):
                for name in names:
                    try:
                        os.open(os.path.join(at, name), os.O_WRONLY)
                        worked(at, name)
                    except OSError:
                        pass
        blocked("none")
    """)
    assert freely(attack).worked == ROOT
    for manifest in ({}, {"base": "host"}, {"fs_read_allow": ["/sys"]}):
        assert box.attack(attack, manifest=manifest).blocked


CGROUP_FILES = python("""
    for at, _, names in os.walk("/sys/fs/cgroup"):
        for name in {"cgroup.procs", "release_agent", "tasks", "cgroup.subtree_control"} & {*names}:
            try:
                os.open(os.path.join(at, name), os.O_WRONLY)
                worked(at, name)
            except OSError:
                pass
    blocked("none")
""")


def test_cgroup_files_are_not_writable(box: Box) -> None:
    """release_agent runs a program on the host; cgroup.procs leaves the limits. Opened only."""
    assert freely(CGROUP_FILES).worked == ROOT
    for manifest in ({}, {"base": "host"}, {"fs_read_allow": ["/sys/fs/cgroup"]}):
        assert box.attack(CGROUP_FILES, manifest=manifest).blocked


def test_cgroup_file_system_is_not_mounted(box: Box, workspace: Path) -> None:
    """A cgroup namespace of one's own and a fresh mount in it (CVE-2022-0492)."""
    attack = python("""
        try:
            powers(0x02000000)
        except OSError:
            pass
        c("mount", b"none", args[0].encode(), b"cgroup2", 0, None)
        worked() if os.path.exists(args[0] + "/cgroup.procs") else blocked("empty")
    """)
    assert freely(attack, workspace).worked
    assert box.attack(attack, workspace, manifest=weakest(workspace)).blocked


def test_cgroups_are_not_made(box: Box) -> None:
    """mkdir in the cgroup file system: a group without the limits of this one."""
    attack = python("""
        for at in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
            try:
                os.mkdir(at + "/sandboxd-test-escape")
                os.rmdir(at + "/sandboxd-test-escape")
                if os.path.exists(at + "/cgroup.procs"):
                    worked(at)
            except OSError:
                continue
        blocked("none")
    """)
    assert freely(attack).worked == ROOT
    assert box.attack(attack).blocked
