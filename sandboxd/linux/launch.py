"""Bring an init up: start the program that leads to it, speak the first words, end it for certain.

Shared by every backend whose commands run below our init; they differ in what they start it with.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from sandboxd.linux import init_wire as wire
from sandboxd.linux import packets
from sandboxd.linux.cgroups import Cgroups
from sandboxd.linux.init_sandbox import FilterFor, InitSandbox, SetupRefused
from sandboxd.linux.limited import LimitedSandbox, Spawner
from sandboxd.linux.spawn import Helper, spawn

READY_TIMEOUT_S = 30.0
END_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Launch:
    """`argv` gets the number of the init's socket appended; `inherit` are its descriptors.

    `cgroups`: where limits are held by the kernel; `always_cgroup`: for every command, since there
    is no pid namespace to end it with. `started` is told the pid of what was started.
    """

    argv: list[str]
    inherit: Sequence[int]
    setup: wire.Setup
    ruleset: int | None
    filter_for: FilterFor
    root: bool
    verify: Callable[[], bool]
    cgroups: Cgroups | None = None
    always_cgroup: bool = False
    started: Callable[[int], None] | None = None


class LaunchFailed(Exception):
    """No sandbox came up; the text is what the program or the init said."""


@asynccontextmanager
async def launched(plan: Launch, release: Callable[[], None]) -> AsyncIterator[Spawner]:
    """`release` closes the daemon's copies of what was inherited, right after the start."""
    control, theirs = packets.pair()
    err_read, err_write = os.pipe()
    os.set_blocking(err_read, False)
    try:
        try:
            argv = [*plan.argv, str(theirs.fileno())]
            helper = spawn(argv, {}, [*plan.inherit, theirs.fileno()], stderr=err_write)
        except OSError as error:
            reason = f"{plan.argv[0]}: {os.strerror(error.errno or 0)}"
            raise LaunchFailed(reason) from None
        finally:
            theirs.close()
            os.close(err_write)
        try:
            if plan.started is not None:
                plan.started(helper.pid)
            sandbox = await _ready(plan, control, err_read, release)
            if plan.cgroups is None:
                yield sandbox
            else:
                yield LimitedSandbox(sandbox, plan.cgroups, always=plan.always_cgroup)
        finally:
            control.close()
            await _ended(helper)
    finally:
        control.close()
        if err_read >= 0:
            os.close(err_read)


async def _ready(
    plan: Launch, control: socket.socket, err_read: int, release: Callable[[], None]
) -> InitSandbox:
    sandbox = InitSandbox(
        control, filter_for=plan.filter_for, root=plan.root, verify=plan.verify
    )
    try:
        with anyio.fail_after(READY_TIMEOUT_S):
            await sandbox.set_up(plan.setup, plan.ruleset)
    except SetupRefused as refused:
        raise LaunchFailed(str(refused) or _said(err_read)) from None
    except OSError as error:
        raise LaunchFailed(_said(err_read) or os.strerror(error.errno or 0)) from None
    except TimeoutError:
        raise LaunchFailed(f"no word from the init in {READY_TIMEOUT_S:g} s") from None
    except wire.InitLied as lie:
        raise LaunchFailed(f"the init said something impossible: {lie}") from None
    finally:
        release()
    return sandbox


def _said(err_read: int) -> str:
    try:
        return os.read(err_read, 4096).decode(errors="replace").strip()
    except OSError:
        return ""


async def _ended(helper: Helper) -> None:
    """The init ends when its socket closes; whatever does not is killed. Bounded, not cancelled."""
    with anyio.CancelScope(shield=True):
        with anyio.move_on_after(END_TIMEOUT_S):
            await helper.ended()
        if helper.poll() is None:
            helper.kill()
            await helper.ended()
