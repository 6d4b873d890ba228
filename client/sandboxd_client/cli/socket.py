"""`sandboxctl socket`: where the daemon listens, for other clients and scripts."""

from __future__ import annotations

from sandboxd_client.cli.connect import socket_path
from sandboxd_client.cli.parse import Options


def main(options: Options) -> int:
    if options.has("--start"):
        from sandboxd_client.autostart import open_connection

        open_connection(socket_path(options), client="sandboxctl").close()
    print(socket_path(options))
    return 0
