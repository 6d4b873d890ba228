"""Start the daemon the way that it must be started, and end one and see it gone.

Under a lock next to the socket, in a folder that is ours alone; in its own session, at /, with
nothing of the caller but a short list of variables: a daemon that inherits an agent's environment
would hand the agent the keys that switch the sandbox off.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sandboxd_client import handshake, transport
from sandboxd_client.errors import DaemonNotRunning, ServerNotTrusted
from sandboxd_proto.errors import SandboxdError

if TYPE_CHECKING:
    from _socket import socket

IDLE_EXIT_S = 600
START_LIMIT_S = 20.0
STOP_LIMIT_S = 20.0
LOG_KEEP_BYTES = 256 * 1024
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR")
_NEVER = ("SANDBOXD_ALLOW_NO_SANDBOX", "SANDBOXD_SOCKET")


def start(path: str) -> None:
    """A daemon listens on `path` afterwards: ours, or one that somebody else just started."""
    path = os.path.abspath(path)
    _own_folder(os.path.dirname(path))
    with _lock(path + ".start"):
        if not _listens(path):
            _spawn(path)


def stop(sock: socket, path: str) -> None:
    """Tell the daemon to end, and wait until nobody listens any more."""
    handshake.ask(sock, "shutdown")
    deadline = time.monotonic() + STOP_LIMIT_S
    while _listens(path):
        if time.monotonic() > deadline:
            raise SandboxdError("the daemon does not end", remedy="see its log, then kill it")
        time.sleep(0.01)


def command(path: str) -> list[str]:
    beside = os.path.join(os.path.dirname(sys.executable), "sandboxd")
    program = [beside] if os.access(beside, os.X_OK) else [sys.executable, "-m", "sandboxd"]
    return [*program, "--socket", path, "--idle-exit", str(IDLE_EXIT_S)]


def environment(caller: Mapping[str, str]) -> dict[str, str]:
    """What the daemon may know of the caller. Neither key of `none` is ever passed on."""
    kept = {
        name: value
        for name, value in caller.items()
        if name in _INHERITED or name.startswith(("XDG_", "SANDBOXD_"))
    }
    for name in _NEVER:
        kept.pop(name, None)
    if kept.get("SANDBOXD_BACKEND", "").strip().lower() == "none":
        del kept["SANDBOXD_BACKEND"]
    return kept


def _own_folder(folder: str) -> None:
    with suppress(FileExistsError):
        try:
            os.mkdir(folder, 0o700)
        except FileNotFoundError:
            raise DaemonNotRunning(
                f"the folder {folder} for the daemon's socket cannot be made",
                remedy="set SANDBOXD_SOCKET to a path in a folder of your own",
                cause=f"{os.path.dirname(folder)} does not exist",
            ) from None
        except PermissionError as error:
            raise DaemonNotRunning(
                f"the folder {folder} for the daemon's socket cannot be made",
                remedy="set SANDBOXD_SOCKET to a path in a folder of your own",
                cause=str(error.strerror),
            ) from None
    status = os.lstat(folder)
    if sys.platform != "win32" and (
        not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022
    ):
        raise ServerNotTrusted(
            f"the folder {folder} is not yours alone, so no daemon is started in it",
            remedy="set SANDBOXD_SOCKET to a path in a folder of your own (mode 0700)",
            cause=f"its owner is uid {status.st_uid}, its mode {stat.filemode(status.st_mode)}",
        )


@contextmanager
def _lock(name: str) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = _open_own(name, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open_own(name: str, flags: int) -> int:
    """A file next to the socket; a link that somebody put there is not followed."""
    try:
        return os.open(name, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        raise DaemonNotRunning(
            f"{name} cannot be opened", cause=error.strerror, remedy="check its owner and mode"
        ) from None


def _listens(path: str) -> bool:
    try:
        transport.connect(path).close()
    except DaemonNotRunning:
        return False
    return True


def _spawn(path: str) -> None:
    name = path.removesuffix(".sock") + ".log"
    log = _open_own(name, os.O_WRONLY | os.O_APPEND)
    try:
        if os.fstat(log).st_size > LOG_KEEP_BYTES:
            os.ftruncate(log, 0)
        before = os.fstat(log).st_size
        process = subprocess.Popen(
            command(path), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
            env={**environment(os.environ), **_source_tree()}, start_new_session=True,
            umask=0o077 if sys.platform != "win32" else -1,
        )  # fmt: skip
    finally:
        os.close(log)
    deadline = time.monotonic() + START_LIMIT_S
    while not _listens(path):
        if process.poll() is not None or time.monotonic() > deadline:
            if process.poll() is None:
                process.kill()
                process.wait()
            raise _failed(name, before, process.returncode)
        time.sleep(0.005)
    # It is meant to outlive this process; without this Popen would warn that it does.
    process.returncode = 0


def _source_tree() -> dict[str, str]:
    """PYTHONPATH for a daemon that runs from a checkout and is not installed."""
    if len(command("")) == 4 + 1:
        return {}
    from importlib.util import find_spec

    roots: list[str] = []
    for package in ("sandboxd", "sandboxd_proto"):
        spec = find_spec(package)
        if spec is not None and spec.origin:
            roots.append(os.path.dirname(os.path.dirname(os.path.abspath(spec.origin))))
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(roots))}


def _failed(log: str, before: int, code: int) -> DaemonNotRunning:
    with open(log, "rb") as handle:
        handle.seek(before)
        tail = handle.read().decode(errors="replace").strip().splitlines()[-8:]
    said = "".join(f"\n    {line}" for line in tail)
    return DaemonNotRunning(
        "the daemon could not be started",
        cause=f"it ended with code {code}{' and said:' + said if said else ' and said nothing'}",
        remedy=f"its log is {log}",
    )
