"""Start the daemon, and end one.

It is started under a lock next to the socket, in a private folder, in its own session, at /, with a
short list of the caller's variables: a daemon that inherited an agent's environment would let the
agent set the keys that switch the sandbox off.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sandboxd_client import handshake, transport
from sandboxd_client.errors import DaemonNotRunning, ServerNotTrusted
from sandboxd_client.ignored_variables import is_none
from sandboxd_client.in_sandbox import is_inside
from sandboxd_proto.errors import SandboxdError

if TYPE_CHECKING:
    from _socket import socket

IDLE_EXIT_S = 600
START_LIMIT_S = 20.0
STOP_LIMIT_S = 20.0
LOG_KEEP_BYTES = 256 * 1024
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR")
_OWN_ERROR = "sandboxd: error: "
_NEVER = ("SANDBOXD_ALLOW_NO_SANDBOX", "SANDBOXD_SOCKET")


def start(path: str) -> None:
    """Afterwards a daemon listens on `path`: this one, or one that another client started."""
    if sys.platform == "win32":
        from sandboxd_client import start_daemon_windows

        start_daemon_windows.start(path)
        return
    if is_inside():
        raise transport.inside_error()
    path = os.path.abspath(path)
    transport.check_place(path)
    _own_folder(os.path.dirname(path))
    with _lock(path + ".start"):
        if not is_listening(path):
            _spawn(path)


def stop(sock: socket, path: str) -> None:
    """Ask the daemon to end, and wait until nothing listens any more."""
    handshake.ask(sock, "shutdown")
    deadline = time.monotonic() + STOP_LIMIT_S
    while is_listening(path):
        if time.monotonic() > deadline:
            raise SandboxdError("the daemon does not end", remedy="see its log, then kill it")
        time.sleep(0.01)


def check_start() -> None:
    """DaemonNotRunning where a new daemon would not start: its program, or the config."""
    done = subprocess.run(
        [*program(), "--check-config"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, cwd="/", env={**environment(os.environ), **source_tree()},
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace").strip().splitlines()
        last = said[-1].removeprefix(_OWN_ERROR) if said else f"it ended with {done.returncode}"
        raise DaemonNotRunning(
            f"a new daemon would not start: {last}",
            remedy="the old one still runs; fix that and restart again",
        )


def command(path: str) -> list[str]:
    return [*program(), "--socket", path, "--idle-exit", str(IDLE_EXIT_S)]


def program() -> list[str]:
    """The daemon that is installed with this client; else one in PATH (a client alone)."""
    beside = os.path.join(os.path.dirname(sys.executable), "sandboxd")
    if os.access(beside, os.X_OK):
        return [beside]
    if find_spec("sandboxd") is not None:
        return [sys.executable, "-m", "sandboxd"]
    elsewhere = shutil.which("sandboxd")
    if elsewhere is None:
        raise DaemonNotRunning(
            "no daemon runs, and sandboxd is not installed",
            remedy="install sandboxd (this is its client alone), or put it into PATH",
        )
    return [os.path.abspath(elsewhere)]


def environment(caller: Mapping[str, str]) -> dict[str, str]:
    """The caller's variables that the daemon gets. Never one of the two keys of `none`."""
    kept = {
        name: value
        for name, value in caller.items()
        if name in _INHERITED or name.startswith(("XDG_", "SANDBOXD_"))
    }
    for name in _NEVER:
        kept.pop(name, None)
    if is_none(kept):
        del kept["SANDBOXD_BACKEND"]
    return kept


def _own_folder(folder: str) -> None:
    with suppress(FileExistsError):
        try:
            os.mkdir(folder, 0o700)
        except FileNotFoundError:
            above = os.path.dirname(folder)
            unset = "unset XDG_RUNTIME_DIR, or " * (os.environ.get("XDG_RUNTIME_DIR") == above)
            raise DaemonNotRunning(
                f"the folder {folder} for the daemon's socket cannot be made",
                remedy=f"{unset}set SANDBOXD_SOCKET to a path in a folder of your own",
                cause=f"{above} does not exist",
            ) from None
        except FileExistsError:
            raise
        except OSError as error:
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
    """A file next to the socket; a symlink in its place is not followed."""
    try:
        return os.open(name, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        raise DaemonNotRunning(
            f"{name} cannot be opened", cause=error.strerror, remedy="check its owner and mode"
        ) from None


def is_listening(path: str) -> bool:
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
            env={**environment(os.environ), **source_tree()}, start_new_session=True,
            umask=0o077 if sys.platform != "win32" else -1,
        )  # fmt: skip
    finally:
        os.close(log)
    deadline = time.monotonic() + START_LIMIT_S
    while not is_listening(path):
        if process.poll() is not None or time.monotonic() > deadline:
            if process.poll() is None:
                process.kill()
                process.wait()
            raise start_error(name, before, process.returncode)
        time.sleep(0.005)
    # It outlives this process; without this Popen would warn about it.
    process.returncode = 0


def source_tree() -> dict[str, str]:
    """PYTHONPATH for a daemon that runs from a checkout and is not installed."""
    if len(program()) == 1:
        return {}
    roots: list[str] = []
    for package in ("sandboxd", "sandboxd_proto"):
        spec = find_spec(package)
        if spec is not None and spec.origin:
            roots.append(os.path.dirname(os.path.dirname(os.path.abspath(spec.origin))))
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(roots))}


def start_error(log: str, before: int, code: int) -> DaemonNotRunning:
    with open(log, "rb") as handle:
        handle.seek(before)
        tail = handle.read().decode(errors="replace").strip().splitlines()[-8:]
    errors = [line.removeprefix(_OWN_ERROR) for line in tail if line.startswith(_OWN_ERROR)]
    if errors:
        return DaemonNotRunning(
            f"the daemon does not start: {errors[-1]}",
            remedy="mend what the message names, then try again; `sandboxctl config check` reads "
            "the config alone",
        )
    said = "".join(f"\n    {line}" for line in tail)
    return DaemonNotRunning(
        "the daemon could not be started",
        cause=f"it ended with code {code}{' and said:' + said if said else ' and said nothing'}",
        remedy=f"its log is {log}",
    )
