"""Every mount is verified by identity: before READY, before a command and before its exit.

Renaming over a mount point detaches the mount; renaming the mount point itself takes the mount
along, and the kernel reports neither to an init that has not yet looked. Each test has a control
in which the daemon asks for no verification and the attack works.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from init_driver import BINARY, Command, Init, Place, build_init, ready_init, started_init
from support.users import unprivileged_user

from sandboxd.linux.init_client import messages as wire

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.isolation]
WATCH = wire.SetupFlag.WATCH_MOUNTS
SECRET = "a new secret\n"
WITHOUT = Path(__file__).parents[3] / "support" / "without_syscalls.py"
USERS = [False, True] if os.geteuid() == 0 else [False]


@dataclass(frozen=True, kw_only=True)
class OldKernel(Place):
    """Without listmount and statmount."""

    def words(self) -> list[str]:
        return [sys.executable, str(WITHOUT), "listmount", *super().words()]


@pytest.fixture(params=USERS, ids=["self", "user"][: len(USERS)])
def unprivileged(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def workspace(unprivileged: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mount check ", dir="/var/tmp"))
    (folder / "secret").write_text("secret\n")
    (folder / "folder").mkdir()
    (folder / "empty").write_text("")
    if unprivileged:
        user = unprivileged_user()
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=[Place, OldKernel], ids=["listmount", "mountinfo"])
def place(request: pytest.FixtureRequest, workspace: Path, unprivileged: bool) -> Place:
    """The secret is masked by an empty file, the folder by a file system of the sandbox's own."""
    mounts = ("--bind", str(workspace), str(workspace),
              "--ro-bind", str(workspace / "empty"), str(workspace / "secret"),
              "--tmpfs", str(workspace / "folder"))  # fmt: skip
    made: Place = request.param(bwrap=True, unprivileged=unprivileged, mounts=mounts)
    return made


def checks(workspace: Path) -> list[wire.Check]:
    empty = (workspace / "empty").stat()
    return [
        wire.Check(path=str(workspace / "secret"), device=empty.st_dev, inode=empty.st_ino),
        wire.Check(path=str(workspace / "folder"), device=0, inode=0),
    ]


def save_by_rename(workspace: Path) -> Path:
    """As most programs save: the mount is detached."""
    saved = _written(workspace / "saved")
    return saved.rename(workspace / "secret")


def save_with_backup(workspace: Path) -> Path:
    """As emacs and vim save: the mount goes with the old name, and there is no event."""
    (workspace / "secret").rename(workspace / "secret~")
    return _written(workspace / "secret")


def exchange_folder(workspace: Path) -> Path:
    (workspace / "folder").rename(workspace / "old")
    (workspace / "folder").mkdir(mode=0o755)
    return _written(workspace / "folder" / "key")


def _written(path: Path) -> Path:
    path.write_text(SECRET)
    path.chmod(0o644)
    return path


Save = Callable[[Path], Path]
SILENT = [save_with_backup, exchange_folder]
SAVES = [save_by_rename, *SILENT]


def reads(init: Init, path: Path) -> bool:
    return init.exec("cat", str(path)).wait().stdout.decode() == SECRET


@pytest.mark.parametrize("save", SAVES)
def test_a_mount_that_is_lost_before_the_setup_is_found(
    place: Place, workspace: Path, save: Save
) -> None:
    planned = checks(workspace)
    with started_init(place) as init:
        wait_for_init(init)
        path = save(workspace)
        answer = init.setup(flags=WATCH, checks=planned)
        assert isinstance(answer, wire.SetupFailed), answer
        found = path.parent if path.name == "key" else path
        assert answer == wire.SetupFailed(wire.SetupStage.CHECK, errno.ESTALE, str(found))


@pytest.mark.parametrize("save", SAVES)
def test_control_without_checks_it_is_not(place: Place, workspace: Path, save: Save) -> None:
    with started_init(place) as init:
        wait_for_init(init)
        path = save(workspace)
        assert isinstance(init.setup(flags=WATCH), wire.Ready)
        assert reads(init, path)


@pytest.mark.parametrize("save", SILENT)
def test_a_mount_that_is_lost_while_the_sandbox_waits_ends_it_before_a_command(
    place: Place, workspace: Path, save: Save
) -> None:
    with ready_init(place, flags=WATCH, checks=checks(workspace)) as init:
        path = save(workspace)
        command = init.exec("cat", str(path))
        lost = init.receive()
        assert isinstance(lost, wire.IsolationLost)
        assert str(path).startswith(lost.what)
        assert command.wait().messages == []
        assert command.ended().stdout == b""


@pytest.mark.parametrize("save", SAVES)
def test_a_mount_that_is_lost_under_a_command_leaves_no_exit(
    place: Place, workspace: Path, save: Save
) -> None:
    with ready_init(place, flags=WATCH, checks=checks(workspace)) as init:
        command = init.exec("cat")
        command.started()
        save(workspace)
        command.close_stdin()
        ended = command.wait()
        assert "ExitedMessage" not in ended.kinds
        assert isinstance(init.receive(), wire.IsolationLost)


@pytest.mark.parametrize("save", SILENT)
def test_a_command_that_does_not_end_is_ended(place: Place, workspace: Path, save: Save) -> None:
    with ready_init(place, flags=WATCH, checks=checks(workspace)) as init:
        init.exec("sleep", "600").started()
        save(workspace)
        assert isinstance(init.receive(), wire.IsolationLost)


@pytest.mark.parametrize("save", SILENT)
def test_control_the_kernel_reports_no_event_for_these(
    place: Place, workspace: Path, save: Save
) -> None:
    if isinstance(place, OldKernel):  # there the whole mount table is compared for each command
        place = Place(bwrap=True, unprivileged=place.unprivileged, mounts=place.mounts)
    with ready_init(place, flags=WATCH) as init:
        assert reads(init, save(workspace))


def test_a_reaper_that_is_killed_does_not_hide_it(place: Place, workspace: Path) -> None:
    """The init reports in the place of a reaper that the command killed."""
    with ready_init(place, flags=WATCH, checks=checks(workspace)) as init:
        command = init.shell("kill -9 $PPID; cat")
        command.started()
        save_with_backup(workspace)
        command.close_stdin()
        assert "ExitedMessage" not in command.wait().kinds
        assert isinstance(init.receive(), wire.IsolationLost)


def test_what_commands_do_is_no_loss(place: Place, workspace: Path) -> None:
    with ready_init(place, flags=WATCH, checks=checks(workspace)) as init:
        script = "echo > new; mv new other; mv secret x; true"
        for _ in range(3):
            assert init.shell(script, cwd=str(workspace)).wait().code == 0


def test_masks_whose_folder_is_renamed_end_the_sandbox(workspace: Path, unprivileged: bool) -> None:
    """They go with the folder, and the names lead to files that no mount covers."""
    inner = workspace / "inner"
    inner.mkdir(mode=0o755)
    names = [inner / name for name in ("one", "two", "three")]
    for path in names:
        path.write_text("masked\n")
    binds = [word for path in names for word in ("--ro-bind", str(workspace / "empty"), str(path))]
    place = Place(
        bwrap=True, unprivileged=unprivileged,
        mounts=("--bind", str(workspace), str(workspace), *binds),
    )  # fmt: skip
    planned = [wire.Check(path=str(path), device=0, inode=0) for path in names]
    with ready_init(place, flags=WATCH, checks=planned) as init:
        assert init.exec("true").wait().code == 0
        inner.rename(workspace / "old")
        inner.mkdir(mode=0o755)
        _written(names[2])
        command = init.exec("cat", str(names[2]))
        lost = init.receive()
        assert isinstance(lost, wire.IsolationLost)
        assert lost.what == str(names[0])
        assert command.ended().stdout == b""


def test_a_folder_that_is_closed_on_the_way_is_no_loss(place: Place, workspace: Path) -> None:
    """The command closes the folder to itself; the mount table still tells."""
    with ready_init(place, flags=WATCH, checks=checks(workspace)) as init:
        assert init.shell(f"chmod 0 '{workspace}'").wait().code == 0
        assert init.exec("true").wait().code == 0
        workspace.chmod(0o755)


@pytest.fixture(scope="module", params=["", "-DATTRIBUTE_MOUNT_ROOT=0"], ids=["", "before-5.8"])
def binary(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The init, and one that asks the kernel for nothing that came with Linux 5.8."""
    if not request.param:
        return BINARY
    made = tmp_path_factory.mktemp("init") / "sandboxd-init"
    made.parent.chmod(0o755)
    build_init(made, f"DEFINES={request.param}")
    return made


@pytest.fixture(params=[Place, OldKernel], ids=["listmount", "mountinfo"])
def closed(request: pytest.FixtureRequest, workspace: Path, unprivileged: bool) -> Place:
    """The masks lie in a folder that the command's user may not search, but owns."""
    folder = workspace / "closed"
    folder.mkdir()
    (folder / "folder").mkdir()
    _written(folder / "secret")
    if unprivileged:
        user = unprivileged_user()
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
    folder.chmod(0)
    mounts = ("--bind", str(workspace), str(workspace),
              "--ro-bind", str(workspace / "empty"), str(folder / "secret"),
              "--tmpfs", str(folder / "folder"))  # fmt: skip
    made: Place = request.param(bwrap=True, unprivileged=unprivileged, mounts=mounts)
    return made


def checks_in_closed(workspace: Path) -> list[wire.Check]:
    empty = (workspace / "empty").stat()
    folder = workspace / "closed"
    return [
        wire.Check(path=str(folder / "secret"), device=empty.st_dev, inode=empty.st_ino),
        wire.Check(path=str(folder / "folder"), device=0, inode=0),
    ]


def opens(init: Init, folder: Path) -> Command:
    """A command that opens the folder, shows what is in it, and waits."""
    script = f"chmod 755 '{folder}'; cat '{folder}/secret'; ls '{folder}/folder'; cat"
    command = init.shell(script)
    command.started()
    for _ in range(3000):
        if folder.stat().st_mode & 0o777 == 0o755:
            return command
        time.sleep(0.01)
    raise AssertionError("the folder was not opened")


@pytest.mark.parametrize("save", SAVES)
def test_a_mount_in_a_closed_folder_is_verified_once_the_folder_is_open(
    closed: Place, workspace: Path, binary: Path, save: Save
) -> None:
    folder = workspace / "closed"
    with started_init(closed, binary) as init:
        ready = init.setup(flags=WATCH, checks=checks_in_closed(workspace))
        assert isinstance(ready, wire.Ready), ready
        command = opens(init, folder)
        save(folder)
        command.close_stdin()
        assert "ExitedMessage" not in command.wait().kinds
        assert isinstance(init.receive(), wire.IsolationLost)


def test_a_closed_folder_that_is_opened_is_no_loss(
    closed: Place, workspace: Path, binary: Path
) -> None:
    with started_init(closed, binary) as init:
        ready = init.setup(flags=WATCH, checks=checks_in_closed(workspace))
        assert isinstance(ready, wire.Ready), ready
        ended = opens(init, workspace / "closed").wait()
        assert (ended.code, ended.stdout) == (0, b"")
        script = f"chmod 0 '{workspace}/closed'"
        assert init.shell(script).wait().code == 0
        assert opens(init, workspace / "closed").wait().code == 0


@pytest.mark.parametrize("save", SAVES)
def test_a_mount_in_a_closed_folder_that_is_lost_before_the_setup_is_found(
    closed: Place, workspace: Path, binary: Path, save: Save
) -> None:
    folder = workspace / "closed"
    planned = checks_in_closed(workspace)
    with started_init(closed, binary) as init:
        wait_for_init(init)
        folder.chmod(0o755)
        save(folder)
        folder.chmod(0)
        answer = init.setup(flags=WATCH, checks=planned)
        assert isinstance(answer, wire.SetupFailed), answer
        assert (answer.stage, answer.errno) == (wire.SetupStage.CHECK, errno.EACCES)
        folder.chmod(0o755)


def test_another_inode_in_a_closed_folder_is_found_once_it_is_open(
    closed: Place, workspace: Path, binary: Path
) -> None:
    """What could not be compared at the set-up is compared then."""
    secret, folder = checks_in_closed(workspace)
    wrong = wire.Check(path=secret.path, device=secret.device, inode=secret.inode + 1)
    with started_init(closed, binary) as init:
        assert isinstance(init.setup(flags=WATCH, checks=[wrong, folder]), wire.Ready)
        assert "ExitedMessage" not in opens(init, workspace / "closed").wait().kinds
        assert isinstance(init.receive(), wire.IsolationLost)


def link_again(workspace: Path) -> Path:
    """The same inode under the same name, without the mount that protected it."""
    config = workspace / "empty"
    os.link(config, workspace / "other")
    config.unlink()
    (workspace / "other").rename(config)
    return config


@pytest.mark.parametrize("lose", [link_again, exchange_folder, save_by_rename])
def test_a_lost_mount_is_found_whatever_the_kernel_tells(
    workspace: Path, unprivileged: bool, binary: Path, lose: Save
) -> None:
    """A protected file is bound onto itself, so its inode says nothing."""
    config = workspace / "empty"
    mounts = ("--bind", str(workspace), str(workspace), "--ro-bind", str(config), str(config),
              "--ro-bind", str(config), str(workspace / "secret"),
              "--tmpfs", str(workspace / "folder"))  # fmt: skip
    place = OldKernel(bwrap=True, unprivileged=unprivileged, mounts=mounts)
    found = config.stat()
    own = wire.Check(path=str(config), device=found.st_dev, inode=found.st_ino)
    planned = [*checks(workspace), own]
    with started_init(place, binary) as init:
        assert isinstance(init.setup(flags=WATCH, checks=planned), wire.Ready)  # the control
    with started_init(place, binary) as init:
        wait_for_init(init)
        lose(workspace)
        answer = init.setup(flags=WATCH, checks=planned)
        assert isinstance(answer, wire.SetupFailed), answer
        assert answer.stage is wire.SetupStage.CHECK


def wait_for_init(init: Init) -> None:
    """Until bwrap has mounted everything and executed the init, which changes its name."""
    for _ in range(3000):
        if "sandboxd-init" in map(_name, _tree(init.process.pid)):
            return
        time.sleep(0.01)
    raise AssertionError("the init was not executed")


def _tree(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(found for child in listed for found in _tree(int(child)))]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
