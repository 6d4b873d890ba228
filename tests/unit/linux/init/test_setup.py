"""SETUP: an init says READY only in the sandbox that was meant, and restricted."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from init_driver import BINARY, Init, Place, ready_init, started_init

from sandboxd.linux.init_client import codec
from sandboxd.linux.init_client import messages as wire

READ_FILE, WRITE_FILE, MAKE_REG = 1 << 2, 1 << 1, 1 << 8
CREATE_RULESET, ADD_RULE = 444, 445


class PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32))


@contextmanager
def ruleset(handled: int, *allowed: Path) -> Iterator[int]:
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = ctypes.c_uint64(handled)
    fd = libc.syscall(CREATE_RULESET, ctypes.byref(attributes), 8, 0)
    assert fd >= 0
    for path in allowed:
        folder = os.open(path, os.O_PATH)
        beneath = PathBeneath(handled, folder)
        assert libc.syscall(ADD_RULE, fd, 1, ctypes.byref(beneath), 0) == 0
        os.close(folder)
    yield fd
    os.close(fd)


def check(path: str, **wrong: int) -> wire.Check:
    status = os.stat(path, follow_symlinks=False)
    values = {"device": status.st_dev, "inode": status.st_ino, **wrong}
    return wire.Check(path=path, **values)


def refused(place: Place, *fds: int, **fields: object) -> wire.SetupFailed:
    with started_init(place) as init:
        answer = init.setup(*fds, **fields)
        assert isinstance(answer, wire.SetupFailed), answer
        assert init.receive() is None
        assert init.process.wait(30) == 1
        return answer


def test_ready_names_the_pid(place: Place) -> None:
    with started_init(place) as init:
        answer = init.setup()
        assert answer == wire.Ready(1 if place.bwrap else init.process.pid)


def test_descriptor_3_is_the_control_socket_without_an_argument() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open(BINARY, "rb") as executable:
        fds = (theirs.fileno(), executable.fileno())
        script = f"exec 3<&{fds[0]} 4<&{fds[1]}; exec /proc/self/fd/4"
        process = subprocess.Popen(["bash", "-c", script], pass_fds=fds)
        theirs.close()
        ours.settimeout(30)
        ours.send(codec.encode(wire.Setup()).message)
        assert codec.decode_control(ours.recv(4096)) == wire.Ready(process.pid)
        ours.close()
        assert process.wait(30) == 0


@pytest.mark.parametrize("script", ["exec 3<&-", "exec 3</dev/null", "exec 3>&1"])
def test_without_a_control_socket_it_ends_at_once(script: str) -> None:
    """Nothing could ever tell it to end."""
    command = ["bash", "-c", f"{script}; exec {BINARY}"]
    assert subprocess.run(command, timeout=30, check=False).returncode == 1


def test_pid_1_is_demanded_and_given(place: Place) -> None:
    flags = wire.SetupFlag.REQUIRE_PID1
    if place.bwrap:
        with ready_init(place, flags=flags):
            return
    assert refused(place, flags=flags).stage == wire.SetupStage.PID1


def test_inodes_that_are_as_expected_pass(place: Place) -> None:
    with ready_init(place, checks=[check("/usr"), check("/usr/bin/env"), check("/etc")]):
        pass


@pytest.mark.parametrize("wrong", [{"inode": 1}, {"device": 1}], ids=["inode", "device"])
def test_another_inode_is_refused(place: Place, wrong: dict[str, int]) -> None:
    failed = refused(place, checks=[check("/usr"), check("/usr/bin", **wrong)])
    assert failed == wire.SetupFailed(wire.SetupStage.CHECK, errno.ESTALE, "/usr/bin")


def test_a_missing_path_is_refused() -> None:
    failed = refused(Place(), checks=[wire.Check(path="/no/such", device=1, inode=1)])
    assert failed == wire.SetupFailed(wire.SetupStage.CHECK, errno.ENOENT, "/no/such")


def test_a_symlink_is_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/usr")
    usr = check("/usr")
    swapped = wire.Check(path=str(link), device=usr.device, inode=usr.inode)
    assert refused(Place(), checks=[swapped]).stage == wire.SetupStage.CHECK
    with ready_init(Place(), checks=[check(str(link))]):
        pass


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    """One that a ruleset allows, one that it does not. Not in /tmp, which has a rule inside."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        allowed, closed = Path(name) / "allowed", Path(name) / "closed"
        allowed.mkdir()
        closed.mkdir()
        yield allowed, closed


def writes(init: Init, path: Path) -> bool:
    return init.shell(f"echo > {path}/file").wait().code == 0


@pytest.mark.requires("landlock")
def test_the_ruleset_holds_and_rules_are_added_inside(folders: tuple[Path, Path]) -> None:
    """Only the rule of the init can allow a /tmp that exists nowhere else."""
    allowed, closed = folders
    place = Place(bwrap=True, mounts=("--bind", str(allowed.parent), str(allowed.parent)))
    handled = WRITE_FILE | MAKE_REG
    rules = [
        wire.LandlockRule(path="/dev/null", access=handled),
        wire.LandlockRule(path="/no/such/path", access=handled),
        wire.LandlockRule(path="/tmp", access=handled),
    ]
    with ruleset(handled, allowed) as fd, started_init(place) as init:
        ready = init.setup(fd, flags=wire.SetupFlag.HAS_RULESET, rules=rules)
        assert isinstance(ready, wire.Ready), ready
        assert init.shell("echo > /tmp/file && echo > /dev/null").wait().code == 0
        assert writes(init, allowed)
        assert not writes(init, closed)
    with ready_init(place) as unrestricted:
        assert writes(unrestricted, closed)


@pytest.mark.requires("landlock", "bubblewrap")
def test_a_rule_of_a_path_that_cannot_be_reached_is_left_out(folders: tuple[Path, Path]) -> None:
    """Less is allowed then, never more, also when the command opens the folder. Every other error
    of a rule is a failure."""
    allowed, closed = folders
    (closed / "inner").mkdir()
    closed.chmod(0)
    place = Place(bwrap=True, mounts=("--bind", str(allowed.parent), str(allowed.parent)))
    handled = WRITE_FILE | MAKE_REG
    rules = [
        wire.LandlockRule(path="/dev/null", access=handled),
        wire.LandlockRule(path=str(closed / "inner"), access=handled),
    ]
    with ruleset(handled, allowed) as fd, started_init(place) as init:
        ready = init.setup(fd, flags=wire.SetupFlag.HAS_RULESET, rules=rules)
        assert isinstance(ready, wire.Ready), ready
        assert init.shell(f"chmod 755 {closed}").wait().code == 0
        assert writes(init, allowed)
        assert not writes(init, closed / "inner")
    through_a_file = [wire.LandlockRule(path="/dev/null/x", access=handled)]
    with ruleset(handled, allowed) as fd:
        failed = refused(place, fd, flags=wire.SetupFlag.HAS_RULESET, rules=through_a_file)
    assert failed == wire.SetupFailed(wire.SetupStage.RULE, errno.ENOTDIR, "/dev/null/x")


@pytest.mark.requires("landlock")
def test_the_ruleset_holds_without_a_namespace(folders: tuple[Path, Path]) -> None:
    allowed, closed = folders
    with ruleset(WRITE_FILE | MAKE_REG, allowed) as fd, started_init(Place()) as init:
        init.setup(fd, flags=wire.SetupFlag.HAS_RULESET)
        assert writes(init, allowed)
        assert not writes(init, closed)
    with ready_init(Place()) as unrestricted:
        assert writes(unrestricted, closed)


@pytest.mark.requires("landlock")
def test_a_ruleset_that_closes_proc_is_refused(place: Place) -> None:
    """Without /proc no tree can be killed."""
    flags = wire.SetupFlag.HAS_RULESET
    with ruleset(READ_FILE, Path("/usr")) as fd:
        failed = refused(place, fd, flags=flags)
    assert failed == wire.SetupFailed(wire.SetupStage.PROC, errno.EACCES, "/proc")


def test_what_is_no_ruleset_is_refused() -> None:
    with open("/dev/null") as null:
        failed = refused(Place(), null.fileno(), flags=wire.SetupFlag.HAS_RULESET)
    assert failed.stage == wire.SetupStage.LANDLOCK


@pytest.mark.requires("bubblewrap")
def test_the_proc_of_another_namespace_is_refused() -> None:
    place = Place(bwrap=True, mounts=("--ro-bind", "/proc", "/proc"))
    assert refused(place).stage == wire.SetupStage.PROC
