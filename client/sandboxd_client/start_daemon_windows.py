"""Start the daemon on Windows: under a named mutex, without a console, outside of our own job."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import c_void_p

from sandboxd_client import start_daemon
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_proto.locations import local_folder

assert sys.platform == "win32"

_INHERITED = (
    "PATH", "PATHEXT", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "USERPROFILE", "USERNAME",
    "LOCALAPPDATA", "APPDATA", "TEMP", "TMP", "COMSPEC",
)  # fmt: skip
_ABANDONED, _TIMEOUT = 0x80, 0x102
_BREAKAWAY_REFUSED = 5


def start(path: str) -> None:
    """A daemon listens on `path` afterwards: ours, or one that another client just started."""
    with _mutex(path):
        if not start_daemon.is_listening(path):
            _spawn(path)


def environment(caller: Mapping[str, str]) -> dict[str, str]:
    """What the daemon may know of the caller. Neither key of `none` is ever passed on."""
    kept = {name: value for name, value in caller.items() if name.upper() in _INHERITED}
    return {**start_daemon.environment(caller), **kept}


@contextmanager
def _mutex(path: str) -> Iterator[None]:
    kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel32.CreateMutexW.restype = c_void_p
    name = "Local\\sandboxd-starts-" + path.lower().replace("\\", "/")
    handle = c_void_p(kernel32.CreateMutexW(None, False, name))
    if not handle:
        raise ctypes.WinError(ctypes.get_last_error())
    try:
        limit = int(start_daemon.START_LIMIT_S * 2000)
        if kernel32.WaitForSingleObject(handle, limit) == _TIMEOUT:
            raise DaemonNotRunning("another client starts the daemon, and does not end")
        try:
            yield
        finally:
            kernel32.ReleaseMutex(handle)
    finally:
        kernel32.CloseHandle(handle)


def _spawn(path: str) -> None:
    folder = local_folder()
    os.makedirs(folder, exist_ok=True)
    name = os.path.join(folder, "sandboxd.log")
    with open(name, "ab") as log:
        if log.tell() > start_daemon.LOG_KEEP_BYTES:
            log.truncate(0)
        before = log.tell()
        process = _popen(path, log.fileno())
    deadline = time.monotonic() + 2 * start_daemon.START_LIMIT_S
    while not start_daemon.is_listening(path):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise start_daemon.start_error(name, before, process.wait())
        time.sleep(0.02)
    process.returncode = 0  # it is meant to outlive this process


def _popen(path: str, log: int) -> subprocess.Popen[bytes]:
    flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
    env = {**environment(os.environ), **start_daemon.source_tree()}
    for more in (subprocess.CREATE_BREAKAWAY_FROM_JOB, 0):
        try:
            return subprocess.Popen(
                start_daemon.command(path), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=os.environ.get("SYSTEMROOT", "C:\\"), env=env, creationflags=flags | more,
            )  # fmt: skip
        except OSError as error:
            if not more or error.winerror != _BREAKAWAY_REFUSED:
                raise
    raise AssertionError("unreachable")
