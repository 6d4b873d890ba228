"""Objects of the kernel that have numbers instead of paths: keyrings, System V IPC, queues."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest
from support.attacks import Box, freely, python, weakest
from support.backends import running_backend

pytestmark = pytest.mark.isolation

# A session keyring of one's own with a key in it; then the program that is named.
WITH_KEY = (
    *python("""
        call("keyctl", 1, None)
        call("add_key", b"user", b"sandboxd-test", b"secret", 6, -3)
        os.execvp(args[0], args)
    """),
)
SEARCH = python("""
    found = call("keyctl", 10, int(args[0]), b"user", b"sandboxd-test", 0)
    data = ctypes.create_string_buffer(16)
    call("keyctl", 11, found, data, 16)
    worked(data.value.decode()) if data.value == b"secret" else blocked("other content")
""")
SESSION, USER = -3, -4


@pytest.fixture(scope="module")
def box_with_key(linux_backend: Box) -> Iterator[Box]:
    """A daemon in whose session keyring lies a key, as it does after a login."""
    with running_backend(linux_backend.backend, prefix=WITH_KEY) as daemon:
        box = Box(linux_backend.backend, daemon)
        yield box
        box.close()


def test_session_keyring_of_the_daemon_is_not_the_commands(box_with_key: Box) -> None:
    """Search the session keyring, which children inherit."""
    assert freely((*WITH_KEY, *SEARCH), SESSION).worked
    assert box_with_key.attack(SEARCH, SESSION).blocked


def _keyctl(*args: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    number = 250 if os.uname().machine == "x86_64" else 219
    return int(libc.syscall(number, *args))


@pytest.fixture
def user_key() -> Iterator[int]:
    """A key in the user's own keyring, which every process of the user shares."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = 248 if os.uname().machine == "x86_64" else 217
    key = int(libc.syscall(number, b"user", b"sandboxd-test", b"secret", 6, USER))
    assert key > 0
    assert _keyctl(5, key, 0x3F3F0000) == 0  # readable by every process of the user, by number
    yield key
    assert _keyctl(9, key, USER) == 0


def test_users_keyring_is_not_searched(box: Box, user_key: int) -> None:
    """Search the user's keyring: tickets and tokens of every session."""
    assert freely(SEARCH, USER).worked
    assert box.attack(SEARCH, USER).blocked
    assert box.attack(SEARCH, USER, preset="read-only").blocked


def test_key_is_not_read_by_its_number(box: Box, user_key: int) -> None:
    """keyctl(READ) by serial number, which no namespace of users hides. The business of every
    filter: also the one that refuses nothing else."""
    attack = python("""
        data = ctypes.create_string_buffer(16)
        call("keyctl", 11, int(args[0]), data, 16)
        worked() if data.value == b"secret" else blocked("other content")
    """)
    assert freely(attack, user_key).worked
    assert box.attack(attack, user_key, preset="read-only").blocked
    assert box.attack(attack, user_key, manifest=weakest()).blocked


SHARED = python("""
    shared = c("shmget", int(args[0]), 16, 0)
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(shared, None, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "shmat")
    worked() if ctypes.string_at(address, 6) == b"secret" else blocked("other content")
""")


def _ipc(name: str, *args: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(getattr(libc, name)(*args))
    assert result >= 0, os.strerror(ctypes.get_errno())
    return result


@pytest.fixture
def number() -> int:
    """A key that no other program uses."""
    return 0x5B000000 | (os.getpid() & 0xFFFF)


def test_shared_memory_is_not_attached(box: Box, number: int) -> None:
    """shmget of another program's segment."""
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    segment = _ipc("shmget", number, 16, 0o1666)
    try:
        ctypes.memmove(libc.shmat(segment, None, 0), b"secret", 6)
        assert freely(SHARED, number).worked
        assert box.attack(SHARED, number).blocked
    finally:
        _ipc("shmctl", segment, 0, None)


def test_message_queue_is_not_read(box: Box, number: int) -> None:
    """msgget and msgrcv of another program's queue."""
    attack = python("""
        queue = c("msgget", int(args[0]), 0)
        c("msgrcv", queue, ctypes.create_string_buffer(64), 32, 0, 0o4000)
        worked()
    """)
    queue = _ipc("msgget", number, 0o1666)
    try:
        for _ in range(2):
            message = ctypes.create_string_buffer((1).to_bytes(8, "little") + b"secret")
            _ipc("msgsnd", queue, message, 6, 0)
        assert freely(attack, number).worked
        assert box.attack(attack, number).blocked
    finally:
        _ipc("msgctl", queue, 0, None)


def test_semaphore_is_not_changed(box: Box, number: int) -> None:
    """semget and semctl of another program's lock."""
    attack = python("""
        lock = c("semget", int(args[0]), 1, 0)
        c("semctl", lock, 0, 16, 7)
        worked()
    """)
    semaphore = _ipc("semget", number, 1, 0o1666)
    try:
        assert freely(attack, number).worked
        assert _ipc("semctl", semaphore, 0, 12) == 7
        _ipc("semctl", semaphore, 0, 16, 1)
        assert box.attack(attack, number).blocked
        assert _ipc("semctl", semaphore, 0, 12) == 1
    finally:
        _ipc("semctl", semaphore, 0, 0)


def test_posix_queue_is_not_opened(box: Box) -> None:
    """mq_open by name, on a mount of the kernel's own."""
    attack = python("c('mq_open', args[0].encode(), os.O_RDWR); worked()")
    name = f"/sandboxd-test-{os.getpid()}"
    queue = _ipc("mq_open", name.encode(), os.O_RDWR | os.O_CREAT, 0o666, None)
    try:
        assert freely(attack, name).worked
        assert box.attack(attack, name).blocked
    finally:
        os.close(queue)
        _ipc("mq_unlink", name.encode())
