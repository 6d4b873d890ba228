"""A property list for the user's launchd. Not verified on a real macOS.

launchd holds the socket and starts the daemon at the first connection; the daemon takes the socket
over by `launch_activate_socket`.
"""

from __future__ import annotations

import os
import plistlib
import sys
from collections.abc import Mapping

from sandboxd_client.service import ServiceFile, ServicePlan
from sandboxd_proto.locations import default_socket

LABEL = "dev.sandboxd.sandboxd"
SOCKET_NAME = "Listener"  # the daemon asks for it by this name
MOST_SOCKET_BYTES = 103


def plan(program: list[str], environ: Mapping[str, str], uid: int | None = None) -> ServicePlan:
    home = environ.get("HOME") or os.path.expanduser("~")
    socket = default_socket(environ)
    if len(os.fsencode(socket)) > MOST_SOCKET_BYTES:
        raise ValueError(f"the socket path {socket} is longer than {MOST_SOCKET_BYTES} bytes")
    path = os.path.join(home, "Library", "LaunchAgents", f"{LABEL}.plist")
    if uid is None and sys.platform != "win32":
        uid = os.getuid()
    domain = f"gui/{uid}"
    return ServicePlan(
        manager="launchd",
        files=(ServiceFile(path, property_list(program, socket, home)),),
        start=(("launchctl", "bootstrap", domain, path),),
        stop=(("launchctl", "bootout", f"{domain}/{LABEL}"),),
        is_active=("launchctl", "print", f"{domain}/{LABEL}"),
        note="the daemon starts at the first connection (not verified on a real macOS)",
    )


def property_list(program: list[str], socket: str, home: str) -> bytes:
    content = {
        "Label": LABEL,
        "ProgramArguments": program,
        "Sockets": {
            SOCKET_NAME: {
                "SockFamily": "Unix",
                "SockPathName": socket,
                "SockPathMode": 0o600,
            }
        },
        # launchd gives only /usr/bin:/bin:/usr/sbin:/sbin, where no tool of Homebrew's is found.
        "EnvironmentVariables": {
            "PATH": "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        },
        "StandardErrorPath": os.path.join(home, "Library", "Logs", "sandboxd.log"),
        "ProcessType": "Interactive",
        "Umask": 0o077,
        "ExitTimeOut": 15,
    }
    return plistlib.dumps(content, sort_keys=False)
