"""A command or a caller's path that tries to make the daemon stand still."""

from __future__ import annotations

import os
import subprocess
import textwrap
import threading
from pathlib import Path

import pytest
from support.attacks import Box, python
from support.rpc import RpcError

pytestmark = [pytest.mark.isolation]


def waits_for_ever(path: Path) -> bool:
    """The control: whether a plain open of `path` waits."""
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.DEVNULL) as plain:
        try:
            plain.wait(0.3)
            return False
        except subprocess.TimeoutExpired:
            return True
        finally:
            plain.kill()


def serves(box: Box) -> bool:
    """Whether another client is served."""
    with box.daemon.connect(timeout_s=20) as other:
        return bool(other.call("execute", {"argv": ["true"]})["exit_code"] == 0)


def test_a_fifo_as_the_program(box: Box, outside: Path) -> None:
    """It is not visible inside; the daemon looks at the host's to say why."""
    fifo = outside / "program"
    os.mkfifo(fifo, 0o755)
    assert waits_for_ever(fifo)
    for manifest in ({}, {"fs_read_allow": [str(outside)]}):
        with pytest.raises(RpcError) as refused:
            box.run(str(fifo), manifest=manifest)
        assert refused.value.kind == "ExecFailed"
    assert serves(box)


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "socket"])
def test_whatever_lies_where_the_interpreter_is_read_from(
    box: Box, workspace: Path, kind: str
) -> None:
    """A script is swapped while it fails, again and again."""
    script = workspace / "script"
    stop = threading.Event()

    def swap() -> None:
        other, plain = workspace / "other", workspace / "plain"
        plain.write_text("#!/no/such/interpreter\n")
        plain.chmod(0o755)
        if kind == "fifo":
            os.mkfifo(other, 0o755)
        elif kind == "folder":
            other.mkdir()
        elif kind == "device":
            other.symlink_to("/dev/ptmx")
        else:
            import socket

            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(other))
        while not stop.is_set():
            for source in (plain, other):
                temporary = workspace / "next"
                temporary.unlink(missing_ok=True)
                temporary.symlink_to(source.name)
                temporary.rename(script)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(15):
            with pytest.raises(RpcError) as refused:
                box.run(str(script), manifest={"fs_read_allow": [str(workspace)]})
            assert refused.value.kind in ("ExecFailed", "PathDenied")
    finally:
        stop.set()
        swapping.join()
    assert serves(box)


SWAP_INSIDE = python("""
    import subprocess
    os.chdir(args[0])
    os.mkfifo("fifo", 0o755)
    with open("plain", "w") as file:
        file.write("#!/no/such/interpreter\\n")
    os.chmod("plain", 0o755)
    if os.fork() == 0:
        end = time.monotonic() + 8
        while time.monotonic() < end:
            for name in ("plain", "fifo"):
                try: os.symlink(name, "next")
                except FileExistsError: pass
                os.rename("next", "script")
        os._exit(0)
    while not os.path.lexists("script"): time.sleep(0.01)
    worked()
""")


def test_a_background_process_swaps_a_fifo_in(box: Box, workspace: Path) -> None:
    """The same from inside: a command that was left running in a persistent sandbox."""
    with box.daemon.connect(timeout_s=30) as client:
        params = {"preset": "workspace-write", "workspace": str(workspace)}
        made = client.call("sandbox/create", {**params, "backend": box.backend})
        name = made["sandbox"]
        try:
            attack = [*SWAP_INSIDE, str(workspace)]
            assert client.call("execute", {"sandbox": name, "argv": attack})["exit_code"] == 42
            for _ in range(15):
                request = {"sandbox": name, "argv": [str(workspace / "script")]}
                answer = client.answer(client.start("execute", request))
                assert answer["error"]["data"]["kind"] == "ExecFailed", answer
            assert serves(box)
        finally:
            client.call("sandbox/destroy", {"sandbox": name})


FILES_THAT_ARE_READ = (
    ".git", ".git/config", ".git/HEAD", ".git/commondir", ".git/gitdir", ".git/config.worktree",
    ".git/index", ".git/modules/m/config", ".git/worktrees/w/gitdir", ".envrc", ".gitmodules",
    ".git/rebase-merge/git-rebase-todo", ".git/sequencer/todo", ".git/packed-refs",
)  # fmt: skip


@pytest.mark.parametrize("name", FILES_THAT_ARE_READ)
def test_a_fifo_in_place_of_a_file_that_the_daemon_reads(
    box: Box, workspace: Path, name: str
) -> None:
    """Planted by one command, met by the planning and judging of the next."""
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    path = workspace / name
    if path.is_dir():
        subprocess.run(["rm", "-r", str(path)], check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert waits_for_ever(path)
    with box.daemon.connect(timeout_s=20) as client:
        request = {"argv": ["true"], "preset": "workspace-write", "workspace": str(workspace)}
        answer = client.answer(client.start("execute", request | {"backend": box.backend}))
        assert "result" in answer or answer["error"]["data"]["kind"] != "InternalError", answer
    assert serves(box)


def test_a_background_process_that_never_stops_printing(box: Box) -> None:
    """What is left behind in a persistent sandbox is drained; a flood must not be all there is."""
    with box.daemon.connect(timeout_s=30) as client:
        name = client.call("sandbox/create", {"backend": box.backend})["sandbox"]
        try:
            for _ in range(3):
                flood = ["sh", "-c", "(exec yes) & exit 0"]
                assert client.call("execute", {"sandbox": name, "argv": flood})["exit_code"] == 0
            for _ in range(3):
                assert serves(box)
        finally:
            client.call("sandbox/destroy", {"sandbox": name})


def test_a_deep_tree_in_the_private_folder(box: Box) -> None:
    """Removed when the sandbox ends, off the event loop, and whole."""
    script = textwrap.dedent("""
        import os, sys
        os.chdir(os.environ.get("TMPDIR", "/tmp"))
        print(os.getcwd(), flush=True)
        for _ in range(3000):
            os.mkdir("d"); os.chdir("d")
    """)
    ran = box.run("/usr/bin/python3", "-c", script)
    assert ran.exit_code == 0, ran.story
    folder = ran.stdout.strip()
    assert serves(box)
    if box.backend == "landlock":
        for _ in range(1200):
            if not os.path.lexists(folder):
                break
            threading.Event().wait(0.05)
        assert not os.path.lexists(folder)


def test_a_file_operation_that_ends_its_sandbox_is_answered(box: Box, workspace: Path) -> None:
    """The sandbox is ended for the hook while the request waits for its file server."""
    if box.backend == "docker":
        pytest.skip("the file server of a container is another one")
    with box.daemon.connect(timeout_s=20) as client:
        for number in range(3):
            place = workspace / str(number)
            place.mkdir()
            params = {"preset": "workspace-write", "workspace": str(place)}
            made = client.call("sandbox/create", {**params, "backend": box.backend})["sandbox"]
            hook = {"path": str(place / ".git/hooks/pre-commit"), "data": "x", "parents": True}
            answer = client.answer(client.start("fs/write", {"sandbox": made, **hook}))
            assert "result" in answer or answer["error"]["data"]["kind"] in (
                "SandboxUnavailable", "NotFound", "FileError", "PathDenied",
            ), answer  # fmt: skip
            client.answer(client.start("sandbox/destroy", {"sandbox": made}))
            assert not (place / ".git/hooks/pre-commit").exists()
    assert serves(box)


def test_file_operations_do_not_go_round_an_approval(box: Box, workspace: Path) -> None:
    """A session that is asked before it writes cannot write through the sandbox of another."""
    if box.backend == "docker":
        pytest.skip("the file server of a container is another one")
    with box.daemon.connect() as owner, box.daemon.connect() as asked:
        params = {"preset": "workspace-write", "workspace": str(workspace)}
        made = owner.call("sandbox/create", {**params, "backend": box.backend})["sandbox"]
        target = {"sandbox": made, "path": str(workspace / "written")}
        assert owner.call("fs/write", {**target, "data": "mine"}) == {"bytes": 4}
        asked.call("session/open", {"mode": "default"})
        for method, more in (("fs/write", {"data": "x"}), ("fs/remove", {}), ("fs/read", {})):
            answer = asked.answer(asked.start(method, {**target, **more}))
            assert answer["error"]["data"]["kind"] in ("ApprovalDenied", "NotFound"), answer
        assert (workspace / "written").read_text() == "mine"
        owner.call("sandbox/destroy", {"sandbox": made})
