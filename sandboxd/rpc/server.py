"""Accept connections until the daemon is told to stop; leave when nobody needs it any more."""

from __future__ import annotations

import errno
import logging
import socket
import time

import anyio
from anyio.abc import TaskGroup

from sandboxd.rpc.channel import Channel
from sandboxd.rpc.connection import Connection
from sandboxd.rpc.peers import refusal
from sandboxd.rpc.service import Service

log = logging.getLogger(__name__)
_RETRY = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


async def accept_all(sock: socket.socket, service: Service, tasks: TaskGroup) -> None:
    while True:
        try:
            client, _ = sock.accept()
        except BlockingIOError:
            await anyio.wait_readable(sock)
            continue
        except OSError as error:
            log.warning("cannot accept a connection: %s", error.strerror)
            await anyio.sleep(0.1 if error.errno in _RETRY else 1.0)
            continue
        tasks.start_soon(_serve, client, service)


async def _serve(client: socket.socket, service: Service) -> None:
    """An error in one connection ends that connection."""
    allow = service.machine.config.peers.allow_other_namespaces
    service.clients += 1
    try:
        refused = refusal(client, allow_other_namespaces=allow)
        if refused is not None:
            log.warning("refused a peer: %s", refused.message)
        await Connection(Channel(client), service, refused).serve()
    except Exception:
        log.exception("a connection failed")
    finally:
        client.close()
        service.clients -= 1
        service.last_busy = time.monotonic()


async def exit_when_idle(service: Service, idle_s: float) -> None:
    """Stops the daemon after `idle_s` without a client or an execution."""
    while True:
        supervisor = service.supervisor
        if service.clients or len(supervisor.executions) or len(supervisor.sandboxes):
            service.last_busy = time.monotonic()
        left = idle_s - (time.monotonic() - service.last_busy)
        if left <= 0:
            log.info("nobody needed the daemon for %g s: it ends", idle_s)
            service.stop.set()
            return
        await anyio.sleep(min(max(left, 0.05), 5.0))
