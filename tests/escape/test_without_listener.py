"""A kernel that gives the init no listener: nothing that the init would judge is allowed then."""

from __future__ import annotations

import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box, freely, python, weakest
from support.backends import running_backend

pytestmark = pytest.mark.isolation

WITHOUT = str(Path(__file__).parents[1] / "support" / "without_syscalls.py")

REACH = python("""
    way, path = args
    kind = socket.SOCK_DGRAM if way == "datagram" else socket.SOCK_STREAM
    if way == "pair":
        mine, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        kind = socket.SOCK_DGRAM
    else:
        mine = socket.socket(socket.AF_UNIX, kind)
    mine.connect(path + (".dgram" if kind == socket.SOCK_DGRAM else ""))
    mine.send(b"attack")
    worked()
""")
OWN = python("""
    one, other = socket.socketpair()
    one.send(b"hi")
    assert other.recv(2) == b"hi"
    try:
        socket.socket(socket.AF_UNIX)
    except OSError as error:
        blocked(errno.errorcode[error.errno])
    worked()
""")
SET_GID = python("""
    os.close(os.open(args[0], os.O_CREAT | os.O_WRONLY, 0o755))
    os.chmod(args[0], 0o2755)
    worked()
""")


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    prefix = [sys.executable, WITHOUT, "listener"]
    with running_backend(request.param, prefix=prefix) as daemon:
        box = Box(request.param, daemon)
        yield box
        box.close()


@pytest.fixture
def service() -> Iterator[Path]:
    """A stream server and a datagram server of the host in a folder with a short name."""
    with (
        tempfile.TemporaryDirectory(prefix="sbxs-") as folder,
        socket.socket(socket.AF_UNIX) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        path = Path(folder).resolve() / "w" / "s"
        path.parent.mkdir()
        stream.bind(str(path))
        stream.listen()
        datagrams.bind(f"{path}.dgram")
        yield path


@pytest.mark.parametrize("network", ["inherit", "deny"])
def test_no_socket_of_the_host_is_reached(box: Box, service: Path, network: str) -> None:
    """Also not the one that is named: who is connected to cannot be judged."""
    manifest = weakest(
        service.parent, network=network, fs_read_allow=[str(service), f"{service}.dgram"]
    )
    for way in ("stream", "datagram", "pair"):
        assert freely(REACH, way, service).worked
        assert box.attack(REACH, way, service, manifest=manifest).blocked


def test_pairs_are_all_that_is_left(box: Box) -> None:
    assert freely(OWN).worked
    found = box.attack(OWN)
    assert found.blocked
    assert found.words == "EPERM"


def test_a_persistent_sandbox_refuses_too(box: Box, service: Path) -> None:
    manifest = weakest(service.parent)
    name = box.connection.call("sandbox/create", {"manifest": manifest})["sandbox"]
    for _ in range(2):
        params = {"argv": [*REACH, "stream", str(service)], "sandbox": name}
        assert box.connection.call("execute", params)["exit_code"] == 43
    box.connection.call("sandbox/destroy", {"sandbox": name})


def test_no_file_gets_the_set_group_id_bit(box: Box, tmp_path: Path) -> None:
    free, inside = tmp_path / "free", tmp_path / "inside"
    assert freely(SET_GID, free).worked
    assert free.stat().st_mode & stat.S_ISGID
    assert box.attack(SET_GID, inside, manifest=weakest(tmp_path)).blocked
    assert not inside.stat().st_mode & stat.S_ISGID
