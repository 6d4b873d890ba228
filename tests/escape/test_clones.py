"""Two sandboxes of one plan at the same time: nothing of one can be found in the other.

Clones of a template start from the same process and the same mounts, so this is where a mistake
would show. A command that holds one of everything runs in the first; the second looks for it.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box, freely, python, weakest
from support.backends import CLONED, product_name, running_backend

pytestmark = pytest.mark.isolation

NAME = f"sandboxd-clone-{os.getpid()}"
NUMBER = 0x5C000000 | (os.getpid() & 0xFFFF)
FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/dev", "/run", "/")

# Each piece may be refused; the parts that were made are what the second sandbox is asked for.
HOLD = python("""
    import socket
    folder, name, number, folders = args[0], args[1], int(args[2]), args[3:]
    made = []
    def attempt(what, action):
        try:
            action()
            made.append(what)
        except (OSError, ValueError):
            pass
    kept = []
    for place in folders:
        attempt(place, lambda: open(f"{place}/{name}", "w").close())
    attempt("user keyring", lambda: call("add_key", b"user", name.encode(), b"secret", 6, -4))
    attempt("shared memory", lambda: c("shmget", number, 16, 0o1666))
    attempt("posix queue", lambda: c("mq_open", b"/" + name.encode(), os.O_RDWR | os.O_CREAT,
                                     0o666, None))
    def listen(family, address):
        listener = socket.socket(family)
        listener.bind(address)
        listener.listen()
        kept.append(listener)
        return listener
    attempt("abstract socket", lambda: listen(socket.AF_UNIX, chr(0) + name))
    def loopback():
        port = listen(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        open(f"{folder}/port", "w").write(str(port))
    attempt("loopback", loopback)
    open(f"{folder}/pid", "w").write(str(os.getpid()))
    made.append("process")
    open(f"{folder}/made.new", "w").write(chr(10).join(made))
    os.rename(f"{folder}/made.new", f"{folder}/made")
    for _ in range(1200):
        if os.path.exists(f"{folder}/stop"):
            break
        time.sleep(0.05)
    for place in folders:
        attempt("", lambda: os.unlink(f"{place}/{name}"))
    attempt("", lambda: c("mq_unlink", b"/" + name.encode()))
    attempt("", lambda: c("shmctl", c("shmget", number, 16, 0), 0, None))
    worked()
""")
FIND = python("""
    import socket
    what, folder, name, number = args[0], args[1], args[2], int(args[3])
    if what.startswith("/"):
        os.stat(f"{what}/{name}")
    elif what == "user keyring":
        call("keyctl", 10, -4, b"user", name.encode(), 0)
    elif what == "shared memory":
        c("shmget", number, 16, 0)
    elif what == "posix queue":
        c("mq_open", b"/" + name.encode(), os.O_RDWR)
    elif what == "abstract socket":
        socket.socket(socket.AF_UNIX).connect(chr(0) + name)
    elif what == "loopback":
        socket.create_connection(("127.0.0.1", int(open(f"{folder}/port").read())), 2)
    else:
        line = open(f"/proc/{open(f'{folder}/pid').read()}/cmdline").read()
        name in line and "mq_unlink" in line or blocked("another process")
    worked()
""")
KINDS = (*FOLDERS, "user keyring", "shared memory", "posix queue", "abstract socket", "loopback",
         "process")  # fmt: skip


def _made(folder: Path) -> list[str]:
    deadline = time.monotonic() + 60
    while not (folder / "made").exists():
        assert time.monotonic() < deadline, "the first command did not get ready"
        time.sleep(0.02)
    return (folder / "made").read_text().splitlines()


@pytest.fixture(scope="module", params=("bubblewrap", CLONED))
def linux_backend(request: pytest.FixtureRequest) -> Iterator[Box]:
    with running_backend(request.param) as daemon:
        box = Box(product_name(request.param), daemon)
        yield box
        box.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clones").resolve()


@pytest.fixture(scope="module")
def held(linux_backend: Box, shared: Path) -> Iterator[list[str]]:
    """What the first sandbox was able to make."""
    box = Box(linux_backend.backend, linux_backend.daemon)
    for name in ("made", "stop"):
        (shared / name).unlink(missing_ok=True)
    line = (*HOLD, str(shared), NAME, str(NUMBER), *FOLDERS)
    command = threading.Thread(
        target=lambda: box.run(*line, manifest=weakest(shared, network="deny"))
    )
    command.start()
    try:
        yield _made(shared)
    finally:
        (shared / "stop").touch()
        command.join()
        box.close()


@pytest.mark.parametrize("what", KINDS)
def test_a_sandbox_of_the_same_plan_finds_nothing(
    box: Box, held: list[str], shared: Path, what: str
) -> None:
    found = box.attack(FIND, what, shared, NAME, NUMBER, manifest=weakest(shared, network="deny"))
    assert found.blocked, (what, held)


def test_the_first_one_could_make_what_is_looked_for(held: list[str]) -> None:
    assert {"/tmp", "/dev/shm", "shared memory", "loopback", "process"} <= set(held)


def test_without_a_sandbox_all_of_it_is_found(tmp_path: Path) -> None:
    """The control. A user cannot write to / or /run; those parts are then not made."""
    line = (*HOLD, str(tmp_path), NAME, str(NUMBER), *FOLDERS)
    holder = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    try:
        for what in _made(tmp_path):
            assert freely(FIND, what, tmp_path, NAME, NUMBER).worked, what
    finally:
        (tmp_path / "stop").touch()
        holder.wait()
