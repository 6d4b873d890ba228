"""The bubblewrap backend: bwrap makes namespaces and mounts, our init runs the commands."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager

from sandboxd.backends.bubblewrap import diagnosis
from sandboxd.backends.bubblewrap.arguments import (
    KERNEL_FILES,
    Bind,
    Surroundings,
    Token,
    arguments,
    preview,
)
from sandboxd.backends.bubblewrap.gated import gated
from sandboxd.backends.bubblewrap.program import Program, find
from sandboxd.backends.bubblewrap.unreachable import unreachable
from sandboxd.backends.interface import Available, Enforcement, Probe, Unavailable
from sandboxd.backends.support import LinuxSupport
from sandboxd.backends.tiers import linux_tiers
from sandboxd.linux import confinement
from sandboxd.linux import init_wire as wire
from sandboxd.linux.curated_etc import EtcWish
from sandboxd.linux.init_binary import sealed
from sandboxd.linux.landlock import kernel_abi
from sandboxd.linux.landlock import layers as landlock_layers
from sandboxd.linux.landlock import missing as landlock_missing
from sandboxd.linux.launch import Launch, LaunchFailed, launched
from sandboxd.linux.openat import changed, open_checked, open_path
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.policy.layout import Kind, Layout, layout
from sandboxd.policy.plan import NetworkRule, Plan, RunAs, SandboxSpec
from sandboxd.sandbox import Command, Sandbox
from sandboxd_proto.errors import SandboxUnavailable

_TRIVIAL = SandboxSpec(base="minimal", network=NetworkRule("deny"))


ATTEMPTS = 3  # container engines mount and unmount all the time, and bwrap binds what it has listed


class _MountsMoved(SandboxUnavailable):
    """Worth another attempt: it has nothing to do with this sandbox."""


class Bubblewrap:
    name = "bubblewrap"
    explains = True
    mounts = True

    def __init__(self, support: LinuxSupport) -> None:
        self._support = support

    async def probe(self) -> Probe:
        """The init's "ready" is the probe: every sandbox that comes up has proved itself."""
        program = find()
        if program is None:
            return diagnosis.NOT_INSTALLED
        try:
            async with self.open(_TRIVIAL):
                layers = (*_layers(program), self._support.limits_layer)
                return Available(layers, _warnings())
        except SandboxUnavailable as error:
            return Unavailable(error.message, error.remedy or "")

    def enforcement(self, plan: Plan) -> Enforcement:
        return linux_tiers(plan, self._support.cgroups)

    def command_line(self, plan: Plan) -> list[str]:
        program = find()
        tokens = self._tokens(plan.sandbox, self._layout(plan.sandbox), program)
        name = program.path if program else "bwrap"
        return [*_drop(plan.sandbox.run_as), name, *preview(tokens), "--", "sandboxd-init"]

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        program = find()
        if program is None:
            missing = diagnosis.NOT_INSTALLED
            raise SandboxUnavailable(missing.reason, remedy=missing.remedy)
        async with AsyncExitStack() as stack:
            for attempt in range(ATTEMPTS):
                try:
                    sandbox = await stack.enter_async_context(self._attempt(spec, program))
                    break
                except _MountsMoved:
                    if attempt == ATTEMPTS - 1:
                        raise
            yield sandbox

    @asynccontextmanager
    async def _attempt(self, spec: SandboxSpec, program: Program) -> AsyncIterator[Sandbox]:
        with ExitStack() as held:
            sources: dict[str, Bind] = {}
            plan = self._launch(spec, program, held, sources)
            try:
                if spec.network.kind == "allow_hosts":
                    async with gated(plan, held.close, spec.network, self._support.egress) as inner:
                        yield inner
                else:
                    async with launched(plan, held.close) as sandbox:
                        yield sandbox
            except LaunchFailed as failed:
                refusal = unreachable(str(failed), sources, spec.run_as)
                if refusal is not None:
                    raise refusal from None
                if diagnosis.mounts_moved(str(failed)):
                    raise _MountsMoved(
                        f"mounts of this host changed while bwrap bound them: {failed}",
                        remedy="send the request again",
                    ) from None
                why = diagnosis.explain(str(failed), program.path)
                raise SandboxUnavailable(why.reason, remedy=why.remedy) from None

    def _launch(
        self, spec: SandboxSpec, program: Program, held: ExitStack, sources: dict[str, Bind]
    ) -> Launch:
        """`sources` gets what is bound, by the name that bwrap has for it."""
        places = self._layout(spec)
        for mask in spec.masks:
            # bwrap would make the missing mount point, and it would stay on the host.
            if not os.path.lexists(mask.path):
                raise changed(mask.path, "it is gone")
        tokens = self._tokens(spec, places, program)
        args, descriptors, checks = _bound(tokens, program, held, sources)
        args_fd = _kept(sealed(b"".join(os.fsencode(a) + b"\0" for a in args), "args"), held)
        init = self._support.init
        abi = kernel_abi()
        ruleset = held.enter_context(confinement.ruleset(abi)) if abi else None
        flags = wire.SetupFlag.WATCH_MOUNTS | wire.SetupFlag.REQUIRE_PID1
        if spec.network.kind == "deny":
            # With allow_hosts the gate knows better, and a look at every connection costs
            # milliseconds: the kernel walks all its sockets to list those of one namespace.
            flags |= wire.SetupFlag.NOTIFY
        setup = wire.Setup(
            flags=flags | (wire.SetupFlag.HAS_RULESET if ruleset else wire.SetupFlag(0)),
            checks=checks,
            rules=confinement.rules(places, abi) if ruleset else (),
        )
        etc = self._support.etc.stamp()
        return Launch(
            argv=[*_drop(spec.run_as), program.path, "--args", str(args_fd), "--",
                  f"/proc/self/fd/{init}"],
            inherit=[*descriptors, args_fd, init],
            setup=setup,
            ruleset=ruleset.fileno() if ruleset else None,
            filter_for=lambda command: _filter(spec, command),
            root=self._root_inside(spec),
            verify=lambda: self._unchanged(spec, etc),
            cgroups=self._support.cgroups,
        )  # fmt: skip

    def _layout(self, spec: SandboxSpec) -> Layout:
        return layout(spec, self._support.host)

    def _tokens(self, spec: SandboxSpec, places: Layout, program: Program | None) -> list[Token]:
        return arguments(spec, places, self._surroundings(spec, places, program))

    def _surroundings(
        self, spec: SandboxSpec, places: Layout, program: Program | None
    ) -> Surroundings:
        state = self._support.state
        etc = ""
        if places.at("/etc").kind is Kind.CURATED:
            etc = self._support.etc.folder(self._etc_wish(spec, places))
        kernel = tuple(f for f in KERNEL_FILES if os.path.exists(f))
        return Surroundings(
            etc=etc,
            names=self._support.names(spec.network),
            empty_file=state.empty_file,
            empty_dir=state.empty_dir,
            disable_userns=program is None or program.disable_userns,
            kernel_files=kernel if self._root_inside(spec) else (),
        )

    def _etc_wish(self, spec: SandboxSpec, places: Layout) -> EtcWish:
        inner = tuple(
            (place.path.removeprefix("/etc/"), place.is_dir)
            for place in places.places
            if place.path.startswith("/etc/")
        )
        uid, gid = os.getuid(), os.getgid()
        if spec.run_as:
            uid, gid = spec.run_as.uid, spec.run_as.gid
        return EtcWish(uid, gid, network=spec.network.kind == "inherit", mount_points=inner)

    def _root_inside(self, spec: SandboxSpec) -> bool:
        return os.getuid() == 0 and spec.run_as is None

    def _unchanged(self, spec: SandboxSpec, etc: object) -> bool:
        """Who asks has just planned, and wants a sandbox of an equal spec: the plan's paths are the
        same files as when it was made. What is copied into it no plan looks at."""
        return spec.base == "host" or self._support.etc.stamp() == etc


def _bound(
    tokens: list[Token], program: Program, held: ExitStack, sources: dict[str, Bind]
) -> tuple[list[str], list[int], list[wire.Check]]:
    """Each bind by descriptor; where bwrap cannot, by name with a check inside before any exec."""
    args: list[str] = []
    descriptors: list[int] = []
    checks: list[wire.Check] = []
    for token in tokens:
        if isinstance(token, str):
            args.append(token)
            continue
        fd = _kept(_open(token), held)
        if program.bind_fd:
            descriptors.append(fd)
            sources[f"/proc/self/fd/{fd}"] = token
            args += ["--bind-fd" if token.writable else "--ro-bind-fd", str(fd), token.dest]
        else:
            status = os.fstat(fd)
            sources[token.source] = token
            checks.append(
                wire.Check(path=token.dest, device=status.st_dev, inode=status.st_ino)
            )
            args += ["--bind" if token.writable else "--ro-bind", token.source, token.dest]
    return args, descriptors, checks


def _open(token: Bind) -> int:
    if token.identity is not None:
        return open_checked(token.source, token.identity)
    try:
        return open_path(token.source)
    except OSError as error:
        raise changed(token.source, os.strerror(error.errno or 0)) from None


def _kept(fd: int, held: ExitStack) -> int:
    held.callback(os.close, fd)
    return fd


def _filter(spec: SandboxSpec, command: Command) -> FilterSpec:
    return FilterSpec(
        level=command.syscall_policy, restrict_families=spec.network.kind != "inherit"
    )


def _drop(run_as: RunAs | None) -> list[str]:
    """bwrap started as the workspace's owner: in a user namespace of root its files are EACCES."""
    if run_as is None:
        return []
    setpriv = shutil.which("setpriv") or "/usr/bin/setpriv"
    try:
        pwd.getpwuid(run_as.uid)
        groups = "--init-groups"
    except KeyError:
        groups = "--clear-groups"
    return [setpriv, "--reuid", str(run_as.uid), "--regid", str(run_as.gid), groups,
            "--inh-caps", "-all", "--"]  # fmt: skip


def _layers(program: Program) -> tuple[str, ...]:
    abi = kernel_abi()
    namespaces = f"namespaces and mounts by bubblewrap {program.version}"
    confined = [layer for layer in landlock_layers(abi) if not layer.startswith("TCP")]
    landlock = (f"Landlock ABI {abi}: {', '.join(confined)}",) if abi else ()
    return (namespaces, *landlock, "seccomp filters")


def _warnings() -> tuple[str, ...]:
    found = list(landlock_missing(kernel_abi()))
    if os.getuid() == 0:
        found.append(
            "sandboxd runs as root: commands in workspaces of root stay root (without capabilities)"
        )
    return tuple(found)
