"""Templates: one process for each plan that sandboxes are cloned from, and never a stale one."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, stdout_of
from support.processes import survivors
from support.rpc import Connection, RpcError

from sandboxd.backends.bubblewrap.clones import MOST_MOVED

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.isolation]
StartDaemon = Callable[..., Daemon]
COLD = "[pool]\nenabled = false\n"  # nothing is ready but the template


@pytest.fixture
def start_daemon(start_daemon: StartDaemon) -> StartDaemon:
    """With templates, in a pass without them too."""
    return partial(start_daemon, env={"SANDBOXD_POOL_TEMPLATE": "true"})


def run(connection: Connection, script: str, **params: Any) -> Any:
    return connection.call("execute", {"argv": ["/bin/sh", "-c", script], **params})


def templates(daemon: Daemon) -> list[int]:
    """The only child of each bwrap that is one. Clones have the same command line."""
    found = []
    for process in daemon.descendants():
        try:
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
            if b"--template" in words and words[0].endswith(b"bwrap"):
                found += children(process.pid)
        except OSError:
            continue
    return found


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def test_commands_of_one_plan_are_cloned_from_one_process(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(config=COLD)
    made = {"manifest": {"network": "deny"}}
    with daemon.connect() as connection:
        boxes = [connection.call("sandbox/create", made)["sandbox"] for _ in range(2)]
        look = "readlink /proc/self/ns/*"
        one, other = (set(stdout_of(run(connection, look, sandbox=b)).split()) for b in boxes)
        assert len(templates(daemon)) == 1
    shared = {name.split(":")[0] for name in one & other}
    assert shared <= {"time", "time_for_children"}  # the host's own
    assert len(one) >= 8


def pids_cgroup(pid: int) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    of_v1 = [line for line in lines if ":pids:" in line]
    return (of_v1 or lines)[-1]


@pytest.mark.requires("root")
def test_each_clone_starts_in_a_cgroup_of_its_own(start_daemon: StartDaemon) -> None:
    """The template enters it ahead, and has left it before the next one is made."""
    daemon = start_daemon(config=COLD)
    made = {"manifest": {"network": "deny"}}
    with daemon.connect() as connection:
        for _ in range(3):
            connection.call("sandbox/create", made)
        (template,) = templates(daemon)
        inits = children(template)
        if "sandbox-" not in pids_cgroup(inits[0]):
            pytest.skip("no cgroup bounds the processes of a sandbox here")
        deadline = time.monotonic() + 60
        while len({pids_cgroup(pid) for pid in (template, *inits)}) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for init in inits:
            assert {pids_cgroup(pid) for pid in children(init)} <= {pids_cgroup(init)}


def test_the_command_line_of_the_init_says_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(config=COLD)
    with daemon.connect() as connection:
        shown = stdout_of(run(connection, "tr -d '\\0' < /proc/1/cmdline"))
        (pid,) = templates(daemon)
        bwrap = next(one for one in daemon.descendants() if pid in children(one.pid))
    assert shown == "sandboxd-init"
    assert b"--template" in Path(f"/proc/{bwrap.pid}/cmdline").read_bytes()


def test_without_it_each_sandbox_has_its_own_bwrap(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(config=COLD, env={"SANDBOXD_POOL_TEMPLATE": "false"})
    with daemon.connect() as connection:
        assert stdout_of(run(connection, "echo here")) == "here\n"
        assert templates(daemon) == []


def test_where_no_template_comes_up_each_sandbox_has_its_own_bwrap(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    """As a bwrap that is setuid refuses it. A few commands show that it is so for good."""
    program, tried = tmp_path / "bin" / "bwrap", tmp_path / "tried"
    program.parent.mkdir(mode=0o755)
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *--template*) echo x >> {tried}\n'
        "  echo 'bwrap: --cap-add in setuid mode can be used only by root' >&2; exit 1;; esac\n"
        'exec /usr/bin/bwrap "$@"\n'
    )
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:/usr/bin:/bin", "SANDBOXD_POOL_TEMPLATE": "true"}
    daemon = start_daemon(config=COLD, env=path)
    with daemon.connect() as connection:
        for _ in range(5):
            assert stdout_of(run(connection, "echo here")) == "here\n"
    assert tried.read_text().count("x") == 3
    assert daemon.log.count("no more clones") == 1


def test_a_mask_that_the_host_replaces_is_there_in_the_next_clone(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    """A rename over a masked file takes the mount out of the template, and of all later clones."""
    secret = tmp_path / "data" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text("old\n")
    params = {"manifest": {"fs_read_allow": [str(secret.parent)]}}
    daemon = start_daemon(config=f'{COLD}\n[masks]\nadd = ["{secret}"]\n')
    with daemon.connect() as connection:
        read = f"cat {secret} {secret.parent}/shown"
        (secret.parent / "shown").write_text("shown\n")
        assert stdout_of(run(connection, read, **params)) == "shown\n"
        first = templates(daemon)
        for _ in range(5):
            saved = secret.with_name("saved")
            saved.write_text("new\n")
            saved.rename(secret)
            assert stdout_of(run(connection, read, **params)) == "shown\n"
        # Where mounts of other programs come and go, there may have been none.
        assert not first or templates(daemon) != first
        control = subprocess.run(["cat", secret], capture_output=True, check=True)
        assert control.stdout == b"new\n"


@pytest.mark.requires("root")
def test_a_mount_that_appears_on_the_host_is_in_no_clone(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    """It would be writable in a folder that is shown read-only: bwrap never saw it."""
    folder = tmp_path / "shown"
    (folder / "later").mkdir(parents=True)
    params = {"manifest": {"fs_read_allow": [str(folder)]}}
    write = f"echo x > {folder}/later/file; ls {folder}/later"
    daemon = start_daemon(config=COLD)
    with daemon.connect() as connection:
        run(connection, "true", **params)
        subprocess.run(["mount", "-t", "tmpfs", "later", folder / "later"], check=True)
        try:
            for _ in range(3):
                run(connection, write, **params)
                assert os.listdir(folder / "later") == []
            (folder / "later" / "control").touch()
            assert os.listdir(folder / "later") == ["control"]
        finally:
            subprocess.run(["umount", folder / "later"], check=True)


def test_a_template_that_is_killed_is_replaced(start_daemon: StartDaemon) -> None:
    """Its sandboxes die with it, their commands are not left running, and the next one works."""
    daemon = start_daemon(config=COLD)
    with daemon.connect() as connection, daemon.connect() as other:
        number = other.start("execute", {"argv": ["/bin/sh", "-c", "echo up; sleep 600"],
                                         "stream": True})  # fmt: skip
        other.notification("execution/output")
        watched = daemon.descendants()
        (pid,) = templates(daemon)
        os.kill(pid, signal.SIGKILL)
        assert other.answer(number).get("result", {}).get("exit_code") != 0
        assert stdout_of(run(connection, "echo again")) == "again\n"
        assert survivors(watched) == []


def test_nothing_is_left_when_the_daemon_stops(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(config=COLD)
    with daemon.connect() as connection:
        run(connection, "true")
        watched = daemon.descendants()
        assert watched
    daemon.stop()
    assert survivors(watched) == []


def open_session(connection: Connection, **params: Any) -> str:
    return str(connection.call("session/open", params)["session"])


@pytest.fixture
def folder_in_tmp() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        yield Path(made)


def test_a_folder_of_the_sessions_tmp_that_became_a_link_is_not_followed(
    start_daemon: StartDaemon, folder_in_tmp: Path
) -> None:
    """A mount would be made where the link leads. The workspace lies in /tmp, so its first folder
    there is a mount point in the /tmp that the commands of the session share."""
    workspace = folder_in_tmp / "inner" / "workspace"
    workspace.mkdir(parents=True)
    daemon = start_daemon(config=COLD)
    with daemon.connect() as connection:
        open_session(connection, mode="auto_edit", workspace=str(workspace))
        inside = {"workspace": str(workspace)}
        assert stdout_of(run(connection, "echo here", **inside)) == "here\n"
        assert len(templates(daemon)) == 1
        swap = f"rmdir {folder_in_tmp} && ln -s /var/tmp {folder_in_tmp} && echo swapped"
        assert stdout_of(run(connection, swap, preset="read-only")) == "swapped\n"
        with pytest.raises(RpcError):
            run(connection, "echo x > /var/tmp/found; true", **inside)


@pytest.mark.parametrize("network", ["deny", {"kind": "allow_hosts", "hosts": ["localhost"]}])
def test_a_link_in_the_sessions_tmp_makes_no_file_on_the_host(
    start_daemon: StartDaemon, folder_in_tmp: Path, network: object
) -> None:
    """bwrap makes a missing mount point, also through a link, and has the host below /oldroot while
    it mounts. With allow_hosts there is no template."""
    made = folder_in_tmp / "made"
    with tempfile.NamedTemporaryFile(dir="/tmp") as file, tempfile.TemporaryDirectory() as control:
        planted = Path(control, "planted")
        planted.symlink_to(f"/oldroot{made}")
        binds = ["--bind", control, "/mnt", "--ro-bind", file.name, "/mnt/planted"]
        bwrap = ["bwrap", "--unshare-user", "--ro-bind", "/", "/", *binds, "true"]
        subprocess.run(bwrap, check=True)
        assert made.exists()
        made.unlink()
        daemon = start_daemon(config=COLD)
        with daemon.connect() as connection:
            open_session(connection, mode="force")
            plant = f"ln -s /oldroot{made} {file.name} && echo planted"
            assert stdout_of(run(connection, plant)) == "planted\n"
            manifest = {"fs_read_allow": [file.name], "network": network}
            with pytest.raises(RpcError) as refused:
                run(connection, "true", manifest=manifest)
            assert not made.exists()
            assert refused.value.kind == "PathDenied"
            run(connection, f"rm {file.name}")
            shown = run(connection, f"test -f {file.name} && echo shown", manifest=manifest)
            assert stdout_of(shown) == "shown\n"


def test_the_template_of_a_session_ends_with_it(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(config=COLD)
    with daemon.connect() as connection:
        session = open_session(connection)
        run(connection, "true")
        (pid,) = templates(daemon)
        connection.call("session/close", {"session": session})
        deadline = time.monotonic() + 60
        while pid in templates(daemon):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_more_mounts_than_a_template_moves_get_a_bwrap(
    start_daemon: StartDaemon, folder_in_tmp: Path
) -> None:
    paths = [folder_in_tmp / f"file-{number}" for number in range(MOST_MOVED + 1)]
    for path in paths:
        path.write_text("shown\n")
    daemon = start_daemon(config=COLD)
    with daemon.connect() as connection:
        run(connection, "true")
        before = templates(daemon)
        params = {"manifest": {"fs_read_allow": [str(path) for path in paths]}}
        assert stdout_of(run(connection, f"cat {paths[-1]}", **params)) == "shown\n"
        assert templates(daemon) == before
        assert stdout_of(run(connection, "echo here")) == "here\n"
    assert "no more clones" not in daemon.log
