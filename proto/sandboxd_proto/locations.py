"""Paths of sockets and folders, decided in one place for daemon and clients."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_NAME = "sandboxd.sock"
KEPT_FOLDER = ".sandboxd-kept"  # in a workspace: protected files that were moved aside
DEFAULT_ENGINE = "unix:///var/run/docker.sock"


def caches_root(env: Mapping[str, str] | None = None, home: str | None = None) -> str:
    """The workspaces' private caches. Root serves other owners too, who cannot enter /root."""
    env = os.environ if env is None else env
    home = os.path.expanduser("~") if home is None else home
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Caches", "sandboxd")
    if sys.platform == "win32":
        return os.path.join(local_folder(env), "caches")
    if os.getuid() == 0:
        return "/var/cache/sandboxd"
    return os.path.join(env.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "sandboxd")


def default_socket(env: Mapping[str, str] | None = None) -> str:
    """`$SANDBOXD_SOCKET`, else the runtime folder's, else the one in /tmp; a pipe on Windows.

    On macOS it is in the user's Library: /tmp is emptied there, and launchd makes no folders.
    """
    env = os.environ if env is None else env
    named = env.get("SANDBOXD_SOCKET")
    if named:
        return named
    if sys.platform == "win32":
        import getpass

        return rf"\\.\pipe\sandboxd-{getpass.getuser()}"
    if sys.platform == "darwin":
        named = _in_library(env)
        if named is not None:
            return named
    runtime = env.get("XDG_RUNTIME_DIR")
    if runtime:
        return os.path.join(runtime, "sandboxd", SOCKET_NAME)
    return f"/tmp/sandboxd-{os.getuid()}/{SOCKET_NAME}"


def local_folder(env: Mapping[str, str] | None = None) -> str:
    """%LOCALAPPDATA%\\sandboxd: the daemon's own files on Windows."""
    env = os.environ if env is None else env
    root = env.get("LOCALAPPDATA") or os.path.join(os.path.expanduser("~"), "AppData", "Local")
    return os.path.join(root, "sandboxd")


def approver_file(socket: str) -> str:
    """Holds the secret of those who may answer approvals and end what other connections run.

    Beside the socket; a pipe lies in no folder, so there it is in the daemon's own.
    """
    if sys.platform == "win32":
        return os.path.join(local_folder(), f"{socket.rpartition(chr(92))[2]}.approver")
    return f"{socket}.approver"


def _in_library(env: Mapping[str, str]) -> str | None:
    home = env.get("HOME", "")
    path = os.path.join(home, "Library", "Application Support", "sandboxd", SOCKET_NAME)
    return path if os.path.isabs(home) and len(os.fsencode(path)) <= 103 else None


def engine_sockets(env: Mapping[str, str]) -> list[str]:
    """Where container engines listen, the usual ones first."""
    home, runtime = env.get("HOME"), env.get("XDG_RUNTIME_DIR")
    found = ["/var/run/docker.sock"]
    if runtime:
        found.append(f"{runtime}/docker.sock")  # rootless Docker
    if home:
        found.append(f"{home}/.docker/run/docker.sock")  # Docker Desktop on macOS
        found.append(f"{home}/.docker/desktop/docker.sock")  # Docker Desktop on Linux
    found.append("/run/podman/podman.sock")
    return [*found, f"{runtime}/podman/podman.sock"] if runtime else found
