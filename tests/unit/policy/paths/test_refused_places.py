"""Which folders a request may name at all, as the workspace and in a manifest."""

from __future__ import annotations

import os
import pwd
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.policy.paths.refused_places import is_sealed, refuse_place
from sandboxd.policy.plan import Plan
from sandboxd.policy.request import Machine
from sandboxd_proto.errors import PathDenied

MakePlan = Callable[..., Plan]
SYSTEM = [
    "/", "/sys", "/sys/kernel", "/etc", "/etc/ssl", "/usr", "/usr/bin", "/usr/local", "/usr/lib",
    "/boot", "/var", "/var/lib", "/var/log", "/var/spool", "/home", "/opt", "/srv", "/mnt",
    "/media", "/run", "/bin", "/sbin", "/lib", "/proc", "/proc/sys", "/dev", "/dev/shm",
]  # fmt: skip
HERE = [path for path in SYSTEM if os.path.isdir(path)]


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("path", HERE)
def test_no_folder_of_the_system_is_writable(
    path: str, uid: int, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    machine = machine_with(uid=uid)
    with pytest.raises(PathDenied) as refused:
        plan(preset="workspace-write", workspace=path, machine=machine)
    assert refused.value.field == "workspace"
    with pytest.raises(PathDenied) as refused:
        plan(fs_write_allow=[path], machine=machine)
    assert refused.value.field == "fs_write_allow[0]"


@pytest.mark.parametrize("preset", ["workspace-write", "read-only", None])
@pytest.mark.parametrize("path", ["/sys", "/proc", "/proc/self", "/dev"])
def test_files_of_the_kernel_are_no_workspace_in_any_preset(
    path: str, preset: str | None, plan: MakePlan, machine_with: Callable[..., Machine]
) -> None:
    with pytest.raises(PathDenied):
        plan(preset=preset, workspace=path, machine=machine_with(uid=0))


def test_folders_of_the_system_may_be_read(plan: MakePlan) -> None:
    for path in set(HERE) - {"/proc", "/proc/sys", "/dev", "/dev/shm"}:
        assert plan(fs_read_allow=[path]).sandbox.paths("read")


def refused(path: str, uid: int, home: str) -> bool:
    try:
        refuse_place(path, "write", "workspace", uid=uid, home=home)
    except PathDenied:
        return True
    return False


@pytest.mark.requires("root")
def test_the_home_of_another_user_is_no_workspace_of_roots(home: Path) -> None:
    other = next(u for u in pwd.getpwall() if u.pw_uid >= 1000 and os.path.isdir(u.pw_dir))
    assert refused(os.path.realpath(other.pw_dir), 0, str(home))
    assert not refused(str(home), 0, str(home))


@pytest.mark.requires("root")
def test_state_of_the_system_is_roots_and_that_of_services_theirs(tmp_path: Path) -> None:
    assert refused("/var/lib/dpkg", 0, "/root")
    assert refused("/var/lib/misc", 0, "/root")
    assert not refused("/var/tmp", 0, "/root")
    with tempfile.TemporaryDirectory(dir="/run", prefix="sandboxd-test-") as state:
        assert refused(state, 0, "/root")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{state}/socket")
            assert not refused(f"{state}/socket", 0, "/root")
        os.chown(state, 1234, 1234)
        assert not refused(state, 0, "/root")


def test_projects_in_images_of_containers_may_be_written(home: Path) -> None:
    for path in ("/usr/src/app", "/usr/local/src/app", "/opt/app", "/srv/app", "/workspace"):
        assert not refused(path, 1000, str(home))
    assert refused("/usr/src", 1000, str(home))


def test_a_folder_is_sealed_only_where_no_request_can_write() -> None:
    for folder in ("/", "/usr", "/usr/lib", "/var", "/home", "/etc/ssl"):
        assert is_sealed(folder)
    for folder in ("/usr/src/app", "/tmp", "/home/me", "/root", "/opt/app", "/var/tmp"):
        assert not is_sealed(folder)
