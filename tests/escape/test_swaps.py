"""Paths that are swapped between the daemon's check and the mount.

The daemon's ceiling allows one folder. A program on the host exchanges an allowed path in it with a
symlink to the outside, over and over: a request is refused, or it gets what was checked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.attacks import Box, Victim, freely, python, verdict, weakest
from support.backends import running_backend
from support.rpc import RpcError

pytestmark = pytest.mark.isolation

READ = python("worked() if open(args[0]).read() == args[1] else blocked('other content')")
WRITE = python("open(args[0], 'w').write('changed'); worked()")
TRIES = 16
REFUSALS = {"PathDenied", "CeilingExceeded", "SandboxUnavailable"}

# Exchanges two names until its stdin ends.
SWAPPER = """
import ctypes, os, random, select, sys
libc = ctypes.CDLL(None)
a, b = map(os.fsencode, sys.argv[1:])
print(flush=True)
while not select.select([0], [], [], random.random() / 200)[0]:
    libc.renameat2(-100, a, -100, b, 2)
"""


# Saves a file as editors do, in turn by a rename over it and with a backup, until its stdin ends.
SAVER = """
import os, random, select, sys
path, spare, backup, text = sys.argv[1:]
def write(name):
    with open(name, "w") as file:
        file.write(text)
turn = 0
print(flush=True)
while not select.select([0], [], [], random.random() / 500)[0]:
    turn += 1
    if turn % 2:
        write(spare)
    else:
        os.rename(path, backup)
        write(spare)
    os.rename(spare, path)
"""


@contextmanager
def swapping(a: Path, b: Path) -> Iterator[None]:
    """A program on the host exchanges `a` and `b` all the time."""
    with host_program(SWAPPER, a, b):
        yield


@contextmanager
def host_program(code: str, *args: object) -> Iterator[None]:
    """Runs on the host meanwhile; ends when its stdin does."""
    command = [sys.executable, "-I", "-S", "-c", code, *map(str, args)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        try:
            yield
        finally:
            swapper.communicate()


@dataclass
class Place:
    """`allowed` may be asked for, `link` leads outside, where `victim` is."""

    box: Box
    allowed: Path
    link: Path
    victim: Victim


@pytest.fixture(scope="module")
def roofed(
    linux_backend: Box, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Box, Path]]:
    """A daemon that allows one folder, and that folder."""
    root = tmp_path_factory.mktemp("root").resolve()
    config = f'[ceiling]\nroots = ["{root}"]\n'
    with running_backend(linux_backend.backend, config=config) as daemon:
        box = Box(linux_backend.backend, daemon)
        yield box, root
        box.close()


@pytest.fixture
def place(roofed: tuple[Box, Path], outside: Path, tmp_path: Path) -> Place:
    box, root = roofed
    own = root / tmp_path.name
    (own / "allowed" / "inner").mkdir(parents=True)
    (outside / "inner").mkdir()
    (own / "link").symlink_to(outside)
    for folder in (own / "allowed", own / "allowed" / "inner"):
        (folder / "victim").write_text("nothing special\n")
    return Place(box, own / "allowed", own / "link", Victim(outside / "victim"))


def tries(place: Place, program: tuple[str, ...], *args: object, **params: object) -> Counter[str]:
    """How often it worked, was blocked, refused or ended."""
    seen: Counter[str] = Counter()
    for _ in range(TRIES):
        try:
            ran = place.box.run(*program, *map(str, args), **params)
        except RpcError as refusal:
            if refusal.kind not in REFUSALS:
                raise
            seen["refused"] += 1
        else:
            # A mount whose folder was renamed may end the command.
            lost = ran.outcome == "isolation_lost"
            seen["lost" if lost else "worked" if verdict(ran).worked else "blocked"] += 1
    return seen


@pytest.mark.requires("bubblewrap")
def test_control_a_name_that_was_checked_shows_another_place(place: Place) -> None:
    """The technique itself: a name is checked, swapped, and then bound by bwrap."""
    assert os.path.realpath(place.allowed) == str(place.allowed)
    os.rename(place.allowed, place.allowed.parent / "kept")
    os.rename(place.link, place.allowed)
    mounts = ["--ro-bind", "/", "/", "--tmpfs", "/tmp", "--bind"]
    bound = ("bwrap", *mounts, str(place.allowed), str(place.allowed))
    assert freely((*bound, *READ), place.allowed / "victim", Victim.ORIGINAL).worked


@pytest.mark.parametrize("field", ["fs_read_allow", "fs_write_allow"])
def test_swapped_folder_does_not_show_another_place(place: Place, field: str) -> None:
    """An allowed folder becomes a symlink to the outside after it was checked."""
    manifest = weakest() | {field: [str(place.allowed)]}
    with swapping(place.allowed, place.link):
        seen = tries(place, READ, place.allowed / "victim", Victim.ORIGINAL, manifest=manifest)
    assert not seen["worked"], seen


def test_swapped_folder_does_not_lead_writes_outside(place: Place) -> None:
    """The same, and write there."""
    with swapping(place.allowed, place.link):
        tries(place, WRITE, place.allowed / "victim", manifest=weakest(place.allowed))
    assert place.victim.untouched


def test_swapped_parent_does_not_show_another_place(place: Place) -> None:
    """Not the allowed folder itself but the one above it is swapped."""
    Victim(place.victim.path.parent / "inner" / "victim")
    inner = place.allowed / "inner"
    with swapping(place.allowed, place.link):
        manifest = weakest(fs_read_allow=[str(inner)])
        seen = tries(place, READ, inner / "victim", Victim.ORIGINAL, manifest=manifest)
    assert not seen["worked"], seen


def test_swapped_file_does_not_show_another_one(place: Place) -> None:
    """An allowed file becomes a symlink to a file outside."""
    file, link = place.allowed / "victim", place.allowed / "link"
    link.symlink_to(place.victim.path)
    with swapping(file, link):
        manifest = weakest(fs_read_allow=[str(file)])
        seen = tries(place, READ, file, Victim.ORIGINAL, manifest=manifest)
    assert not seen["worked"], seen


def test_swapped_working_directory_does_not_lead_outside(place: Place) -> None:
    """The working directory is swapped; the command reads a relative path there."""
    manifest = weakest(fs_read_allow=[str(place.allowed.parent)])
    with swapping(place.allowed, place.link):
        params = {"cwd": str(place.allowed), "manifest": manifest}
        seen = tries(place, READ, "victim", Victim.ORIGINAL, **params)
    assert not seen["worked"], seen


def test_folder_replaced_by_another_is_not_served_from_a_warm_sandbox(place: Place) -> None:
    """A sandbox was made ready for a folder; the name now leads to another folder."""
    manifest = weakest(fs_read_allow=[str(place.allowed)])
    path = place.allowed / "victim"
    for _ in range(3):
        assert place.box.run("cat", str(path), manifest=manifest).stdout == "nothing special\n"
    place.allowed.rename(place.allowed.parent / "old")
    place.allowed.mkdir()
    path.write_text("the new one\n")
    assert place.box.run("cat", str(path), manifest=manifest).stdout == "the new one\n"


SAVED_TRIES, SAVED_SANDBOXES = 12, 6


@dataclass
class Saved:
    """`secret` lies in the allowed `folder` and is denied; a saver keeps its files in `away`."""

    folder: Path
    secret: Path
    away: Path

    def manifest(self) -> dict[str, object]:
        return weakest(fs_read_allow=[str(self.folder)], fs_deny=[str(self.secret)])

    def saving(self) -> AbstractContextManager[None]:
        away = self.away
        return host_program(SAVER, self.secret, away / "spare", away / "backup", Victim.ORIGINAL)


@pytest.fixture(params=["elsewhere", "beside it"])
def saved(workspace: Path, outside: Path, request: pytest.FixtureRequest) -> Saved:
    Victim(workspace / "secret")
    away = outside if request.param == "elsewhere" else workspace
    return Saved(workspace, workspace / "secret", away)


@pytest.fixture(scope="module", params=["warm", "cold"])
def made(linux_backend: Box, request: pytest.FixtureRequest) -> Iterator[Box]:
    """A daemon that keeps sandboxes ready, or one that makes each when it is asked for."""
    config = "" if request.param == "warm" else "[pool]\nenabled = false\n"
    with running_backend(linux_backend.backend, config=config) as daemon:
        box = Box(linux_backend.backend, daemon)
        yield box
        box.close()


@pytest.mark.requires("bubblewrap")
def test_control_a_masked_file_that_is_saved_by_rename_is_unmasked(saved: Saved) -> None:
    mounts = ["--ro-bind", "/", "/", "--tmpfs", "/tmp", "--ro-bind", "/dev/null"]
    folder = ["--ro-bind", str(saved.folder), str(saved.folder)]
    command = ["bwrap", *mounts[:5], *folder, *mounts[5:], str(saved.secret)]
    script = f"echo; read line; cat '{saved.secret}'"
    with subprocess.Popen(
        [*command, "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as inside:
        assert inside.stdout is not None
        inside.stdout.readline()
        (saved.away / "spare").write_text(Victim.ORIGINAL)
        (saved.away / "spare").rename(saved.secret)
        assert inside.communicate("\n")[0] == Victim.ORIGINAL


def test_masked_file_that_the_host_saves_while_sandboxes_are_made_stays_masked(
    made: Box, saved: Saved
) -> None:
    seen: Counter[str] = Counter()
    with saved.saving():
        for _ in range(SAVED_TRIES):
            seen[outcome_of(made, saved)] += 1
    assert not seen["worked"], seen
    # What was made meanwhile holds no hole for later.
    for _ in range(8):
        assert outcome_of(made, saved) != "worked"
    assert outcome_of(made, saved) == "blocked"


def test_masked_file_that_the_host_saves_stays_masked_in_persistent_sandboxes(
    made: Box, saved: Saved
) -> None:
    seen: Counter[str] = Counter()
    with saved.saving():
        for _ in range(SAVED_SANDBOXES):
            try:
                sandbox = made.connection.call("sandbox/create", {"manifest": saved.manifest()})
            except RpcError as refusal:
                if refusal.kind not in REFUSALS:
                    raise
                seen["refused"] += 1
                continue
            for _ in range(4):
                seen[outcome_of(made, saved, sandbox=sandbox["sandbox"])] += 1
    assert not seen["worked"], seen


def outcome_of(box: Box, saved: Saved, **params: object) -> str:
    if not params:
        params = {"manifest": saved.manifest()}
    try:
        ran = box.run(*READ, str(saved.secret), Victim.ORIGINAL, **params)
    except RpcError as refusal:
        if refusal.kind not in {*REFUSALS, "NotFound"}:
            raise
        return "refused"
    if ran.outcome == "isolation_lost":
        return "lost"
    return "worked" if verdict(ran).worked else "blocked"
