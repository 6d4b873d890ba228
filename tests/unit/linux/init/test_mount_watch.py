"""Renaming over a mounted path on the host detaches the mount inside: what it protected is open.

Control: without the watch the command then writes what it may not write.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from init_driver import Init, Place, ready_init
from support.processes import processes_below, survivors
from support.users import unprivileged_user

from sandboxd.linux.init_client import messages as wire

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.isolation]
WATCH = wire.SetupFlag.WATCH_MOUNTS
USERS = [False, True] if os.geteuid() == 0 else [False]


@pytest.fixture(params=USERS, ids=["self", "user"][: len(USERS)])
def unprivileged(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def workspace(unprivileged: bool) -> Iterator[Path]:
    """Writable, with a file in it that is not; pytest's own folders are closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="mount watch ", dir="/var/tmp"))
    (folder / "protected").write_text("original\n")
    (folder / "folder").mkdir()
    if unprivileged:
        user = unprivileged_user()
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def place(workspace: Path, unprivileged: bool) -> Place:
    protected = str(workspace / "protected")
    mounts = ("--bind", str(workspace), str(workspace), "--ro-bind", protected, protected)
    return Place(bwrap=True, unprivileged=unprivileged, mounts=mounts)


def replace_protected(workspace: Path) -> None:
    """As an editor or `git config` does it."""
    saved = workspace / "saved"
    saved.write_text("saved\n")
    status = (workspace / "protected").stat()
    os.chown(saved, status.st_uid, status.st_gid)
    saved.rename(workspace / "protected")


def attack(init: Init, workspace: Path) -> bool:
    return init.shell("echo attack > protected", cwd=str(workspace)).wait().code == 0


def test_control_the_attack_works_without_the_watch(place: Place, workspace: Path) -> None:
    with ready_init(place) as init:
        assert not attack(init, workspace)
        replace_protected(workspace)
        assert attack(init, workspace)
    assert (workspace / "protected").read_text() == "attack\n"


def test_a_lost_mount_ends_the_sandbox(place: Place, workspace: Path) -> None:
    script = "echo up; while :; do echo attack > protected; done 2>/dev/null"
    with ready_init(place, flags=WATCH) as init:
        command = init.shell(script, cwd=str(workspace))
        command.started()
        watched = processes_below(init.process.pid)
        assert watched
        replace_protected(workspace)
        assert init.receive() == wire.IsolationLost(str(workspace / "protected"))
        assert init.receive() is None
        assert survivors(watched) == []


def test_an_unmounted_path_may_change_as_it_likes(place: Place, workspace: Path) -> None:
    with ready_init(place, flags=WATCH) as init:
        for number in range(20):
            (workspace / "new").write_text(str(number))
            (workspace / "new").rename(workspace / "other")
        (workspace / "folder").rmdir()
        assert init.exec("true").wait().code == 0


def test_a_command_cannot_trigger_it(place: Place, workspace: Path) -> None:
    """Inside, a mount point is busy."""
    with ready_init(place, flags=WATCH) as init:
        script = "rm -f protected; mv protected x; echo > y; mv y protected; true"
        assert init.shell(script, cwd=str(workspace)).wait().code == 0
        assert init.exec("true").wait().code == 0
        assert (workspace / "protected").read_text() == "original\n"


def mounts_on_host(test: Callable[..., None]) -> Callable[..., None]:
    """Only root can do that, and only where the sandbox is root's."""
    as_root = pytest.mark.parametrize("unprivileged", [False], indirect=True, ids=["self"])
    return pytest.mark.requires("root")(as_root(test))


class BelowSharedMounts(Place):
    """The host is a mount namespace of this test, so that mounting there changes nothing else."""

    def words(self) -> list[str]:
        return ["unshare", "--mount", "--propagation", "shared", "--", *super().words()]


@pytest.fixture
def shared(place: Place) -> Place:
    return BelowSharedMounts(bwrap=True, minimal=True, mounts=place.mounts)


def mount_on_host(init: Init, folder: Path) -> None:
    enter = ["nsenter", "--mount", "--target", str(init.process.pid), "--"]
    subprocess.run([*enter, "mount", "-t", "tmpfs", "none", str(folder)], check=True)


def unmount_on_host(init: Init, folder: Path) -> None:
    enter = ["nsenter", "--mount", "--target", str(init.process.pid), "--"]
    subprocess.run([*enter, "umount", str(folder)], check=True)


@mounts_on_host
def test_a_foreign_mount_ends_the_sandbox(shared: Place, workspace: Path) -> None:
    with ready_init(shared, flags=WATCH) as init:
        init.shell("exec sleep 600").started()
        mount_on_host(init, workspace / "folder")
        assert init.receive() == wire.IsolationLost(str(workspace / "folder"))
        assert init.receive() is None


@mounts_on_host
def test_a_mount_that_is_not_below_a_bind_does_not(
    shared: Place, workspace: Path, tmp_path: Path
) -> None:
    with ready_init(shared, flags=WATCH) as init:
        mount_on_host(init, tmp_path)
        for _ in range(5):
            assert init.exec("true").wait().code == 0


@mounts_on_host
def test_a_mount_that_is_covered_by_ours_does_not(shared: Place, workspace: Path) -> None:
    """Neither its coming nor its going: it cannot be reached from inside."""
    late = workspace / "folder" / "late"
    late.mkdir()
    (workspace / "seen").mkdir()
    mounts = ("--bind", str(workspace), str(workspace), "--tmpfs", str(late.parent))
    below = BelowSharedMounts(bwrap=True, minimal=True, mounts=mounts)
    with ready_init(below, flags=WATCH) as init:
        for _ in range(2):
            mount_on_host(init, late)
            assert init.exec("true").wait().code == 0
            unmount_on_host(init, late)
            assert init.exec("true").wait().code == 0
        mount_on_host(init, workspace / "seen")
        assert init.receive() == wire.IsolationLost(str(workspace / "seen"))
