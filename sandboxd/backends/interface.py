"""What every backend is: how it is probed, what it can enforce, how a sandbox of it is opened.

The supervisor knows only this module; `registry` lists the implementations. A backend never
imports the supervisor.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from sandboxd.config.config import Config
from sandboxd.policy.plan import Plan, SandboxSpec
from sandboxd.types import Sandbox
from sandboxd_proto.messages.execute import Tier

if TYPE_CHECKING:
    from sandboxd.backends.linux_context import LinuxSupport
    from sandboxd.backends.macos_context import MacSupport
    from sandboxd.backends.windows_context import WindowsSupport

Enforcement = Mapping[str, Tier]


class Available(msgspec.Struct, frozen=True):
    """The backend has brought a sandbox up just now. `layers`: what isolates, for people."""

    layers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Unavailable(msgspec.Struct, frozen=True):
    """`reason` is the fact that was observed, `remedy` what to do about it."""

    reason: str
    remedy: str


Probe = Available | Unavailable


class Capabilities(msgspec.Struct, frozen=True):
    """How a backend differs from others for those who use it.

    `isolates`: False where commands run without a sandbox. `mounts`: what it hides is covered by
    mounts, so it reads as empty, and /tmp is its own; otherwise the host's own files are there, and
    refused. `explains`: it records refused accesses, which takes our init. `limits_sandbox`: a
    sandbox is made with its limits; elsewhere each command has its own.
    `files`: its sandboxes have our init, which can carry out file operations. `stdin`,
    `terminals`: whether its commands can have input, and a terminal; `stderr_apart`: and beside the
    terminal a stderr of their own. `session_tmp`: commands of a
    session can share a /tmp; otherwise each has a fresh one, and session/open says so. `copies`:
    commands may work on copies of the granted folders (CopyingProcess). `remote`: another machine
    makes its sandboxes, so many can be made at once. `opens_at_once`: up to its first wait `open`
    needs no task.
    `inherit_warning`: what a result says where the network is inherited. `terminal_refusal`: why
    its commands have no terminal, where there is more to say.
    """

    isolates: bool = True
    mounts: bool = False
    explains: bool = False
    limits_sandbox: bool = False
    files: bool = False
    stdin: bool = True
    terminals: bool = True
    stderr_apart: bool = True
    session_tmp: bool = False
    copies: bool = False
    remote: bool = False
    opens_at_once: bool = False
    inherit_warning: str = ""
    terminal_refusal: str = ""


class BackendContext(msgspec.Struct, frozen=True):
    """What a backend is made from. `linux`, `macos`, `windows`: None on other platforms.

    `socket_path`: tells this daemon from others that use the same engine.
    """

    config: Config
    socket_path: str
    linux: LinuxSupport | None = None
    windows: WindowsSupport | None = None
    macos: MacSupport | None = None

    @property
    def support(self) -> LinuxSupport:
        assert self.linux is not None, "made for Linux only"
        return self.linux

    @property
    def windows_support(self) -> WindowsSupport:
        assert self.windows is not None, "made for Windows only"
        return self.windows


class Backend(Protocol):
    """A way to isolate commands."""

    name: str

    @property
    def capabilities(self) -> Capabilities:
        """May change while the daemon runs, when an engine is met."""

    async def probe(self) -> Probe:
        """Do the real thing on a trivial sandbox. Called for `status` and when selecting."""

    def enforcement(self, plan: Plan) -> Enforcement:
        """How each field that the plan was asked for would be enforced here and now.

        PolicyNotSupported, naming everything that cannot be enforced, if there is any such field.
        """

    def command_line(self, plan: Plan) -> list[str]:
        """What would be started, for people. Pure: runs and changes nothing."""

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A sandbox that is up. On leaving, for whatever reason, nothing it started is alive.

        SandboxUnavailable if it cannot be brought up, PathDenied if a path changed meanwhile.
        """


@runtime_checkable
class Serving(Protocol):
    """A backend with something to look after as long as the daemon runs."""

    def serving(self) -> AbstractAsyncContextManager[None]: ...
