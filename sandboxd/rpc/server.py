"""Accept connections until the daemon is told to stop or has been idle."""

from __future__ import annotations

import logging
import time

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from sandboxd.rpc.connection import Connection
from sandboxd.rpc.service import Service
from sandboxd.rpc.transport.interface import Accepted, Listener

log = logging.getLogger(__name__)


async def accept_all(listener: Listener, service: Service, tasks: TaskGroup) -> None:
    allow = service.machine.config.peers.allow_other_namespaces
    while True:
        client = await listener.accept(allow_other_namespaces=allow)
        tasks.start_soon(_serve, client, service)
        # One in a turn: a client that goes on connecting would be all that is served.
        await anyio.lowlevel.checkpoint()


async def _serve(client: Accepted, service: Service) -> None:
    """An error in one connection ends that connection."""
    service.clients += 1
    try:
        client.identify()
        await Connection(client.transport(), service, client.refusal, client.pid).serve()
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
            log.info("idle for %g s: the daemon ends", idle_s)
            service.stop.set()
            return
        await anyio.sleep(min(max(left, 0.05), 5.0))
