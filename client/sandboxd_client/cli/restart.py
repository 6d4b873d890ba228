"""`sandboxctl restart`: a fresh daemon, with the config as it is now."""

from __future__ import annotations

import os

from sandboxd_client import handshake, start_daemon, transport
from sandboxd_client.autostart import nobody_there
from sandboxd_client.cli.connect import socket_path
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import say
from sandboxd_client.cli.shutdown import in_the_way, in_use_error
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_client.ignored_variables import ignored_keys
from sandboxd_proto.errors import SandboxdError


def main(options: Options) -> int:
    path = socket_path(options)
    try:
        sock = transport.connect(path)
    except DaemonNotRunning as error:
        if not nobody_there(error):
            raise
        sock = None
    if sock is not None:
        try:
            status = handshake.ask(sock, "status")
            running = in_the_way(status, path)
            if running and not options.has("--force"):
                raise in_use_error(running)
            start_daemon.check_start()
            start_daemon.stop(sock, path)
        finally:
            sock.close()
    try:
        start_daemon.start(path)
    except SandboxdError as error:
        if sock is not None:
            error.message = f"the old daemon has ended, and no new one runs: {error.message}"
        raise
    if keys := ignored_keys(os.environ):
        say(f"warning: {keys}")
    say(f"a new daemon listens on {path}")
    return 0
