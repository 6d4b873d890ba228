"""One sandbox: a folder for temporary files, and a profile of its own for each command."""

from __future__ import annotations

import os
import secrets
import sys

import anyio
import msgspec
from msgspec.structs import replace

from sandboxd.backends.sandbox_exec import diagnosis, log_reader
from sandboxd.backends.sandbox_exec.profile_request import OwnParts, profile_for
from sandboxd.linux.pty import Terminal, open_terminal
from sandboxd.macos.lifeline import Lifeline
from sandboxd.macos.logs import LogBook
from sandboxd.macos.process import Around, EndLater, SandboxExecProcess
from sandboxd.macos.profile import TAG_PREFIX
from sandboxd.macos.spawn import arguments, spawn
from sandboxd.macos.system import MacSystem
from sandboxd.macos.tree import Tree
from sandboxd.policy.plan import Identity, SandboxSpec
from sandboxd.posix.reaper import Reaper
from sandboxd.types import NO_EVIDENCE, Command, Evidence, Stdio
from sandboxd_proto.errors import ExecFailed, PathDenied

assert sys.platform != "win32"

LOG_LOOKS, LOG_LOOK_S = 10, 0.02


class SharedServices(msgspec.Struct, frozen=True):
    """What all sandboxes share while the daemon serves."""

    system: MacSystem
    reaper: Reaper
    lifeline: Lifeline
    book: LogBook
    end_later: EndLater


class SandboxExecSandbox:
    def __init__(
        self, spec: SandboxSpec, serving: SharedServices, *, folder: str, homes: tuple[str, ...],
        own_home: str, proxy_port: int | None = None,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._serving = serving
        self._own = OwnParts(
            tag="", folder=folder, launcher=serving.system.launcher, homes=homes,
            own_home=own_home, proxy_port=proxy_port,
        )  # fmt: skip
        self._running: set[SandboxExecProcess] = set()
        self._closed = False

    @property
    def alive(self) -> bool:
        return not self._closed

    def verify(self) -> bool:
        return self.alive and all(is_unchanged(g.path, g.identity) for g in self._spec.grants)

    def spawn_now(self, command: Command, stdio: Stdio | None) -> SandboxExecProcess:
        terminal = None
        if command.pty is not None:
            terminal = open_terminal(self._spec.run_as)
            terminal.prepare(command.pty)
            os.set_blocking(terminal.master, False)
        try:
            return self._spawn(command, stdio, terminal)
        finally:
            if terminal is not None:
                terminal.close()

    async def spawn(self, command: Command, stdio: Stdio | None) -> SandboxExecProcess:
        return self.spawn_now(command, stdio)

    def _spawn(
        self, command: Command, stdio: Stdio | None, terminal: Terminal | None
    ) -> SandboxExecProcess:
        serving, run_as = self._serving, self._spec.run_as
        tag = TAG_PREFIX + secrets.token_hex(16)
        own = replace(self._own, tag=tag, terminal=terminal.path if terminal else None)
        command = replace(command, env=_with_folder(command.env, own.folder))
        made = profile_for(self._spec, own, serving.system.on_disk)
        argv = arguments(serving.system, made, command, run_as)
        if terminal is not None:
            err = terminal.slave if stdio is None else stdio.stderr
            ends = (terminal.slave, terminal.slave, err)
        else:
            assert stdio is not None
            ends = (stdio.stdin, stdio.stdout, stdio.stderr)
        uid = os.getuid() if run_as is None else run_as.uid
        serving.lifeline.hold(tag, uid)
        try:
            spawned = spawn(argv, *ends)
        except OSError as error:
            serving.lifeline.release(tag)
            raise ExecFailed(
                f"the command cannot be started: {os.strerror(error.errno or 0)}",
                errno=error.errno,
            ) from None
        serving.book.open(tag)
        tree = Tree(serving.system.census, tag, uid, spawned.pid)
        process = SandboxExecProcess(
            command, spawned, tree, serving.reaper.watch(spawned.pid),
            Around(
                gone=lambda: self._gone(tag, process),
                closed=lambda: serving.book.close(tag),
                end_later=serving.end_later,
                evidence=lambda failed: self._evidence(tag, failed=failed),
                diagnose=diagnosis.explain,
            ),
            terminal.take_master() if terminal is not None else None,
        )  # fmt: skip
        self._running.add(process)
        return process

    def _gone(self, tag: str, process: SandboxExecProcess) -> None:
        self._running.discard(process)
        self._serving.lifeline.release(tag)

    async def _evidence(self, tag: str, *, failed: bool) -> Evidence:
        """The log may be late; a command that succeeded needs no explanation."""
        book = self._serving.book
        if not failed:
            return NO_EVIDENCE
        for _ in range(LOG_LOOKS if self._serving.system.log_command is not None else 0):
            if book.take(tag):
                break
            await anyio.sleep(LOG_LOOK_S)
        return log_reader.evidence(book.take(tag))

    async def end(self) -> None:
        """Nothing that was started in it is alive afterwards."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            for process in list(self._running):
                await process.end()


def is_unchanged(path: str, identity: Identity) -> bool:
    try:
        return Identity.of(os.lstat(path)) == identity
    except OSError:
        return False


def refuse_changed(spec: SandboxSpec) -> None:
    for grant in spec.grants:
        if not is_unchanged(grant.path, grant.identity):
            raise PathDenied(
                f"{grant.path} changed while the sandbox was made", remedy="send the request again"
            )


def _with_folder(env: tuple[tuple[str, str], ...], folder: str) -> tuple[tuple[str, str], ...]:
    """TMPDIR, and a HOME that is /tmp, lead to the folder: /tmp is the host's, and closed. A
    caller's own one stays."""
    shared = ("/tmp", "/var/tmp", "/private/tmp", "/private/var/tmp")
    given = dict(env)
    if given.get("TMPDIR", "").rstrip("/") in ("", *shared):
        given["TMPDIR"] = folder
    if given.get("HOME", "").rstrip("/") in shared:
        given["HOME"] = folder
    return tuple(given.items())
