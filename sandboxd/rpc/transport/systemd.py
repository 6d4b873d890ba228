"""systemd: sockets that it opened for us, readiness and the watchdog. No library needed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import anyio

FIRST_FD = 3


def activated_socket(env: Mapping[str, str]) -> socket.socket | None:
    """The listening socket of LISTEN_FDS, if it is meant for this process."""
    if env.get("LISTEN_PID") != str(os.getpid()) or env.get("LISTEN_FDS") != "1":
        return None
    os.set_inheritable(FIRST_FD, False)
    return socket.socket(fileno=FIRST_FD)


class Notifier:
    """`sd_notify`: does nothing without NOTIFY_SOCKET."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._address = env.get("NOTIFY_SOCKET", "")
        usec = env.get("WATCHDOG_USEC", "")
        mine = env.get("WATCHDOG_PID") in (None, str(os.getpid()))
        self._interval_s = int(usec) / 2e6 if usec.isdigit() and mine else None

    def say(self, text: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            try:
                sock.sendto(text.encode(), address)
            except BlockingIOError:
                pass  # nobody reads them: the loop does not wait for that
            except OSError:
                self._address = ""

    async def watchdog(self) -> None:
        """Runs on the event loop: if the loop hangs, systemd gets no message and restarts the
        daemon."""
        while self._interval_s is not None:
            self.say("WATCHDOG=1")
            await anyio.sleep(self._interval_s)
