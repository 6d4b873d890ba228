"""`Box` and `AsyncBox`: a sandbox as an object, with Python's own exceptions."""

from __future__ import annotations

import inspect
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.daemon import Daemon, running_daemon

from sandboxd_client import (
    AsyncBox,
    AsyncClient,
    Box,
    Client,
    CommandTimeout,
    UnsafeLink,
    local_tree,
)  # fmt: skip

pytestmark = pytest.mark.requires("bubblewrap")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as found:
        yield found


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with Client(daemon.socket) as found:
        yield found


@pytest.fixture
def box(client: Client, tmp_path: Path) -> Iterator[Box]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with Box(client, preset="workspace-write", workspace=str(workspace)) as found:
        yield found


def test_commands_share_the_box(box: Box) -> None:
    box.write("/tmp/x", "hello")
    assert box.run("cat /tmp/x").stdout.data == "hello"
    assert box.run(["sh", "-c", "echo $A"], env={"A": "1"}).stdout.data == "1\n"
    assert box.run("cat", stdin="typed").stdout.data == "typed"
    assert box.run("cat", stdin=b"\xff").stdout.bytes == 1
    assert box.run("echo a; echo b >&2", merge=True).stdout.data == "a\nb\n"
    assert box.run("exit 3").exit_code == 3


def test_a_timeout_has_the_partial_output(box: Box) -> None:
    with pytest.raises(TimeoutError) as caught:
        box.run("echo so far; sleep 60", timeout=0.5)
    assert isinstance(caught.value, CommandTimeout)
    assert "after 0.5 s; timeout= gives it another" in str(caught.value)
    assert caught.value.result.stdout.data == "so far\n"


def test_files_raise_what_python_raises(box: Box) -> None:
    box.mkdir("folder")
    with pytest.raises(FileNotFoundError):
        box.read("missing")
    with pytest.raises(IsADirectoryError):
        box.read("folder")
    with pytest.raises(NotADirectoryError):
        box.list("/etc/passwd")
    with pytest.raises(OSError, match="Read-only"):
        box.write("/usr/x", "")
    box.write("file", b"\x00\xff" * 10, mode=0o600)
    assert box.read("file") == b"\x00\xff" * 10
    assert box.stat("file").mode == 0o600
    assert sorted(e.name for e in box.list()) == ["file", "folder"]
    box.remove("folder")
    assert [e.name for e in box.list()] == ["file"]


def test_large_files_go_in_pieces(box: Box) -> None:
    data = os.urandom(9 << 20)
    box.write("large", data)
    assert box.read("large") == data


def test_a_background_command(box: Box) -> None:
    with box.start("echo ready; read x; echo got $x") as command:
        seen = ""
        for event in command:
            seen += getattr(event, "data", "")
            if seen == "ready\n":
                command.write("it\n")
    assert seen == "ready\ngot it\n"


def make_source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "program").write_text("#!/bin/sh\necho ran\n")
    (source / "sub" / "program").chmod(0o755)
    (source / "sub" / "up").symlink_to("../sub/program")
    return source


def test_folders_go_up_and_down(box: Box, tmp_path: Path) -> None:
    box.upload(make_source(tmp_path), "copy")
    assert box.run("copy/sub/up").stdout.data == "ran\n"
    names = ["sub", "sub/program", "sub/up"]
    assert [e.name for e in box.list("copy", recursive=True)] == names
    target = tmp_path / "target"
    box.download("copy", target)
    assert sorted(p.relative_to(target).as_posix() for p in target.rglob("*")) == names
    assert (target / "sub" / "program").stat().st_mode & 0o7777 == 0o755
    assert os.readlink(target / "sub" / "up") == "../sub/program"


@pytest.fixture
def masked_box(client: Client, tmp_path: Path) -> Iterator[Box]:
    """In its workspace `token` and `deep/private` are masked."""
    workspace = tmp_path / "workspace"
    (workspace / "deep" / "private").mkdir(parents=True)
    for name in ("token", "empty", "deep/private/key"):
        (workspace / name).write_text("" if name == "empty" else "CANARY")
    denied = [str(workspace / "token"), str(workspace / "deep" / "private")]
    policy = {"preset": "workspace-write", "manifest": {"fs_deny": denied}}
    with Box(client, workspace=str(workspace), **policy) as found:
        yield found


def test_what_a_mask_hides_is_an_error_and_not_empty(masked_box: Box) -> None:
    box = masked_box
    box.run("ln -s token link; ln -s deep/private folder")
    for do in (
        lambda: box.read("token"),
        lambda: box.read("link"),
        lambda: box.list("deep/private"),
        lambda: box.list("folder", recursive=True),
        lambda: box.copy("token", "copied"),
    ):
        with pytest.raises(PermissionError, match="is masked: fs_deny hides it"):
            do()
    with pytest.raises(PermissionError):  # masked for root only, who could read it
        box.read("/etc/shadow")
    assert box.read("empty") == b""
    box.mkdir("empty-folder")
    assert box.list("empty-folder") == box.list("empty-folder", recursive=True) == []
    listed = {entry.name: entry.masked for entry in box.list(".", recursive=True)}
    assert [name for name, masked in listed.items() if masked] == ["deep/private", "token"]


def test_a_download_leaves_what_masks_hide_as_it_is_here(masked_box: Box, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "token").write_text("mine")
    masked_box.download(".", target)
    assert (target / "token").read_text() == "mine"
    assert sorted(p.relative_to(target).as_posix() for p in target.rglob("*")) == [
        "deep", "empty", "token",
    ]  # fmt: skip
    with pytest.raises(PermissionError, match="is masked"):
        masked_box.download("token", target / "token")
    assert (target / "token").read_text() == "mine"


def test_progress_counts_the_bytes(box: Box, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (9 << 20))
    up: list[tuple[int, int]] = []
    box.upload(tmp_path / "large", "large", progress=lambda *now: up.append(now))
    down: list[tuple[int, int]] = []
    box.download("large", tmp_path / "back", progress=lambda *now: down.append(now))
    for seen in (up, down):
        assert (seen[0], seen[-1]) == ((0, 9 << 20), (9 << 20, 9 << 20))
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert len(seen) == 4
    assert (tmp_path / "back").read_bytes() == b"x" * (9 << 20)


@pytest.mark.parametrize("target", ["/etc/passwd", "../..", "sub/../../x"])
def test_a_link_that_leads_out_is_refused(box: Box, tmp_path: Path, target: str) -> None:
    """Before anything is written; the control is the same folder with the link left out."""
    source = make_source(tmp_path)
    (source / "out").symlink_to(target)
    with pytest.raises(UnsafeLink, match="out"):
        box.upload(source, "copy")
    box.upload(source, "copy", links="skip")
    box.run(["ln", "-s", target, "copy/out"])
    with pytest.raises(UnsafeLink, match="out"):
        box.download("copy", tmp_path / "target")
    assert not (tmp_path / "target").exists()
    box.download("copy", tmp_path / "target", links="skip")
    assert sorted(os.listdir(tmp_path / "target")) == ["sub"]


def test_set_id_bits_are_not_taken_over(box: Box, tmp_path: Path) -> None:
    """Made on the host: a command cannot set them."""
    program = tmp_path / "workspace" / "set-id"
    program.write_text("")
    program.chmod(0o6755)
    assert box.stat("set-id").mode == 0o6755
    box.download("set-id", tmp_path / "down")
    assert (tmp_path / "down").stat().st_mode & 0o7777 == 0o755
    box.upload(program, "up")
    assert box.stat("up").mode == 0o755


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//b", ".", ""])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="outside"), local_tree.replaced(tmp_path, name, 0o644):
        pass


def test_nothing_is_written_or_read_through_a_link(tmp_path: Path) -> None:
    """A folder that was exchanged for a link meanwhile."""
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (outside / "file").write_text("original")
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "file")
    for name in ("link/file", "link/new"):
        with pytest.raises(OSError), local_tree.replaced(folder, name, 0o644):  # noqa: PT011
            pass
    for name in ("link/file", "file"):
        with pytest.raises(OSError), local_tree.opened(folder, name):  # noqa: PT011
            pass
    with local_tree.replaced(folder, "file", 0o644) as file:
        file.write(b"changed")
    assert (outside / "file").read_text() == "original"
    assert (folder / "file").read_text() == "changed"


def test_the_folder_of_a_transfer_is_opened_once(tmp_path: Path) -> None:
    """A command puts a link in its place. The control opens it anew for each file."""
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    with local_tree.pinned(folder) as root:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(outside)
        assert local_tree.scan(root) == []
        assert [entry.name for entry in local_tree.scan(folder)] == ["secret"]
        with pytest.raises(FileNotFoundError), local_tree.opened(root, "secret"):
            pass
        with local_tree.opened(folder, "secret") as file:
            assert file.read() == b"secret"
        with local_tree.replaced(root, "new", 0o644) as file:
            file.write(b"x")
    assert os.listdir(outside) == ["secret"]
    assert os.listdir(tmp_path / "moved") == ["new"]


def test_a_large_file_that_is_read_only_is_uploaded(box: Box, tmp_path: Path) -> None:
    """It goes in pieces, and only the last one takes the right to write away."""
    pack = tmp_path / "pack"
    pack.write_bytes(os.urandom(5 << 20))
    pack.chmod(0o444)
    box.upload(pack, "pack")
    box.write("written", pack.read_bytes(), mode=0o400)
    assert box.stat("pack").mode == 0o444
    assert box.stat("written").mode == 0o400
    assert box.read("pack") == box.read("written") == pack.read_bytes()


def test_a_link_to_a_file_is_uploaded_as_the_file(box: Box, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("content")
    (tmp_path / "link").symlink_to("real")
    box.upload(tmp_path / "link", "up")
    assert box.read_text("up") == "content"


def test_a_file_that_grows_is_read_to_the_size_that_it_had(box: Box, tmp_path: Path) -> None:
    grows = tmp_path / "workspace" / "grows"
    grows.write_bytes(b"x" * (5 << 20))
    seen: list[int] = []

    def grow(done: int, total: int) -> None:
        seen.append(done)
        with grows.open("ab") as file:
            file.write(b"y" * (4 << 20))

    box.download("grows", tmp_path / "down", progress=grow)
    assert seen[-1] < grows.stat().st_size
    assert len(seen) == 4


def test_a_fifo_in_place_of_a_file_does_not_block(box: Box, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ValueError, match="regular"), local_tree.opened(tmp_path, "fifo"):
        pass
    box.write("file", "x")
    box.download("file", tmp_path / "fifo")
    assert (tmp_path / "fifo").read_text() == "x"


def test_a_server_inside(box: Box) -> None:
    code = "import socket; s = socket.create_server(('127.0.0.1', 8400)); print('up', flush=True)\n"
    code += "while True: s.accept()[0].sendall(b'pong')"
    with box.start(["python3", "-c", code]) as server:
        next(event for event in server if "up" in getattr(event, "data", ""))
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(box.forward(8400).endpoint)
            assert asking.recv(10) == b"pong"


def test_leaving_ends_what_it_made_and_nothing_else(client: Client) -> None:
    with Box(client, manifest={"network": "deny"}) as made:
        with Box.attach(made.sandbox, client) as same:
            assert same.run("true").exit_code == 0
        assert made.run("true").exit_code == 0
    assert client.sandbox_list().sandboxes == []


def test_the_async_box_does_the_same(daemon: Daemon, tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            AsyncClient(daemon.socket) as client,
            AsyncBox(client, manifest={"network": "deny"}) as box,
        ):
            await box.write("/tmp/x", "hello")
            assert (await box.run("cat /tmp/x")).stdout.data == "hello"
            assert await box.read_text("/tmp/x") == "hello"
            with pytest.raises(FileNotFoundError):
                await box.read("/tmp/missing")
            await box.download("/tmp", tmp_path / "down")
            assert (tmp_path / "down" / "x").read_text() == "hello"

    anyio.run(work)


def test_more_entries_than_one_answer_holds(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.run("mkdir -p many/a many/b; touch many/a/1 many/a/2 many/b/3")
    monkeypatch.setattr("sandboxd_client.transfers.MOST_ENTRIES", 3)
    box.download("many", tmp_path / "down")
    assert sorted(p.name for p in (tmp_path / "down").rglob("*")) == ["1", "2", "3", "a", "b"]


def test_what_started_runs_before_it_is_asked_for(box: Box) -> None:
    running = box.start("echo up > /tmp/up; sleep 60")
    while box.run("cat /tmp/up").stdout.data != "up\n":
        pass
    running.kill()
    assert running.wait().outcome == "cancelled"


def test_both_boxes_have_the_same_names() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(kind, callable)
            if not name.startswith("_") and name not in ("close", "aclose")
        }

    assert public(Box) == public(AsyncBox)
    named = "run start read write list stat mkdir remove upload download forward attach"
    assert set(named.split()) <= set(public(Box))


PROGRAM = """
import sys, time
from sandboxd_client import Box, Client
client = Client(sys.argv[1])
box = Box(client, manifest={"network": "deny"})
running = box.start("sleep 3600 & exec sleep 3600")
print(box.forward(8000).endpoint, box.forward(8000, listen="tcp").endpoint, flush=True)
time.sleep(3600)
"""


def test_nothing_is_left_when_the_program_is_killed(daemon: Daemon, client: Client) -> None:
    command = [sys.executable, "-c", PROGRAM, daemon.socket]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        unix, tcp = program.stdout.readline().split()
        sleeping = [one for one in daemon.descendants() if one.name == "sleep"]
        assert len(sleeping) == 2
        assert os.path.exists(unix)
        assert client.status().sandboxes.persistent == 1
        program.kill()
    deadline = time.monotonic() + 30
    while (
        client.sandbox_list().sandboxes
        or os.path.exists(unix)
        or any(one.alive for one in sleeping)
    ):
        assert time.monotonic() < deadline, "something is left"
        time.sleep(0.02)
    host, port = tcp.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    assert os.listdir(os.path.dirname(unix)) == []
