"""The one place that builds everything and runs it until it is told to stop."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress

import anyio
import msgspec

import sandboxd
from sandboxd.audit.trail import Trail, TrailInUse, open_trail
from sandboxd.backends.registry import Registry, programs, registry
from sandboxd.backends.select import shares_session_tmp
from sandboxd.config.config import Config
from sandboxd.config.loading import default_path
from sandboxd.config.staleness import ConfigFile
from sandboxd.platform.current import system
from sandboxd.policy.mounts.masks import config_masks
from sandboxd.policy.mounts.mount_plan import Host
from sandboxd.policy.mounts.own_paths import OwnPaths
from sandboxd.policy.paths.notices import FolderNotices
from sandboxd.policy.plan_cache import PlanCache
from sandboxd.policy.request import Machine
from sandboxd.rpc.approver_token import approver_token
from sandboxd.rpc.dispatch import Dispatcher
from sandboxd.rpc.handlers.table import TABLE
from sandboxd.rpc.notifications.hub import Hub
from sandboxd.rpc.server import accept_all, exit_when_idle
from sandboxd.rpc.service import Service
from sandboxd.rpc.transport.interface import Listener, ListenError
from sandboxd.rpc.transport.notifier import ServiceNotifier
from sandboxd.supervisor.approvals.admission import Admission
from sandboxd.supervisor.approvals.approval import Approval
from sandboxd.supervisor.approvals.grants import Grants
from sandboxd.supervisor.approvals.notify import Notifications
from sandboxd.supervisor.approvals.queue import Approvals
from sandboxd.supervisor.background import keep_running
from sandboxd.supervisor.budgets.day import DayFile
from sandboxd.supervisor.classifier import HostTraits
from sandboxd.supervisor.egress_questions import EgressQuestions
from sandboxd.supervisor.follow_up import DenialFollowUp
from sandboxd.supervisor.host_facts import landlock_abi
from sandboxd.supervisor.recorder import Recorder
from sandboxd.supervisor.sessions.lifecycle import SessionLifecycle
from sandboxd.supervisor.sessions.registry import Sessions
from sandboxd.supervisor.sessions.store import SessionStore
from sandboxd.supervisor.sessions.tmp import SessionTmps
from sandboxd.supervisor.supervisor import Supervisor, running

if sys.platform == "win32":
    from sandboxd.daemon import windows as assembly
elif sys.platform == "darwin":
    from sandboxd.daemon import macos as assembly
else:
    from sandboxd.daemon import linux as assembly

log = logging.getLogger(__name__)
SWITCH_S = 0.001  # how long a busy thread may keep the event loop waiting for its turn


class Start(msgspec.Struct, frozen=True):
    config: Config
    config_file: ConfigFile
    socket: str | None = None
    idle_exit_s: float | None = None


def run(start: Start) -> int:
    """The exit code: 0 after SIGTERM, SIGINT or `shutdown`, 1 if the daemon could not start."""
    notifier = assembly.notifier()
    sys.setswitchinterval(SWITCH_S)
    try:
        listener = assembly.listening(start.socket)
    except ListenError as error:
        print(f"sandboxd: error: {error}", file=sys.stderr)
        return 1
    try:
        with _parts(start, listener) as parts:
            system.run_loop(_serve, start, listener, parts, notifier)
    finally:
        listener.close()
    return 0


def state_folder(env: Mapping[str, str], socket: str) -> str:
    """The folder of this daemon's trail and sessions, named by its socket."""
    name = hashlib.sha256(os.path.abspath(socket).encode("utf-8", "surrogateescape")).hexdigest()
    return os.path.join(system.state_root(env), name[:16])


def _open_trail(folder: str, config: Config) -> Trail | None:
    try:
        return open_trail(config.audit.folder or folder, config.audit)
    except (OSError, TrailInUse) as error:
        log.error("there is no audit trail: %s", error)
        return None


class Parts(msgspec.Struct, frozen=True):
    machine: Machine
    registry: Registry
    traits: HostTraits
    running: Callable[[], AbstractAsyncContextManager[None]]
    admission: Admission
    hub: Hub
    day: DayFile
    notices: FolderNotices | None


@contextmanager
def _parts(start: Start, listener: Listener) -> Iterator[Parts]:
    with ExitStack() as held:
        home = system.home_folder()
        variable_home = os.environ.get("HOME", "")
        host = Host.current(home, variable_home)
        around = assembly.platform_parts(start.config, host, listener, held)
        # First: it makes files that are hidden.
        admission, hub, day = _sessions(start, listener, held)
        own = OwnPaths.current(_hidden(start, listener, around.hidden), programs())
        for path in own.missing_in("/"):
            log.warning("%s does not exist: folders above it are not writable for commands", path)
        backends = registry(around.context(start.config, listener.path, own))
        machine = Machine(
            config=start.config,
            host=host,
            own=own,
            home=home,
            uid=system.user_id(),
            variable_home=variable_home,
            caches_root=system.caches_root(home),
            forwards_folder=around.forwards_folder,
            limit_sandboxes=backends.limit_sandboxes(),
        )
        hidden = (*config_masks(machine), *machine.own.hidden)
        traits = HostTraits(
            host=host, landlock=landlock_abi() > 0, root=system.is_privileged(), hidden=hidden,
            ceiling=start.config.ceiling, own_code=own.read_only,
        )  # fmt: skip
        if around.make_folder is not None:
            admission.sessions.tmps = SessionTmps(around.make_folder)
            admission.sessions.shares_tmp = lambda: shares_session_tmp(start.config, backends)
        yield Parts(machine, backends, traits, around.running, admission, hub, day, around.notices)


def _sessions(start: Start, listener: Listener, held: ExitStack) -> tuple[Admission, Hub, DayFile]:
    config = start.config
    folder = state_folder(os.environ, listener.path)
    _make_private(os.path.dirname(folder))
    _make_private(folder)
    trail = _open_trail(folder, config)
    if trail is not None:
        held.callback(trail.close)
    hub = Hub(held.enter_context(approver_token(assembly.approver_file(listener))))
    recorder = Recorder(trail, required=config.audit.required)
    if trail is not None:
        trail.on_record = hub.note_record
    sessions = Sessions(config, SessionStore(folder))
    approvals = Approvals(config.approvals, recorder)
    grants = Grants(os.path.join(_grants_folder(start.config_file.path), "grants.toml"))
    _connect(sessions, approvals, grants, hub)
    admission = Admission(config, sessions, approvals, grants, recorder)
    day = DayFile(os.path.dirname(folder), config.session_cap.per_user_daily_usd)
    return admission, hub, day


def _connect(sessions: Sessions, approvals: Approvals, grants: Grants, hub: Hub) -> None:
    """Who is told when approvals come and go, and what a session's name keeps."""

    def requested(approval: Approval) -> None:
        session = sessions.get(approval.question.session)
        if session is not None:
            session.approvals.add(approval.id)
        hub.requested(approval)

    def resolved(approval: Approval) -> None:
        session = sessions.get(approval.question.session)
        if session is not None:
            session.approvals.discard(approval.id)
        hub.resolved(approval, session)

    approvals.on_requested = requested
    approvals.on_resolved = resolved
    sessions.grants_of = grants.stored
    sessions.on_resumed = grants.restore


def _hidden(start: Start, listener: Listener, more: tuple[str, ...]) -> list[str]:
    """What no sandbox may see: socket, state and config (which may hold a key). Folders are made
    if they are missing: only what exists can be masked."""
    config = _config_folder(start.config_file.path) or start.config_file.path
    state = os.path.dirname(state_folder(os.environ, listener.path))
    grants = _grants_folder(start.config_file.path)
    trail = start.config.audit.folder
    for folder in (state, grants, trail):
        if folder:
            _make_private(folder)
    return [*more, config, state, grants, trail]


def _make_private(folder: str) -> None:
    """What cannot be made is still hidden: see `OwnPaths.missing_in`."""
    with suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)


def _grants_folder(config_path: str) -> str:
    """Beside the config, where that folder is ours alone; a command that could write in it would
    grant itself what it likes. Otherwise where the config would be by default."""
    env = {name: value for name, value in os.environ.items() if name != "SANDBOXD_CONFIG"}
    default = default_path(env)
    return _config_folder(config_path) or _config_folder(default) or os.path.dirname(default)


def _config_folder(path: str) -> str | None:
    """The config's folder, where it is ours alone. Made if it is missing: a command that could make
    it would write the daemon's next config."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.basename(folder) != "sandboxd":
        return None
    _make_private(folder)
    return folder


async def _serve(start: Start, listener: Listener, parts: Parts, notifier: ServiceNotifier) -> None:
    stop = anyio.Event()
    # Caught before READY=1 is sent: a SIGTERM right after that ends the daemon cleanly too.
    async with system.stop_signals(stop.set):
        await _serve_until(start, listener, parts, notifier, stop)


async def _serve_until(
    start: Start, listener: Listener, parts: Parts, notifier: ServiceNotifier, stop: anyio.Event
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_running, notifier.watchdog)
        async with (
            parts.running(),
            parts.registry.serving(),
            running(
                parts.machine, parts.registry, parts.traits, parts.admission.recorder
            ) as supervisor,
        ):
            lifecycle = SessionLifecycle(
                start.config, supervisor, parts.admission, parts.day, parts.hub
            )
            service = _service(start.config, parts, supervisor, lifecycle, stop, start.config_file)
            tasks.start_soon(keep_running, lifecycle.run)
            tasks.start_soon(keep_running, parts.admission.approvals.run)
            if parts.admission.recorder.trail is not None:
                tasks.start_soon(keep_running, parts.admission.recorder.trail.keep_synced)
            parts.admission.recorder.write("daemon.started", {"version": sandboxd.__version__})
            async with anyio.create_task_group() as clients:
                clients.start_soon(keep_running, accept_all, listener, service, clients)
                if start.idle_exit_s is not None:
                    clients.start_soon(keep_running, exit_when_idle, service, start.idle_exit_s)
                gc.freeze()  # collections skip what was made so far; `main` has disabled them
                gc.enable()
                print(f"sandboxd is listening on {listener.path}", flush=True)
                notifier.say("READY=1")
                assembly.collect_soon(parts.machine.caches_root)
                await stop.wait()
                notifier.say("STOPPING=1")
                for approval in parts.admission.approvals.pending():
                    parts.admission.approvals.end(approval, "shutdown")
                await supervisor.stop()
                parts.admission.recorder.write("daemon.stopped", {})
                await anyio.sleep(0.05)  # answers of what was just cancelled go out
                clients.cancel_scope.cancel()
        tasks.cancel_scope.cancel()
    log.info("every child is gone; the daemon ends")


def _service(
    config: Config, parts: Parts, supervisor: Supervisor, lifecycle: SessionLifecycle,
    stop: anyio.Event, config_file: ConfigFile,
) -> Service:  # fmt: skip
    admission, hub, plans = parts.admission, parts.hub, PlanCache(parts.machine, parts.notices)

    def tell(execution_id: str, connection: object, approval: Approval) -> None:
        hub.tell_pending(connection, execution_id, approval, admission.approvals)

    notifications = Notifications(config.approvals, supervisor.background)
    told = admission.approvals.on_requested

    def requested(approval: Approval) -> None:
        told(approval)
        notifications.requested(approval)

    admission.approvals.on_requested = requested
    admission.decisions.on_budget_raised = lifecycle.budget_raised
    supervisor.follow_up = DenialFollowUp(
        supervisor, admission, plans, lifecycle,
        lambda execution, approval: tell(execution.id, execution.request.owner, approval),
    )  # fmt: skip
    questions = EgressQuestions(config, admission, tell)
    return Service(
        supervisor, parts.machine, Dispatcher(TABLE), stop, plans, admission, hub, lifecycle,
        questions, config_file,
    )  # fmt: skip
