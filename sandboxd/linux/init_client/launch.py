"""Launch an init: start the wrapper program (bwrap, …), do the handshake, and end it reliably.

Shared by every backend whose commands run below our init; they differ in the wrapper program.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import anyio
import msgspec

from sandboxd import event_loop
from sandboxd.linux.cgroup.cgroups import Cgroups
from sandboxd.linux.cgroup.limited_sandbox import LimitedSandbox, Spawner
from sandboxd.linux.cgroup.sandbox_process_limit import SandboxCgroup
from sandboxd.linux.init_client import codec, seqpacket
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.rlimits import ProcessCount
from sandboxd.linux.init_client.session import FilterFor, InitSandbox, SetupRefused
from sandboxd.linux.init_client.template import Clone, NoCgroup, Template
from sandboxd.linux.spawn import Helper, spawn

READY_TIMEOUT_S = 15.0
END_TIMEOUT_S = 5.0
# Wait statuses: the program itself, or what it ran and reports as a shell does.
_KILLED = (signal.SIGKILL, (128 + signal.SIGKILL) << 8)


class Launch(msgspec.Struct, frozen=True):
    """The number of the init's socket is appended to `argv`; `inherit` are its descriptors.

    `counts`: what RLIMIT_NPROC counts there. `cgroups`: where the kernel enforces limits;
    `always_cgroup`: for every command, since there is no pid namespace to end it with.
    `started` is called with the pid of the program. `template`: clone it instead of `argv`.
    `changed`: whether the host is known to be no longer as the sandbox shows it.
    """

    argv: list[str]
    inherit: Sequence[int]
    setup: wire.Setup
    ruleset: int | None
    filter_for: FilterFor
    counts: ProcessCount
    verify: Callable[[], bool]
    cgroups: Cgroups | None = None
    always_cgroup: bool = False
    started: Callable[[int], None] | None = None
    ready_s: float = READY_TIMEOUT_S
    template: Template | None = None
    changed: Callable[[], bool] = bool

    @property
    def in_namespace(self) -> bool:
        return wire.SetupFlag.REQUIRE_PID1 in self.setup.flags


class LaunchFailed(Exception):
    """No sandbox came up; the text is what the program or the init reported.

    `moved`: the path at which the init found another mount or file than the planned one.
    `hung`: no answer in time. `no_more_processes`: the program could not be forked.
    `killed`: another process, or the kernel, sent SIGKILL to it. `changed`: the host changed
    meanwhile.
    """

    def __init__(
        self, said: str, moved: str | None = None, *, hung: bool = False,
        no_more_processes: bool = False, killed: bool = False, changed: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(said)
        self.changed = changed
        self.killed = killed
        self.moved = moved
        self.hung = hung
        self.no_more_processes = no_more_processes


class launch:  # noqa: N801 - what it does in `async with`
    """`release` closes the daemon's copies of what was inherited, right after the start. `ruleset`:
    in place of the plan's.

    A class, because a generator takes three times as many calls: each fresh sandbox comes this way.
    """

    __slots__ = ("_cgroup", "_control", "_errors", "_helper", "_plan", "_release", "_ruleset")

    def __init__(
        self, plan: Launch, release: Callable[[], None], ruleset: int | None = None
    ) -> None:
        self._plan = plan
        self._release = release
        self._ruleset = plan.ruleset if ruleset is None else ruleset
        self._cgroup: SandboxCgroup | None = None
        self._errors = -1
        self._helper: Helper | Clone | None = None

    async def __aenter__(self) -> Spawner:
        plan = self._plan
        self._control, theirs = seqpacket.pair()
        try:
            try:
                helper = self._begin(theirs)
            finally:
                theirs.close()
            if plan.started is not None and isinstance(helper, Helper):
                plan.started(helper.pid)
            sandbox = await self._ready(helper)
        except BaseException:
            await self.close()
            raise
        if plan.cgroups is None:
            return sandbox
        return LimitedSandbox(
            sandbox, plan.cgroups, always=plan.always_cgroup, own=self._cgroup, counts=plan.counts
        )

    def _begin(self, theirs: socket.socket) -> Helper | Clone:
        plan = self._plan
        if plan.template is None:
            self._cgroup = _sandbox_cgroup(plan)
            self._helper, self._errors = _start(plan, theirs)
        else:
            self._helper = clone = _clone(plan.template, theirs)
            self._cgroup = clone.cgroup
        return self._helper

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._control.close()
        try:
            if self._helper is not None:
                await _ended(self._helper)
        finally:
            if self._errors >= 0:
                os.close(self._errors)
            if self._cgroup is not None and self._plan.cgroups is not None:
                self._plan.cgroups.let_go(self._cgroup)

    async def _ready(self, helper: Helper | Clone) -> InitSandbox:
        plan, cgroup, errors = self._plan, self._cgroup, self._errors
        sandbox = InitSandbox(
            self._control, filter_for=plan.filter_for, counts=plan.counts, verify=plan.verify,
            owner=helper if plan.in_namespace else None,
        )  # fmt: skip
        outside = None if isinstance(helper, Clone) else cgroup
        entrance = outside.entrance if outside is not None else None
        setting_up = event_loop.Begun(sandbox.set_up(plan.setup, self._ruleset, cgroup=entrance))
        is_up = False
        try:
            await event_loop.enter_task()
            with event_loop.Deadline(plan.ready_s):
                await setting_up
                if isinstance(helper, Clone) and (number := await helper.came_up()):
                    raise _no_clone(number)
                is_up = True
        except SetupRefused as refused:
            raise await _refusal(plan, refused, errors, helper) from None
        except OSError as error:
            raise await _lost(plan, errors, helper, os.strerror(error.errno or 0)) from None
        except codec.InitProtocolViolation as lie:
            raise LaunchFailed(f"protocol violation by the init: {lie}") from None
        finally:
            self._release()
            if cgroup is not None:
                cgroup.close_entrance()
        if not is_up:
            helper.kill()  # a program that hangs does not end by itself either
            raise LaunchFailed(f"no answer from the init in {plan.ready_s:g} s", hung=True)
        return sandbox


def _clone(template: Template, theirs: socket.socket) -> Clone:
    try:
        return template.clone(theirs)
    except BlockingIOError:
        raise LaunchFailed("the template does not read") from None
    except NoCgroup:
        raise LaunchFailed("no cgroup for a clone") from None


def _start(plan: Launch, theirs: socket.socket) -> tuple[Helper, int]:
    """What runs the init, and where to read what it writes to stderr."""
    errors, stderr = os.pipe()
    os.set_blocking(errors, False)
    try:
        argv = [*plan.argv, str(theirs.fileno())]
        helper = spawn(argv, {}, [*plan.inherit, theirs.fileno()], stderr=stderr)
    except OSError as error:
        os.close(errors)
        raise not_started(plan.argv[0], error) from None
    finally:
        os.close(stderr)
    return helper, errors


def start_template(
    argv: list[str], own: list[str], inherit: Sequence[int], release: Callable[[], None],
    cgroups: Cgroups | None = None,
) -> Template:  # fmt: skip
    """`argv` starts the init; `own`: the arguments of the template. `release` is called when its
    process and so its last sandbox has ended; at once when it cannot be started."""
    with ExitStack() as failed, ExitStack() as passed:
        failed.callback(release)
        try:
            control, theirs = seqpacket.pair()
            failed.callback(control.close)
            passed.callback(theirs.close)
            errors, stderr = os.pipe()
            failed.callback(os.close, errors)
            passed.callback(os.close, stderr)
            os.set_blocking(errors, False)
            line = [*argv, "--template", str(theirs.fileno()), *own]
            helper = spawn(line, {}, [*inherit, theirs.fileno()], stderr=stderr)
        except OSError as error:
            raise not_started(argv[0], error) from None
        failed.pop_all()
    return Template(helper, control, errors, release, cgroups)


def not_started(program: str, error: OSError) -> LaunchFailed:
    reason = f"{program}: {os.strerror(error.errno or 0)}"
    return LaunchFailed(reason, no_more_processes=error.errno == errno.EAGAIN)


def bounding_processes(cgroups: Cgroups | None, counts: ProcessCount) -> Cgroups | None:
    """Where nothing else bounds the number of processes of each command."""
    useful = cgroups is not None and counts != "namespace" and "pids" in cgroups.controllers
    return cgroups if useful else None


def _sandbox_cgroup(plan: Launch) -> SandboxCgroup | None:
    cgroups = bounding_processes(plan.cgroups, plan.counts)
    if cgroups is None or (cgroups.v2 and plan.always_cgroup):
        return None
    return cgroups.make_for_sandbox()


async def _refusal(
    plan: Launch, refused: SetupRefused, errors: int, helper: Helper | Clone
) -> LaunchFailed:
    number, said = refused.errno, str(refused) or _said(plan, errors)
    if not said and isinstance(helper, Clone) and plan.template is not None:
        plan.template.take_answers()
        if helper.error:
            return _no_clone(helper.error)
    if not said:
        return await _lost(plan, errors, helper, "")
    return LaunchFailed(said, refused.path, no_more_processes=number == errno.EAGAIN)


def _no_clone(number: int) -> LaunchFailed:
    said = f"no clone of the template ({os.strerror(number)})"
    return LaunchFailed(said, no_more_processes=number == errno.EAGAIN)


async def _lost(plan: Launch, errors: int, helper: Helper | Clone, reason: str) -> LaunchFailed:
    """The other end of the socket is gone: what was said, or else how the program ended."""
    said, status = _said(plan, errors), None
    if not said:
        with anyio.move_on_after(END_TIMEOUT_S):
            if plan.template is not None:
                plan.template.close()
            status = await (helper if plan.template is None else plan.template).ended()
            reason = _ending(status)
    return LaunchFailed(said or reason, killed=status in _KILLED)


def _said(plan: Launch, errors: int) -> str:
    if plan.template is not None:
        return plan.template.said()
    try:
        return os.read(errors, 4096).decode(errors="replace").strip()
    except OSError:
        return ""


def _ending(status: int) -> str:
    """For a program that ended without a word: how is all that is known."""
    if os.WIFSIGNALED(status):
        return f"it was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"it ended with exit code {os.WEXITSTATUS(status)} and without a word"


async def _ended(helper: Helper | Clone) -> None:
    """The init ends when its socket closes; what is left is killed. Bounded, not cancelled."""
    await event_loop.enter_task()
    timer = event_loop.call_later(END_TIMEOUT_S, helper.kill)
    with anyio.CancelScope(shield=True):
        await helper.ended()
    timer.cancel()
