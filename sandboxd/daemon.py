"""The one place that builds everything and runs it until it is told to stop."""

from __future__ import annotations

import logging
import os
import pwd
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import anyio

from sandboxd.backends.bubblewrap.program import find as find_bwrap
from sandboxd.backends.registry import Registry, registry
from sandboxd.backends.support import LinuxSupport
from sandboxd.config import Config
from sandboxd.egress.service import EgressService
from sandboxd.linux import cgroups, init_binary
from sandboxd.linux.cgroup_tree import NotDelegated
from sandboxd.linux.curated_etc import CuratedEtc
from sandboxd.linux.state import StateFolder
from sandboxd.policy.layout import Host
from sandboxd.policy.own import OwnPaths
from sandboxd.policy.plan_cache import PlanCache
from sandboxd.policy.resolve import Machine
from sandboxd.rpc.dispatch import Dispatcher
from sandboxd.rpc.handlers import TABLE
from sandboxd.rpc.listener import Listener, ListenError, adopt, listen
from sandboxd.rpc.server import accept_all, exit_when_idle
from sandboxd.rpc.service import Service
from sandboxd.rpc.systemd import Notifier, activated_socket
from sandboxd.supervisor.facts import landlock_abi
from sandboxd.supervisor.judge import Bench
from sandboxd.supervisor.supervisor import running
from sandboxd_proto.locations import default_socket

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    config: Config
    config_path: str
    socket: str | None = None
    idle_exit_s: float | None = None


def run(start: Start) -> int:
    """The exit code: 0 after SIGTERM, SIGINT or `shutdown`, 1 if the daemon could not start."""
    notifier = Notifier(os.environ)
    try:
        listener = _listener(start)
    except ListenError as error:
        print(f"sandboxd: error: {error}", file=sys.stderr)
        return 1
    try:
        with _parts(start, listener) as parts:
            anyio.run(_serve, start, listener, parts, notifier)
    finally:
        listener.close()
    return 0


def _listener(start: Start) -> Listener:
    inherited = activated_socket(os.environ)
    if inherited is not None:
        return adopt(inherited)
    return listen(start.socket or default_socket())


@dataclass(frozen=True, slots=True)
class Parts:
    machine: Machine
    registry: Registry
    bench: Bench
    egress: EgressService


@contextmanager
def _parts(start: Start, listener: Listener) -> Iterator[Parts]:
    with ExitStack() as held:
        home = pwd.getpwuid(os.getuid()).pw_dir
        host = Host.current(home)
        state = StateFolder(f"{listener.path}.state" if listener.made_here else None)
        held.callback(state.close)
        egress = EgressService(start.config.egress)
        support = _support(state, host, egress)
        machine = Machine(
            config=start.config,
            host=host,
            own=OwnPaths.current(_hidden(start, listener, state), _programs()),
            home=home,
            uid=os.getuid(),
            caches_root=_caches_root(home),
        )
        bench = Bench(host=host, landlock=landlock_abi() > 0, root=os.getuid() == 0)
        backends = registry(start.config, support, listener.path)
        yield Parts(machine, backends, bench, egress)


def _support(state: StateFolder, host: Host, egress: EgressService) -> LinuxSupport:
    delegated = cgroups.take()
    return LinuxSupport(
        init_binary.load(), state, CuratedEtc(state), host, egress,
        cgroups=None if isinstance(delegated, NotDelegated) else delegated,
        why_no_cgroups=delegated.reason if isinstance(delegated, NotDelegated) else "",
    )  # fmt: skip


def _own_folder(listener: Listener) -> str | None:
    """The socket's folder, where it is ours alone; a shared one is left to others."""
    folder = os.path.dirname(listener.path)
    return folder if os.path.basename(folder).startswith("sandboxd") else None


def _hidden(start: Start, listener: Listener, state: StateFolder) -> list[str]:
    """What no sandbox may see: socket, state and config (which may hold a key)."""
    hidden = [state.path, _config_folder(start.config_path) or start.config_path]
    folder = _own_folder(listener)
    return [*hidden, folder] if folder else [*hidden, listener.path, listener.path + ".lock"]


def _config_folder(path: str) -> str | None:
    """The config's folder, where it is ours alone. Made if it is missing: only what exists can be
    masked, and a command that could make it would write the daemon's next config."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.basename(folder) != "sandboxd":
        return None
    with suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def _programs() -> list[str]:
    bwrap = find_bwrap()
    return [bwrap.path] if bwrap else []


def _caches_root(home: str) -> str:
    """The workspaces' private caches. Root serves other owners too, who cannot enter /root."""
    if os.getuid() == 0:
        root = "/var/cache/sandboxd"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
        root = os.path.join(cache, "sandboxd")
    with suppress(OSError):
        os.makedirs(root, mode=0o711 if os.getuid() == 0 else 0o700, exist_ok=True)
    return root


async def _serve(start: Start, listener: Listener, parts: Parts, notifier: Notifier) -> None:
    # Caught before anybody is told that we listen: a SIGTERM right after that ends us cleanly too.
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await _serve_until(start, listener, parts, notifier, signals)


async def _serve_until(
    start: Start, listener: Listener, parts: Parts, notifier: Notifier,
    signals: AsyncIterator[signal.Signals],
) -> None:  # fmt: skip
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on, signals, stop)
        tasks.start_soon(notifier.watchdog)
        async with (
            parts.egress.running(),
            parts.registry.serving(),
            running(parts.machine, parts.registry, parts.bench) as supervisor,
        ):
            service = Service(
                supervisor, parts.machine, Dispatcher(TABLE), stop, PlanCache(parts.machine)
            )
            async with anyio.create_task_group() as clients:
                clients.start_soon(accept_all, listener.sock, service, clients)
                if start.idle_exit_s is not None:
                    clients.start_soon(exit_when_idle, service, start.idle_exit_s)
                print(f"sandboxd is listening on {listener.path}", flush=True)
                notifier.say("READY=1")
                await stop.wait()
                notifier.say("STOPPING=1")
                await supervisor.stop()
                await anyio.sleep(0.05)  # answers of what was just cancelled go out
                clients.cancel_scope.cancel()
        tasks.cancel_scope.cancel()
    log.info("every child is gone; the daemon ends")


async def _stop_on(signals: AsyncIterator[signal.Signals], stop: anyio.Event) -> None:
    async for _ in signals:
        stop.set()
