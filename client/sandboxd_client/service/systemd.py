"""Units for the user's systemd: a socket that is always there, and the daemon that it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sandboxd_client.service import ServiceFile, ServicePlan

SERVICE = """\
# User unit, started by sandboxd.socket. `sandboxctl service install` writes it with the path of the
# sandboxd that is installed; changes of your own go into `systemctl --user edit sandboxd.service`.
[Unit]
Description=sandboxd: run commands in a sandbox
Requires=sandboxd.socket
After=sandboxd.socket

[Service]
Type=notify
ExecStart={program}
WatchdogSec=30
Restart=on-failure
# Limits (memory, processes, CPU) are enforced with cgroups of our own below this unit's.
Delegate=yes
# A command that runs out of memory must not take the daemon with it.
OOMPolicy=continue
# The daemon ends its children itself; systemd kills what is left after that.
KillMode=mixed
TimeoutStopSec=15
# No other hardening here: ProtectControlGroups, RestrictNamespaces, ProcSubset=pid,
# RestrictAddressFamilies=AF_UNIX and a SystemCallFilter without @mount break bubblewrap or cgroups.
NoNewPrivileges=yes

[Install]
Also=sandboxd.socket
"""
SOCKET = """\
# User unit: the daemon starts at the first connection. Written by `sandboxctl service install`.
[Unit]
Description=sandboxd: run commands in a sandbox (socket)

[Socket]
ListenStream=%t/sandboxd/sandboxd.sock
SocketMode=0600
DirectoryMode=0700

[Install]
WantedBy=sockets.target
"""
_CTL = ("systemctl", "--user")
_UNREACHABLE = (
    "if this machine runs systemd, log in as this user (su and sudo -u give no systemd of the "
    "user's own), or let root run `loginctl enable-linger USER`; without a service sandboxctl "
    "starts the daemon when needed"
)


def plan(program: list[str], environ: Mapping[str, str]) -> ServicePlan:
    folder = os.path.join(config_home(environ), "systemd", "user")
    service = SERVICE.format(program=" ".join(map(quoted, program)))
    return ServicePlan(
        manager="systemd",
        files=(
            ServiceFile(os.path.join(folder, "sandboxd.service"), service.encode()),
            ServiceFile(os.path.join(folder, "sandboxd.socket"), SOCKET.encode()),
        ),
        start=((*_CTL, "enable", "--now", "sandboxd.socket"),),
        stop=((*_CTL, "disable", "--now", "sandboxd.socket", "sandboxd.service"),),
        is_active=(*_CTL, "is-active", "--quiet", "sandboxd.socket"),
        reload=((*_CTL, "daemon-reload"),),
        note="the daemon starts at the first connection",
        reaches=(*_CTL, "show-environment"),
        unreachable=_UNREACHABLE,
    )


def config_home(environ: Mapping[str, str]) -> str:
    given = environ.get("XDG_CONFIG_HOME", "")
    return given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".config")


def quoted(word: str) -> str:
    """A word of ExecStart: specifiers and variables are escaped, and it is quoted if need be."""
    if any(ord(char) < 32 for char in word):
        raise ValueError(f"{word!r} cannot be part of a unit")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("%", "%%").replace("$", "$$")
    plain = all(char.isalnum() or char in "/._-+@:%$" for char in word) and word
    return escaped if plain else f'"{escaped}"'
