"""Mounts of the host change while sandboxes wait: the next command sees what is mounted then.

A template and a warm sandbox have the mounts of the moment in which they were made. Root changes
the mounts of this machine; a user has a daemon in namespaces of its own, and changes those.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon, stdout_of
from support.rpc import Connection

from sandboxd.linux.host_mounts import list_mounts

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.isolation]
WITHOUT = Path(__file__).parents[1] / "support" / "without_syscalls.py"
COLD, WARM = "false", "true"
PEERS = "\n[peers]\nallow_other_namespaces = true\n"
BIND, REMOUNT, READ_ONLY, MOVE = 4096, 32, 1, 8192
# In the daemon's namespaces; in one process, because a user's capabilities there end with an exec.
CHANGE = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def done(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def mount(source, target, kind, flags):
    done(libc.mount(source.encode(), target.encode(), kind.encode(), flags, b""))
def umount(target):
    done(libc.umount2(target.encode(), 0))
def write(path, text):
    with open(path, "w") as file:
        file.write(text)
for name in sys.argv[2:-1]:
    done(libc.setns(os.open(f"/proc/{sys.argv[1]}/ns/{name}", os.O_RDONLY), 0))
for name, *words in json.loads(sys.argv[-1]):
    {"mount": mount, "umount": umount, "write": write, "mkdir": os.mkdir}[name](*words)
"""


@dataclass(frozen=True)
class Host:
    """A daemon and the mounts that it sees."""

    daemon: Daemon
    connection: Connection
    pool: str

    def change(self, *steps: tuple[Any, ...]) -> None:
        namespaces = ("mnt",) if os.geteuid() == 0 else ("user", "mnt")
        line = [sys.executable, "-c", CHANGE, str(self.daemon.process.pid), *namespaces]
        subprocess.run([*line, json.dumps(steps, default=str)], check=True)

    def shell(self, script: str, folder: Path) -> str:
        params: dict[str, Any] = {
            "argv": ["/bin/sh", "-c", script],
            "manifest": {"network": "deny", "fs_write_allow": [str(folder)]},
        }
        return stdout_of(self.connection.call("execute", params))

    def warm(self, folder: Path) -> bool:
        """Whether a sandbox with this folder waits: no command runs now."""
        return any(
            _has(one.pid, f" {folder} ") and not _is_template(one.pid)
            for one in self.daemon.descendants()
        )


@contextmanager
def running_host(pool: str, template: str, prefix: tuple[str, ...] = ()) -> Iterator[Host]:
    namespaces = ("unshare", "--mount", "--propagation", "private")
    if os.geteuid() != 0:
        namespaces = ("unshare", "--user", "--map-current-user", "--mount")
    env = {"SANDBOXD_POOL_TEMPLATE": template, "SANDBOXD_BACKEND": "bubblewrap"}
    config = f"[pool]\nenabled = {pool}\n{PEERS}"
    with (
        running_daemon(config=config, env=env, prefix=[*namespaces, *prefix]) as daemon,
        daemon.connect() as connection,
    ):
        yield Host(daemon, connection, pool)


@pytest.fixture(scope="module", params=[(COLD, "true"), (WARM, "true"), (WARM, "false")],
                ids=["template", "clone", "bwrap"])  # fmt: skip
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """Kept ready: only a template, a clone of it, or a sandbox with a bwrap of its own."""
    with running_host(*request.param) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a file system in `vault`, and a folder `plain`."""
    for name in ("vault", "plain"):
        (tmp_path / "data" / name).mkdir(parents=True)
    (tmp_path / "data/plain/file").write_text("below\n")
    return (tmp_path / "data").resolve()


def vault(folder: Path, content: str) -> list[tuple[Any, ...]]:
    return [("mount", "vault", folder / "vault", "tmpfs", 0),
            ("write", folder / "vault/file", f"{content}\n")]  # fmt: skip


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def make_ready(host: Host, folder: Path) -> None:
    """Until something of this plan waits for the next command."""
    for _ in range(2):
        assert host.shell(f"cat {folder}/plain/file", folder) == "below\n"
    wait_for(lambda: host.pool == COLD or host.warm(folder))


LOOK = "cat {0}/vault/file {0}/plain/file 2>/dev/null; true"


def test_control_what_is_mounted_is_seen(host: Host, folder: Path) -> None:
    host.change(*vault(folder, "vault"))
    for _ in range(3):
        assert host.shell(LOOK.format(folder), folder) == "vault\nbelow\n"


def test_what_the_host_unmounts_is_gone(host: Host, folder: Path) -> None:
    host.change(*vault(folder, "vault"))
    make_ready(host, folder)
    host.change(("umount", folder / "vault"))
    for _ in range(3):
        assert host.shell(LOOK.format(folder), folder) == "below\n"


def test_what_the_host_covers_is_covered(host: Host, folder: Path) -> None:
    host.change(*vault(folder, "vault"))
    make_ready(host, folder)
    host.change(("mount", folder / "vault", folder / "plain", "", BIND))
    for _ in range(3):
        assert host.shell(LOOK.format(folder), folder) == "vault\nvault\n"


def test_a_folder_above_is_covered(host: Host, folder: Path) -> None:
    """The plan itself refuses what is no longer there; it must not be shown by a mount that is."""
    make_ready(host, folder)
    host.change(("mount", "above", folder.parent, "tmpfs", 0), ("mkdir", folder))
    for _ in range(3):
        assert host.shell(LOOK.format(folder), folder) == ""


def test_what_the_host_makes_read_only_is_not_written(host: Host, folder: Path) -> None:
    host.change(*vault(folder, "vault"))
    write = f"echo x > {folder}/vault/new && echo written; true"
    assert host.shell(write, folder) == "written\n"
    make_ready(host, folder)
    host.change(("mount", "", folder / "vault", "", BIND | REMOUNT | READ_ONLY))
    for _ in range(3):
        assert host.shell(f"rm -f {folder}/vault/new; {write}", folder) == ""


def test_another_file_system_in_the_same_place_is_seen(host: Host, folder: Path) -> None:
    """It may have every number of the first one: mount id, device, inode."""
    host.change(*vault(folder, "first"))
    make_ready(host, folder)
    for content in ("second", "third"):
        host.change(("umount", folder / "vault"), *vault(folder, content))
        for _ in range(2):
            assert host.shell(LOOK.format(folder), folder) == f"{content}\nbelow\n"


def test_a_mount_is_moved_into_a_shown_folder(host: Host, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    elsewhere = tmp_path / "elsewhere"
    host.change(("mount", "x", elsewhere, "tmpfs", 0), ("write", elsewhere / "file", "moved\n"))
    make_ready(host, folder)
    host.change(("mount", elsewhere, folder / "plain", "", MOVE))
    for _ in range(3):
        assert host.shell(LOOK.format(folder), folder) == "moved\n"


def test_what_is_unmounted_does_not_stay_in_use(host: Host, folder: Path) -> None:
    """The device could not be removed. Without a further request."""
    host.change(*vault(folder, "vault"))
    make_ready(host, folder)

    def mounted() -> list[int]:
        return [p.pid for p in host.daemon.descendants() if _has(p.pid, f"{folder}/vault ")]

    assert mounted()
    host.change(("umount", folder / "vault"))
    wait_for(lambda: not mounted())


def test_a_persistent_sandbox_goes_on(host: Host, folder: Path) -> None:
    """Its processes live, and the host mounts for many reasons."""
    host.change(*vault(folder, "vault"))
    manifest = {"network": "deny", "fs_write_allow": [str(folder)]}
    kept = host.connection.call("sandbox/create", {"manifest": manifest})["sandbox"]
    look = {"argv": ["cat", f"{folder}/vault/file"], "sandbox": kept}
    assert stdout_of(host.connection.call("execute", look)) == "vault\n"
    host.change(("umount", folder / "vault"))
    assert stdout_of(host.connection.call("execute", look)) == "vault\n"
    look["sandbox"] = host.connection.call("sandbox/create", {"manifest": manifest})["sandbox"]
    assert host.connection.call("execute", look)["exit_code"] == 1


def _has(pid: int, text: str) -> bool:
    try:
        return text in Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError:
        return False


def _template_pids(host: Host) -> set[int]:
    return {p.pid for p in host.daemon.descendants() if _is_template(p.pid)}


def _is_template(pid: int) -> bool:
    try:
        return b"--template" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.mark.skipif(list_mounts() is None, reason="mounts have no unique numbers before Linux 6.8")
def test_mounts_elsewhere_change_nothing(folder: Path, tmp_path: Path) -> None:
    """Container engines mount and unmount all the time."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with running_host(COLD, "true") as host:
        make_ready(host, folder)
        before = _template_pids(host)
        assert before
        for _ in range(5):
            host.change(("mount", "x", elsewhere, "tmpfs", 0), ("umount", elsewhere))
            assert host.shell(f"cat {folder}/plain/file", folder) == "below\n"
        assert _template_pids(host) == before


@pytest.mark.requires("seccomp")
@pytest.mark.parametrize("pool", [COLD, WARM])
def test_before_mounts_had_unique_numbers_every_change_counts(folder: Path, pool: str) -> None:
    with running_host(pool, "true", (sys.executable, str(WITHOUT), "listmount")) as host:
        host.change(*vault(folder, "first"))
        make_ready(host, folder)
        host.change(("umount", folder / "vault"), *vault(folder, "second"))
        assert host.shell(LOOK.format(folder), folder) == "second\nbelow\n"
        host.change(("umount", folder / "vault"))
        assert host.shell(LOOK.format(folder), folder) == "below\n"
