"""Removing what is deep, closed or hostile, and collecting what dead daemons left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import ROOT, running_daemon, scrubbed_env
from support.rpc import PATIENCE_S

from sandboxd.config import loading
from sandboxd.linux import leftovers
from sandboxd.linux.removal import remove_tree
from sandboxd.linux.rootfs import private_folder
from sandboxd.linux.rootfs.state import StateFolder
from sandboxd.policy.mounts import cache_notes, caches
from sandboxd.policy.plan import Grant, NetworkRule, SandboxSpec
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd.types import PathChanged
from sandboxd.workspace_guard.guard import Guard
from sandboxd_proto import cache_locks

DEPTH = 3000


def deep(at: Path, depth: int = DEPTH) -> None:
    """A chain of folders, each with a file in it, made by descriptor: its path is too long."""
    at.mkdir()
    fd = os.open(at, os.O_RDONLY)
    for _ in range(depth):
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def test_a_deep_tree_goes_with_few_descriptors(tmp_path: Path) -> None:
    """The control: before 3.13 the standard library recurses, and gives up."""
    deep(tmp_path / "tree")
    if sys.version_info < (3, 13):
        with pytest.raises((RecursionError, OSError)):
            shutil.rmtree(tmp_path / "tree")
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16));"
        "from sandboxd.linux.removal import remove_tree; sys.exit(not remove_tree(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "tree")], cwd=ROOT, check=False
    )
    assert done.returncode == 0
    assert not (tmp_path / "tree").exists()


def test_a_wide_tree_goes(tmp_path: Path) -> None:
    for number in range(50):
        folder = tmp_path / "tree" / f"d{number}"
        folder.mkdir(parents=True)
        for name in range(60):
            (folder / f"f{name}").touch()
    (tmp_path / "tree" / "0.moved").mkdir()  # a name that removal itself would use
    (tmp_path / "tree" / "0.moved" / "x").touch()
    assert remove_tree(str(tmp_path / "tree"))
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_closed_go_too(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "b" / "f").touch()
    for folder in ("tree/a/b", "tree/a", "tree"):
        (tmp_path / folder).chmod(0)
    assert remove_tree(str(tmp_path / "tree"))


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (tmp_path / "tree" / "in").mkdir(parents=True)
    for place in (tmp_path / "tree" / "link", tmp_path / "tree" / "in" / "link"):
        place.symlink_to(outside)
    assert remove_tree(str(tmp_path / "tree"))
    assert (outside / "kept").exists()
    (tmp_path / "link").symlink_to(outside)
    assert remove_tree(str(tmp_path / "link"))
    assert (outside / "kept").exists()


def test_fifos_sockets_and_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "fifo")
    assert remove_tree(str(tmp_path / "tree"))
    assert remove_tree(str(tmp_path / "tree"))
    assert remove_tree(str(tmp_path / "no" / "such"))


@pytest.mark.requires("root")
@pytest.mark.isolation
def test_what_is_mounted_in_it_stays(tmp_path: Path) -> None:
    script = """
        mkdir -p $1/tree/mounted $1/outside; touch $1/outside/kept
        mount --bind $1/outside $1/tree/mounted
        "$2" -c 'import sys; from sandboxd.linux.removal import remove_tree
        sys.exit(remove_tree(sys.argv[1]))' $1/tree
        test -e $1/outside/kept
    """
    script = script.replace("\n        sys", "\nsys")
    words = ["unshare", "--mount", "sh", "-ec", script, "sh", str(tmp_path), sys.executable]
    assert subprocess.run(words, cwd=ROOT, check=False).returncode == 0


# private folders in /tmp


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(private_folder, "YOUNG_S", -1.0)
    return folder


def test_leftovers_of_others_break_nothing(temporary: Path) -> None:
    """Whatever any user of the machine makes under our names in a shared folder."""
    prefix = private_folder.PREFIX
    deep(temporary / f"{prefix}deep")
    os.mkfifo(temporary / f"{prefix}fifo")
    (temporary / f"{prefix}link").symlink_to("/etc")
    (temporary / f"{prefix}file").touch()
    (temporary / f"{leftovers.STATE_PREFIX}file").touch()
    (temporary / f"{leftovers.STATE_PREFIX}link").symlink_to("/etc")
    os.mkfifo(temporary / f"{leftovers.STATE_PREFIX}fifo")
    trap = temporary / f"{leftovers.STATE_PREFIX}trap"
    trap.mkdir()
    os.mkfifo(trap / leftovers.LOCK)
    leftovers.collect(str(temporary / "caches"))
    assert not (temporary / f"{prefix}deep").exists()
    assert Path("/etc/passwd").exists()


# state folders


HOLD = (
    "import sys, tempfile; tempfile.tempdir = sys.argv[1];"
    "from sandboxd.linux.rootfs.state import StateFolder; print(StateFolder().path, flush=True);"
    "sys.stdin.read()"
)


@pytest.fixture
def other_daemon(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(temporary)], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.communicate()


def test_the_state_of_a_dead_daemon_is_collected(
    other_daemon: tuple[subprocess.Popen[str], Path],
) -> None:
    process, state = other_daemon
    leftovers.collect_states(young_s=-1)
    assert state.is_dir()  # it lives
    process.kill()
    process.wait()
    leftovers.collect_states()
    assert state.is_dir()  # too young to be told from one that is being made
    leftovers.collect_states(young_s=-1)
    assert not state.exists()


def test_a_folder_without_a_lock_file_is_not_ours_to_judge(temporary: Path) -> None:
    other = temporary / f"{leftovers.STATE_PREFIX}other"
    other.mkdir()
    leftovers.collect_states(young_s=-1)
    assert other.is_dir()


@pytest.mark.requires("root")
@pytest.mark.isolation
def test_a_state_folder_that_cannot_be_made_anew_does_not_stop_the_daemon(tmp_path: Path) -> None:
    first = StateFolder(str(tmp_path / "s"))
    keep = f"{first.path}/keep"
    os.mkdir(keep)
    subprocess.run(["mount", "-t", "tmpfs", "none", keep], check=True)
    try:
        second = StateFolder(str(tmp_path / "s"))
        assert second.path != first.path
        assert os.path.exists(second.empty_file)
        second.close()
        assert not os.path.exists(second.path)
    finally:
        subprocess.run(["umount", keep], check=True)
        first.close()


# caches


def spec_of(grants: tuple[Grant, ...]) -> SandboxSpec:
    return SandboxSpec(base="minimal", network=NetworkRule("deny"), grants=grants)


def test_caches_of_workspaces_that_are_gone_are_collected(tmp_path: Path) -> None:
    root = tmp_path / "caches"
    there, gone = tmp_path / "there", tmp_path / "gone"
    folders = {}
    for workspace in (there, gone):
        workspace.mkdir()
        folder = caches.for_workspace(str(workspace), str(root)).grants[0].path
        deep(Path(folder) / "cargo", 10)
        folders[workspace] = Path(folder)
    gone.rmdir()
    leftovers.collect_caches(str(root))
    assert folders[there].is_dir()
    assert not folders[gone].exists()
    assert len(list((root / cache_notes.NOTES).iterdir())) == 1


def test_the_cache_of_a_running_command_stays(tmp_path: Path) -> None:
    """Another daemon may not see the workspace: it lies on a mount of another namespace."""
    root, workspace = tmp_path / "caches", tmp_path / "gone"
    workspace.mkdir()
    grants = caches.for_workspace(str(workspace), str(root)).grants
    workspace.rmdir()
    guard = Guard(spec_of(grants))
    leftovers.collect_caches(str(root))
    assert Path(grants[0].path).is_dir()
    guard.rest()
    leftovers.collect_caches(str(root))
    assert not Path(grants[0].path).exists()
    with pytest.raises(PathChanged):
        guard.renew(Repositories())
    with pytest.raises(PathChanged):
        Guard(spec_of(grants))
    guard.close()


def test_no_command_starts_while_its_cache_is_removed(tmp_path: Path) -> None:
    grants = caches.for_workspace(str(tmp_path), str(tmp_path / "caches")).grants
    before = len(os.listdir("/proc/self/fd"))
    with cache_locks.unused(grants[0].path) as is_unused:
        assert is_unused
        with pytest.raises(PathChanged, match="is being removed"):
            Guard(spec_of(grants))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_workspace_on_a_disk_that_is_not_mounted_keeps_its_cache(tmp_path: Path) -> None:
    root, workspace = tmp_path / "caches", tmp_path / "w"
    workspace.mkdir()
    folder = Path(caches.for_workspace(str(workspace), str(root)).grants[0].path)
    note = root / cache_notes.NOTES / folder.name
    note.write_bytes(b"999999\n" + os.fsencode(workspace))
    workspace.rmdir()
    leftovers.collect_caches(str(root))
    assert folder.is_dir()
    long_ago = time.time() - cache_notes.ABSENT_S - 60
    os.utime(note, (long_ago, long_ago))
    leftovers.collect_caches(str(root))
    assert not folder.exists()


def test_a_forged_note_leads_nowhere(tmp_path: Path) -> None:
    root = tmp_path / "caches"
    (root / cache_notes.NOTES).mkdir(parents=True)
    (root / "victim").mkdir()
    (root / cache_notes.NOTES / "victim").write_bytes(b"1\n/no/such/workspace")
    (root / cache_notes.NOTES / "..").exists()
    os.mkfifo(root / cache_notes.NOTES / "fifo")
    leftovers.collect_caches(str(root))
    assert (root / "victim").is_dir()


def test_a_daemon_collects_after_its_start(tmp_path: Path) -> None:
    with running_daemon() as first:
        root = first.home / ".cache" / "sandboxd"
        if os.getuid() == 0:
            root = Path("/var/cache/sandboxd")
        workspace = tmp_path.resolve() / f"w-{os.getpid()}"
        workspace.mkdir()
        request = {"argv": ["true"], "preset": "workspace-write", "workspace": str(workspace)}
        with first.connect() as client:
            assert client.call("execute", request)["exit_code"] == 0
        folder = root / cache_notes.cache_name(str(workspace))
        assert folder.is_dir()
        shutil.rmtree(workspace)
        with running_daemon(env={"XDG_CACHE_HOME": str(first.home / ".cache")}):
            end = time.monotonic() + PATIENCE_S
            while folder.exists() and time.monotonic() < end:
                time.sleep(0.05)
            assert not folder.exists()


# HOME


def test_the_config_without_home_is_the_accounts() -> None:
    import pwd

    home = pwd.getpwuid(os.getuid()).pw_dir
    assert loading.default_path({}) == f"{home}/.config/sandboxd/config.toml"
    assert loading.default_path({"HOME": "/"}) == "/etc/sandboxd/config.toml"
    assert loading.default_path({"HOME": "/h"}) == "/h/.config/sandboxd/config.toml"


def test_a_daemon_without_home_makes_nothing_in_the_root(tmp_path: Path) -> None:
    before = set(os.listdir("/"))
    env = scrubbed_env(tmp_path, {})
    del env["HOME"]
    words = [sys.executable, "-m", "sandboxd", "--socket", str(tmp_path / "s.sock")]
    process = subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert b"listening" in process.stdout.readline()
        assert set(os.listdir("/")) == before
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        process.stdout.close()
