"""The landlock backend: files by Landlock rules, the network by a filter, our init to run commands.

It needs no namespaces and no mounts. What it holds less firmly than bubblewrap is said in `tiers`.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager

import anyio

from sandboxd.backends.bubblewrap.program import find as find_bwrap
from sandboxd.backends.interface import Available, Enforcement, Probe, Unavailable
from sandboxd.backends.landlock import refused
from sandboxd.backends.landlock.probing import confines
from sandboxd.backends.landlock.rules import PathRule, Rules, Surroundings, TooManyRules, rules
from sandboxd.backends.landlock.sandbox import LandlockSandbox, ProtectedFiles
from sandboxd.backends.support import LinuxSupport
from sandboxd.backends.tiers import landlock_tiers
from sandboxd.linux import init_wire as wire
from sandboxd.linux.identity import dropped
from sandboxd.linux.landlock import (
    Ruleset,
    RulesetSpec,
    add_path,
    build_ruleset,
    kernel_abi,
    layers,
    missing,
)
from sandboxd.linux.launch import Launch, LaunchFailed, launched
from sandboxd.linux.openat import open_checked, open_path, unchanged
from sandboxd.linux.private_folder import PrivateFolder, remove_stale
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.linux.terminal import Terminal, open_terminal
from sandboxd.policy.layout import layout
from sandboxd.policy.own import OwnPaths
from sandboxd.policy.plan import NetworkRule, Plan, SandboxSpec
from sandboxd.sandbox import Command, Sandbox
from sandboxd_proto.errors import PolicyNotSupported, SandboxUnavailable

log = logging.getLogger(__name__)
FRESH_S = 1.0
KNOWN_MAX = 32
_TRIVIAL = SandboxSpec(base="minimal", network=NetworkRule("deny"))
# Not ptmx and /dev/pts, where the user's own terminals are, and not /dev/shm, which is shared.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


class Landlock:
    name = "landlock"
    explains = True
    mounts = False

    def __init__(self, support: LinuxSupport) -> None:
        self._support = support
        bwrap = find_bwrap()
        own = OwnPaths.current((), [bwrap.path] if bwrap else [])
        self._own_code = frozenset(own.read_only)
        self._used = False
        self._known: dict[SandboxSpec, tuple[float, Rules]] = {}

    async def probe(self) -> Probe:
        """A command that must be refused a write, and must not be refused another."""
        if not kernel_abi():
            return refused.why_missing()
        try:
            async with self.open(_TRIVIAL) as sandbox:
                if not await confines(sandbox, self._support.state.path):
                    return refused.NOT_CONFINED
        except SandboxUnavailable as error:
            return Unavailable(error.message, error.remedy or "")
        return Available((*_layers(), self._support.limits_layer), _warnings())

    def enforcement(self, plan: Plan) -> Enforcement:
        if plan.sandbox.network.kind == "allow_hosts":
            raise PolicyNotSupported(
                "the landlock backend cannot limit the network to named hosts",
                field="network",
                remedy='use "deny" or "inherit", or a host where bubblewrap works',
            )
        self._rules(plan.sandbox)
        return landlock_tiers(plan, self._support.cgroups)

    def command_line(self, plan: Plan) -> list[str]:
        words = [*dropped(plan.sandbox.run_as), "sandboxd-init"]
        for rule in self._rules(plan.sandbox).paths:
            words += ["--write" if rule.writable else "--read", rule.path]
        return words

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        abi = kernel_abi()
        if not abi:
            why = refused.why_missing()
            raise SandboxUnavailable(why.reason, remedy=why.remedy)
        await self._first_time(abi)
        folder = PrivateFolder(spec.run_as)
        try:
            async with self._opened(spec, abi, folder.path) as sandbox:
                yield sandbox
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(folder.remove)

    @asynccontextmanager
    async def _opened(self, spec: SandboxSpec, abi: int, folder: str) -> AsyncIterator[Sandbox]:
        terminal = open_terminal(spec.run_as)
        kept = tuple(p for p in spec.protected if p.present and p.path not in self._own_code)
        protected = ProtectedFiles(kept)
        try:
            with ExitStack() as held:
                plan = self._launch(spec, abi, (folder, terminal), held)
                async with launched(plan, held.close) as inner:
                    yield LandlockSandbox(
                        inner, folder=folder, terminal=terminal, run_as=spec.run_as,
                        protected=protected,
                    )  # fmt: skip
        except LaunchFailed as failed:
            why = refused.failed(str(failed))
            raise SandboxUnavailable(why.reason, remedy=why.remedy) from None
        finally:
            terminal.close()
            protected.close()

    def _launch(
        self, spec: SandboxSpec, abi: int, own: tuple[str, Terminal], held: ExitStack
    ) -> Launch:
        folder, terminal = own
        granted = self._rules(spec)
        ruleset = held.enter_context(
            build_ruleset(
                RulesetSpec(
                    write=(folder,),
                    devices=tuple(d for d in (*_DEVICES, terminal.path) if os.path.exists(d)),
                    deny_tcp=spec.network.kind == "deny",
                    scope_abstract=True,
                    scope_signal=True,
                ),
                abi,
            )
        )
        for rule in granted.paths:
            _grant(ruleset, rule)
        init = self._support.init
        return Launch(
            argv=[*dropped(spec.run_as), f"/proc/self/fd/{init}"],
            inherit=[init],
            setup=wire.Setup(flags=wire.SetupFlag.HAS_RULESET | wire.SetupFlag.GUARD),
            ruleset=ruleset.fileno(),
            filter_for=lambda command: _filter(spec, command),
            root=True,  # RLIMIT_NPROC would count everything that the user runs on the host
            verify=lambda: _unchanged(spec, granted),
            cgroups=self._support.cgroups,
            always_cgroup=True,
        )

    def _rules(self, spec: SandboxSpec) -> Rules:
        """Asked several times for one request, and each time means listing folders."""
        now = time.monotonic()
        known = self._known.get(spec)
        if known is not None and now - known[0] < FRESH_S and known[1].unchanged():
            return known[1]
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        made = self._made_rules(spec)
        self._known[spec] = (now, made)
        return made

    def _made_rules(self, spec: SandboxSpec) -> Rules:
        around = Surroundings(
            own_code=self._own_code,
            root=os.getuid() == 0 and spec.run_as is None,
            network=spec.network.kind == "inherit",
        )
        try:
            return rules(layout(spec, self._support.host), max(kernel_abi(), 1), around)
        except TooManyRules as many:
            raise PolicyNotSupported(
                f"Landlock cannot leave one path out of {many}: it would need a rule for each of "
                "the many others in it",
                field="fs_deny",
                remedy="allow narrower folders, or use a host where bubblewrap works",
            ) from None

    async def _first_time(self, abi: int) -> None:
        if not self._used:
            self._used = True
            for sentence in missing(abi):
                log.warning("Landlock: %s", sentence)
            await anyio.to_thread.run_sync(remove_stale)


def _grant(ruleset: Ruleset, rule: PathRule) -> None:
    """What vanished since it was listed is not granted, nor what no rule can name.

    The kernel answers EBADFD for files of its own (sockets, namespaces) and ENOMSG for a rule that
    would give nothing: the folder of a grant of which everything is given below.
    """
    try:
        fd = open_checked(rule.path, rule.identity) if rule.identity else open_path(rule.path)
    except OSError:
        return
    try:
        add_path(ruleset, fd, rule.access)
    except OSError as error:
        if error.errno not in (errno.EBADFD, errno.ENOMSG):
            raise
    finally:
        os.close(fd)


def _filter(spec: SandboxSpec, command: Command) -> FilterSpec:
    denied = spec.network.kind != "inherit"
    return FilterSpec(
        level=command.syscall_policy, restrict_families=denied, no_namespaces=True,
        deny_inet=denied,
    )  # fmt: skip


def _unchanged(spec: SandboxSpec, granted: Rules) -> bool:
    return (
        all(unchanged(grant.path, grant.identity) for grant in spec.grants)
        and all(os.path.lexists(mask.path) for mask in spec.masks)
        and granted.unchanged()
    )


def _layers() -> tuple[str, ...]:
    return (*layers(kernel_abi()), "seccomp filters")


def _warnings() -> tuple[str, ...]:
    found = [
        "without namespaces: names, sizes and owners of files and the command lines of processes "
        "show; /tmp is the host's and closed (TMPDIR leads to a private folder)",
        *missing(kernel_abi()),
    ]
    if os.getuid() == 0:
        found.append(
            "sandboxd runs as root: commands in workspaces of root stay root (without capabilities)"
        )
    return tuple(found)
