"""Where daemon and clients meet: the socket path, decided the same way on both sides."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_NAME = "sandboxd.sock"


def default_socket(env: Mapping[str, str] | None = None) -> str:
    """`$SANDBOXD_SOCKET`, else the runtime folder's, else the one in /tmp; a pipe on Windows."""
    env = os.environ if env is None else env
    named = env.get("SANDBOXD_SOCKET")
    if named:
        return named
    if sys.platform == "win32":
        import getpass

        return rf"\\.\pipe\sandboxd-{getpass.getuser()}"
    runtime = env.get("XDG_RUNTIME_DIR")
    if runtime:
        return os.path.join(runtime, "sandboxd", SOCKET_NAME)
    return f"/tmp/sandboxd-{os.getuid()}/{SOCKET_NAME}"
