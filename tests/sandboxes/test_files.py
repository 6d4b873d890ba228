"""`fs/*`: what a process of the sandbox can do, with the kernel's own errors, and no more."""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from support.attacks import Victim
from support.backends import LINUX, running_backend
from support.daemon import Daemon
from support.rpc import Connection, RpcError

pytestmark = pytest.mark.isolation


@pytest.fixture(scope="module", params=LINUX)
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with running_backend(request.param) as found:
        found.backend = request.param  # type: ignore[attr-defined]
        yield found


class Files:
    """One persistent sandbox whose workspace is `root`."""

    def __init__(self, connection: Connection, root: Path) -> None:
        self.connection, self.root = connection, root
        params = {"preset": "workspace-write", "workspace": str(root)}
        self.sandbox: str = connection.call("sandbox/create", params)["sandbox"]

    def __call__(self, operation: str, **params: Any) -> Any:
        return self.connection.call(f"fs/{operation}", {"sandbox": self.sandbox, **params})

    def refused(self, operation: str, **params: Any) -> str:
        with pytest.raises(RpcError) as error:
            self(operation, **params)
        assert (error.value.code, error.value.kind) == (-32014, "FileError")
        name: str = error.value.data["errno"]
        return name

    def run(self, script: str) -> Any:
        argv = ["sh", "-c", script]
        return self.connection.call("execute", {"argv": argv, "sandbox": self.sandbox})


@pytest.fixture
def files(daemon: Daemon, tmp_path: Path) -> Iterator[Files]:
    root = tmp_path.resolve() / "workspace"
    root.mkdir()
    with daemon.connect() as connection:
        found = Files(connection, root)
        yield found
        connection.call("sandbox/destroy", {"sandbox": found.sandbox})


def test_what_is_written_is_read_on_both_sides(files: Files) -> None:
    assert files("write", path="a/b.txt", data="grüße\n") == {"bytes": 8}
    assert (files.root / "a" / "b.txt").read_text() == "grüße\n"
    read = files("read", path=str(files.root / "a" / "b.txt"))
    assert read == {"data": "grüße\n", "encoding": "utf-8", "bytes": 8, "size": 8, "eof": True}


def test_bytes_that_are_no_text_come_back_whole(files: Files) -> None:
    data = bytes(range(256))
    files("write", path="raw", base64=base64.b64encode(data).decode())
    read = files("read", path="raw")
    assert read["encoding"] == "base64"
    assert base64.b64decode(read["data"]) == data


def test_ranges_append_and_offset(files: Files) -> None:
    files("write", path="f", data="0123456789")
    part = files("read", path="f", offset=3, length=4)
    assert (part["data"], part["size"], part["eof"]) == ("3456", 10, False)
    files("write", path="f", data="ab", append=True)
    files("write", path="f", data="XY", offset=1)
    assert (files.root / "f").read_text() == "0XY3456789ab"
    assert files("read", path="f", offset=99)["eof"] is True


def test_a_large_file_comes_in_pieces(files: Files) -> None:
    (files.root / "large").write_bytes(b"x" * (9 << 20))
    first = files("read", path="large")
    assert (first["bytes"], first["eof"]) == (8 << 20, False)
    assert files("read", path="large", offset=8 << 20)["bytes"] == 1 << 20


def test_stat_list_and_realpath(files: Files) -> None:
    files("mkdir", path="d/e")
    files("write", path="d/f", data="1", mode=0o600)
    (files.root / "link").symlink_to("d/f")
    assert files("stat", path="d/f")["mode"] == 0o600
    assert files("stat", path="link")["type"] == "file"
    link = files("stat", path="link", follow=False)
    assert (link["type"], link["target"]) == ("symlink", "d/f")
    names = [e["name"] for e in files("list", path=".", recursive=True)["entries"]]
    assert [n for n in names if not n.startswith(".")] == ["d", "d/e", "d/f", "link"]
    short = files("list", path="d", limit=1)
    assert (len(short["entries"]), short["truncated"]) == (1, True)
    assert files("realpath", path="link") == {"path": str(files.root / "d" / "f")}


def test_rename_copy_and_remove(files: Files) -> None:
    files("write", path="d/f", data="1")
    files("copy", **{"from": "d", "to": "c", "recursive": True})
    files("rename", **{"from": "c/f", "to": "moved"})
    assert (files.root / "moved").read_text() == "1"
    assert files.refused("remove", path="d") == "ENOTEMPTY"
    files("remove", path="d", recursive=True)
    assert not (files.root / "d").exists()
    assert files.refused("copy", **{"from": "c", "to": "x"}) == "EISDIR"
    assert files.refused("copy", **{"from": "c", "to": "c/c", "recursive": True}) == "EINVAL"


def test_errors_are_the_kernels(files: Files) -> None:
    files("write", path="file", data="1")
    files("mkdir", path="folder")
    assert files.refused("read", path="nothing") == "ENOENT"
    assert files.refused("read", path="folder") == "EISDIR"
    assert files.refused("read", path="file/x") == "ENOTDIR"
    assert files.refused("list", path="file") == "ENOTDIR"
    assert files.refused("write", path="no/parents", data="", parents=False) == "ENOENT"
    assert files.refused("mkdir", path="folder", parents=False) == "EEXIST"


def test_nothing_waits_for_a_fifo_or_a_device(files: Files) -> None:
    assert files.run("mkfifo fifo")["exit_code"] == 0
    assert files.refused("read", path="fifo") == "EINVAL"
    assert files.refused("write", path="fifo", data="x") == "EINVAL"
    assert files.refused("copy", **{"from": "fifo", "to": "x"}) == "EINVAL"
    assert files.refused("read", path="/dev/zero") == "EINVAL"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(files.root / "socket"))
    assert files.refused("read", path="socket") in ("EINVAL", "EACCES")


def test_the_workspace_itself_is_not_removed_or_renamed(files: Files) -> None:
    files("write", path="f", data="1")
    for path in (str(files.root), ".", f"{files.root}/.", str(files.root.parent)):
        assert files.refused("remove", path=path, recursive=True) in ("EBUSY", "EROFS", "EINVAL")
    outcome = files.refused("rename", **{"from": str(files.root), "to": "/tmp/elsewhere"})
    assert outcome in ("EBUSY", "EXDEV", "EACCES")
    assert (files.root / "f").exists()


def test_walls_hold_for_files_as_for_commands(files: Files, tmp_path: Path) -> None:
    """The control: the daemon's user could write and read all of these."""
    victim = Victim(tmp_path / "victim")
    assert os.access(victim.path, os.R_OK | os.W_OK)
    (files.root / "way-out").symlink_to(victim.path)
    up = os.path.relpath(victim.path, files.root)
    for path in (str(victim.path), "way-out", up):
        # A private /tmp may take the file; the victim is another one.
        with suppress(RpcError):
            files("write", path=path, data="x")
        assert victim.path.read_text() == Victim.ORIGINAL
    assert files.refused("write", path="/usr/x", data="x") in ("EROFS", "EACCES", "EPERM")


def test_a_relative_path_beside_a_workspace_below_tmp_is_refused(daemon: Daemon) -> None:
    with TemporaryDirectory(dir="/tmp") as parent, daemon.connect() as connection:
        root = Path(parent, "workspace")
        root.mkdir()
        files = Files(connection, root)
        files("write", path="a", data="x")
        assert files.refused("write", path="../a", data="x") == "EACCES"
        assert files.refused("copy", **{"from": "a", "to": "sub/../../a"}) == "EACCES"
        files("write", path="../workspace/b", data="x")
        assert sorted(os.listdir(root)) == ["a", "b"]
        connection.call("sandbox/destroy", {"sandbox": files.sandbox})


SWAP = """
while :; do
    mkdir d; echo x > d/f; rm -rf d; ln -s "$1" d; : > ready; rm d
done 2> /dev/null
"""


def test_a_folder_that_changes_into_a_link_leads_nowhere(files: Files, tmp_path: Path) -> None:
    """The control: what was asked for did happen where the folder was a folder."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("kept")
    argv = ["sh", "-c", SWAP, "sh", str(outside)]
    given = {"argv": argv, "sandbox": files.sandbox, "execution_id": f"swap-{tmp_path.name}"}
    swapping = files.connection.start("execute", given)
    while not (files.root / "ready").exists():
        pass
    done = 0
    for number in range(150):
        operation, params = [
            ("write", {"path": "d/f", "data": "changed"}),
            ("remove", {"path": "d", "recursive": True}),
            ("copy", {"from": "ready", "to": "d/f"}),
        ][number % 3]
        with suppress(RpcError):
            files(operation, **params)
            done += 1
    files.connection.call("execution/cancel", {"execution_id": given["execution_id"]})
    files.connection.answer(swapping)
    assert done
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"f": "kept"}


def test_protected_files_stay_as_they_are(daemon: Daemon, tmp_path: Path) -> None:
    root = tmp_path.resolve() / "workspace"
    hooks = root / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git" / "objects").mkdir()
    (root / ".git" / "refs").mkdir()
    (hooks / "pre-commit").write_text("original")
    with daemon.connect() as connection:
        files = Files(connection, root)
        with suppress(RpcError):  # landlock puts it back afterwards instead
            files("write", path=".git/hooks/pre-commit", data="changed")
        with suppress(RpcError):  # ... and may have ended the sandbox
            connection.call("sandbox/destroy", {"sandbox": files.sandbox})
    assert (hooks / "pre-commit").read_text() == "original"


def test_a_protected_path_is_not_made_and_the_sandbox_lives_on(files: Files) -> None:
    """By a command it would be moved aside; what appears without one ends the sandbox."""
    files("write", path="plain", data="x")
    assert files.refused("write", path=".vscode/tasks.json", data="x", parents=True) == "EROFS"
    assert files.refused("mkdir", path="sub/../.husky") == "EROFS"
    assert files.refused("write", path=".git/hooks/x", data="x", parents=True) == "EROFS"
    assert files.refused("rename", **{"from": "plain", "to": ".envrc"}) == "EROFS"
    assert files.refused("copy", **{"from": "plain", "to": ".envrc"}) == "EROFS"
    with pytest.raises(RpcError) as error:
        files("write", path=".envrc", data="x")
    assert error.value.data["denial"]["kind"] == "protected_path"
    assert files("read", path="plain")["data"] == "x"
    assert os.listdir(files.root) == ["plain"]


def test_a_killed_server_is_started_again(tmp_path: Path) -> None:
    """`kill -1` reaches only the sandbox: it has a pid namespace."""
    with running_backend("bubblewrap") as daemon, daemon.connect() as connection:
        files = Files(connection, tmp_path.resolve())
        files("write", path="f", data="1")
        files.run("kill -9 -1; true")
        assert files("read", path="f")["data"] == "1"


def test_a_stopped_server_hangs_nobody_else(tmp_path: Path) -> None:
    with running_backend("bubblewrap") as daemon, daemon.connect() as connection:
        files = Files(connection, tmp_path.resolve())
        files("write", path="f", data="1")
        files.run("kill -STOP -1; true")
        waiting = connection.start("fs/read", {"sandbox": files.sandbox, "path": "f"})
        with daemon.connect() as other:
            assert other.call("execute", {"argv": ["true"]})["exit_code"] == 0
        files.run("kill -CONT -1; true")
        assert connection.result(waiting)["data"] == "1"


@pytest.mark.parametrize("params", [{"path": ""}, {"path": "a\0b"}, {"path": "f", "offset": -1}])
def test_bad_params_are_named(files: Files, params: dict[str, Any]) -> None:
    with pytest.raises(RpcError) as error:
        files("read", **params)
    assert error.value.code == -32602


def test_a_copy_onto_itself_keeps_the_file(files: Files) -> None:
    files("write", path="f", data="content")
    (files.root / "link").symlink_to("f")
    os.link(files.root / "f", files.root / "hard")
    for to in ("f", "./f", "link", "hard"):
        assert files.refused("copy", **{"from": "f", "to": to}) == "EINVAL"
    assert (files.root / "f").read_text() == "content"


def test_a_folder_is_not_copied_into_itself_by_a_link(files: Files) -> None:
    files("write", path="d/sub/f", data="1")
    (files.root / "into").symlink_to("d/sub")
    (files.root / "same").symlink_to("d")
    assert files.refused("copy", **{"from": "d", "to": "into", "recursive": True}) == "EINVAL"
    assert files.refused("copy", **{"from": "same", "to": "d/new/", "recursive": True}) == "EINVAL"
    files("copy", **{"from": "same", "to": "c/", "recursive": True})
    assert (files.root / "c" / "sub" / "f").read_text() == "1"
    listed = files("list", path="same", recursive=True)["entries"]
    assert [entry["name"] for entry in listed] == ["sub", "sub/f"]


def test_a_deep_tree_is_removed(files: Files) -> None:
    """Its path is longer than any system call takes. Made here: a shell with 300 children takes
    longer than a command may, on a busy machine."""
    name = "x" * 30
    (files.root / "deep").mkdir()
    place = os.open(files.root / "deep", os.O_RDONLY)
    for _ in range(300):
        os.mkdir(name, dir_fd=place)
        below = os.open(name, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=place))
    os.close(place)
    files("remove", path="deep", recursive=True)
    assert not (files.root / "deep").exists()


def test_what_cannot_be_removed_keeps_its_contents(files: Files) -> None:
    """The control: the same folder by its own name is removed."""
    files("write", path="d/sub/f", data="1")
    (files.root / "link").symlink_to("d")
    for path in ("d/.", "d/sub/..", "link/", "./link//"):
        assert files.refused("remove", path=path, recursive=True) in ("EINVAL", "ENOTDIR")
        assert (files.root / "d" / "sub" / "f").exists()
    files("remove", path="link")
    files("remove", path="d/", recursive=True)
    assert not (files.root / "d").exists()


def test_a_path_that_no_kernel_takes_is_refused_at_once(files: Files) -> None:
    for path in ("x/" * 2048, "x" * (1 << 20)):
        assert files.refused("write", path=path, data="") == "ENAMETOOLONG"
        assert files.refused("read", path=path) == "ENAMETOOLONG"


def test_a_large_folder_is_listed_whole(files: Files) -> None:
    """Its answer is made in pieces; it is the same as of a small one."""
    (files.root / "many").mkdir()
    names = [f"{number:05}" for number in range(1234)]
    for name in names:
        (files.root / "many" / name).write_text(name)
    listed = files("list", path="many")
    assert [entry["name"] for entry in listed["entries"]] == names
    assert listed["truncated"] is False
    alone = files("stat", path="many/00007")
    assert {**listed["entries"][7], "name": ""} == {
        "name": "", "masked": False,
        **{name: alone[name] for name in ("type", "size", "mode", "mtime_ms")},
    }  # fmt: skip


def test_a_large_file_of_control_characters_comes_whole(files: Files) -> None:
    text = '\x01\x02"\\ü' * 60_000
    (files.root / "strange").write_text(text)
    assert files("read", path="strange")["data"] == text


def test_the_servers_own_memory_is_not_read_through_a_link(files: Files) -> None:
    """The control: other files of /proc are read."""
    for name in ("environ", "maps", "mem", "cmdline"):
        (files.root / name).symlink_to(f"/proc/self/{name}")
        assert files.refused("read", path=name) in ("EACCES", "EPERM")
        assert files.refused("copy", **{"from": name, "to": "out"}) in ("EACCES", "EPERM")
    assert files("read", path="/proc/sys/kernel/ostype")["data"] == "Linux\n"


def test_strange_names_come_back(files: Files) -> None:
    for name in ("two\nlines", "tab\t", " ", "ünï", "-rf", "a\\b", '"'):
        files("write", path=name, data="x")
        assert (files.root / name).read_text() == "x"
        assert name in [entry["name"] for entry in files("list", path=".")["entries"]]
        files("remove", path=name)
        assert not (files.root / name).exists()


def test_a_name_that_is_not_text_is_listed_escaped(files: Files) -> None:
    Path(os.fsdecode(os.fsencode(files.root) + b"/\xff")).touch()
    assert r"\udcff" in [entry["name"] for entry in files("list", path=".")["entries"]]
    files("mkdir", path="inside")
    files("rename", **{"from": "inside", "to": "other"})


def test_offsets_beyond_a_file_are_named(files: Files) -> None:
    for offset in (2**63, 2**64, 10**30, -1):
        for operation, more in (("read", {}), ("write", {"data": "x"})):
            with pytest.raises(RpcError) as error:
                files(operation, path="f", offset=offset, **more)
            assert (error.value.code, error.value.field) == (-32602, "offset")
    last = {"path": "f", "offset": 2**63 - 1}
    assert files.refused("write", **last, data="xy") in ("EINVAL", "EFBIG")
    assert files("read", **last, length=2**62)["bytes"] == 0


def test_a_refusal_of_the_sandbox_has_a_denial(files: Files, tmp_path: Path) -> None:
    """The control: what the file system itself refuses has none."""
    outside = Path.home() / "sandboxd-test-outside"
    with pytest.raises(RpcError) as error:
        files("write", path=str(outside), data="x", parents=False)
    denial = error.value.data["denial"]
    assert (denial["kind"], denial["target"]) == ("filesystem_write", str(outside))
    assert denial["message"]
    with pytest.raises(RpcError) as error:
        files("read", path="missing")
    assert "denial" not in error.value.data
    with pytest.raises(RpcError) as error:
        files("list", path="missing/x")
    assert "denial" not in error.value.data


def test_limits_of_the_sandbox_hold_for_files(daemon: Daemon, tmp_path: Path) -> None:
    with daemon.connect() as connection:
        params = {
            "preset": "workspace-write", "workspace": str(tmp_path.resolve()),
            "manifest": {"max_file_bytes": 1000},
        }  # fmt: skip
        sandbox = connection.call("sandbox/create", params)["sandbox"]

        def write(size: int) -> Any:
            given = {"sandbox": sandbox, "path": "f", "data": "x" * size}
            return connection.call("fs/write", given)

        assert write(1000) == {"bytes": 1000}
        with pytest.raises(RpcError) as error:
            write(1001)
        assert error.value.data["errno"] == "EFBIG"
        connection.call("sandbox/destroy", {"sandbox": sandbox})


def test_mounts_are_not_removed_with_what_is_in_them(tmp_path: Path) -> None:
    """On bubblewrap each granted folder is a mount of its own. The control: a plain folder is."""
    root, granted = tmp_path.resolve() / "workspace", tmp_path.resolve() / "workspace" / "a" / "b"
    granted.mkdir(parents=True)
    (granted / "f").write_text("kept")
    (root / "plain").mkdir()
    (root / "plain" / "f").write_text("x")
    with running_backend("bubblewrap") as daemon, daemon.connect() as connection:
        manifest = {"fs_write_allow": [str(root), str(granted)]}
        sandbox = connection.call("sandbox/create", {"manifest": manifest})["sandbox"]

        def remove(path: Path) -> None:
            given = {"sandbox": sandbox, "path": str(path), "recursive": True}
            connection.call("fs/remove", given)

        for path in (granted, root / "a", root, root.parent):
            with pytest.raises(RpcError) as error:
                remove(path)
            assert error.value.data["errno"] in ("EBUSY", "EROFS")
        remove(root / "plain")
    assert (granted / "f").read_text() == "kept"
    assert not (root / "plain").exists()
