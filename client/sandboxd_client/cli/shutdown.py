"""`sandboxctl shutdown`: end every command, then the daemon; returns when it is gone."""

from __future__ import annotations

from sandboxd_client import start_daemon, transport
from sandboxd_client.cli.connect import print_json, socket_path
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import say
from sandboxd_client.errors import DaemonNotRunning


def main(options: Options) -> int:
    path = socket_path(options)
    try:
        sock = transport.connect(path)
    except DaemonNotRunning:
        say(f"no daemon listens on {path}")
    else:
        try:
            start_daemon.stop(sock, path)
        finally:
            sock.close()
    if options.has("--json"):
        print_json({})
    return 0
