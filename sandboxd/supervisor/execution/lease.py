"""The right of an execution to use a sandbox, until it is released."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from sandboxd.backends.interface import Backend, Enforcement
from sandboxd.supervisor.hanging_mount_checks import MountChecks
from sandboxd.types import Process, Sandbox
from sandboxd.workspace_guard.guard import OnMoved, PathsMoved
from sandboxd.workspace_guard.guards import Guards

if TYPE_CHECKING:
    from sandboxd.workspace_guard.held_roots import HeldRoots


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """`release` gives the sandbox back early; `leave` is called at the very end. `linger` takes
    over a command that left processes behind, with the pipes that they still hold; None where
    nothing may be left behind. `guards`: None where something else watches the protected paths.
    """

    backend: Backend
    sandbox: Sandbox
    enforcement: Enforcement
    release: Callable[[], None]
    leave: Callable[[], None]
    mounts: MountChecks
    guards: Guards | None = None
    linger: Callable[[Process, list[int]], None] | None = None
    roots: HeldRoots | None = None  # of a persistent sandbox
    settle: Callable[[], Awaitable[PathsMoved]] | None = None  # that one, after each command
    failures: Callable[[], list[str]] | None = None  # after `settle`: what was not undone
    hear_moved: Callable[[OnMoved], Callable[[], None]] | None = None  # that one, while it runs
