"""The landlock backend: files by Landlock rules, the network by a filter, our init to run commands.

It needs no namespaces and no mounts. `tiers` says what it enforces less strictly than bubblewrap.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress

import anyio

from sandboxd.backends.enforcement import landlock_tiers
from sandboxd.backends.interface import Available, Capabilities, Enforcement, Probe, Unavailable
from sandboxd.backends.landlock import diagnosis
from sandboxd.backends.landlock.masked import MaskedFiles
from sandboxd.backends.landlock.probe import confines
from sandboxd.backends.landlock.protected_files import ProtectedFiles
from sandboxd.backends.landlock.rules import PathRule, RuleContext, Rules, TooManyRules, rules
from sandboxd.backends.landlock.sandbox import LandlockSandbox
from sandboxd.backends.linux_context import LinuxSupport, paths_hold, root_warnings
from sandboxd.backends.shared_probe import SharedProbe
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.launch import Launch, LaunchFailed, launch
from sandboxd.linux.landlock import (
    Ruleset,
    RulesetSpec,
    add_path,
    build_ruleset,
    kernel_abi,
    layers,
    missing_features,
)
from sandboxd.linux.openat import open_checked, open_path
from sandboxd.linux.pty import Terminal, open_terminal
from sandboxd.linux.rootfs.private_folder import PrivateFolder
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.linux.setpriv import account_stamp, drop_privileges, look_up_groups
from sandboxd.policy.mounts.mount_plan import mount_plan
from sandboxd.policy.plan import NetworkRule, Plan, SandboxSpec
from sandboxd.resource_errors import process_limit_error
from sandboxd.types import Command, Sandbox
from sandboxd_proto.errors import Busy, PolicyNotSupported, SandboxUnavailable

log = logging.getLogger(__name__)
FRESH_S = 1.0
KNOWN_MAX = 32
_TRIVIAL = SandboxSpec(base="minimal", network=NetworkRule("deny"))
# Not ptmx and /dev/pts, where the user's own terminals are, and not /dev/shm, which is shared.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


class Landlock:
    name = "landlock"
    capabilities = Capabilities(explains=True, files=True, session_tmp=True)

    def __init__(self, support: LinuxSupport) -> None:
        self._support = support
        self._shared_probe = SharedProbe(self._probe)
        self._own_code = frozenset(support.own_code)
        self._used = False
        self._known: dict[SandboxSpec, tuple[float, Rules]] = {}

    async def probe(self) -> Probe:
        return await self._shared_probe()

    async def _probe(self) -> Probe:
        """A command that must be refused a write, and must not be refused another."""
        if not kernel_abi():
            return diagnosis.why_missing()
        try:
            async with self.open(_TRIVIAL) as sandbox:
                if not await confines(sandbox, self._support.state.path):
                    return diagnosis.NOT_CONFINED
        except (SandboxUnavailable, Busy) as error:
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
        words = [*drop_privileges(plan.sandbox.run_as), "sandboxd-init"]
        for rule in self._rules(plan.sandbox).paths:
            words += ["--write" if rule.writable else "--read", rule.path]
        return words

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        abi = kernel_abi()
        if not abi:
            why = diagnosis.why_missing()
            raise SandboxUnavailable(why.reason, remedy=why.remedy)
        self._first_time(abi)
        if spec.shared_tmp is not None:
            async with self._opened(spec, abi, spec.shared_tmp.path) as sandbox:
                yield sandbox
            return
        folder = PrivateFolder(spec.run_as)
        try:
            async with self._opened(spec, abi, folder.path) as sandbox:
                yield sandbox
        finally:
            with anyio.CancelScope(shield=True):
                with suppress(RuntimeError):  # no more threads: it is a leftover for the next start
                    await anyio.to_thread.run_sync(folder.remove)

    @asynccontextmanager
    async def _opened(self, spec: SandboxSpec, abi: int, folder: str) -> AsyncIterator[Sandbox]:
        await look_up_groups(spec.run_as)
        terminal = open_terminal(spec.run_as)
        kept = tuple(p for p in spec.protected if p.present and p.path not in self._own_code)
        protected = ProtectedFiles(kept, tuple(spec.paths("write")))
        masked = MaskedFiles(spec)
        try:
            with ExitStack() as held:
                plan = self._launch(spec, abi, (folder, terminal), held, masked)
                async with launch(plan, held.close) as inner:
                    masked.refuse_replaced()
                    yield LandlockSandbox(
                        inner, folder=folder, terminal=terminal, run_as=spec.run_as,
                        protected=protected, masked=masked,
                    )  # fmt: skip
        except LaunchFailed as failed:
            if failed.no_more_processes:
                raise process_limit_error(f"no sandbox could be made ({failed})") from None
            why = diagnosis.explain_failure(str(failed))
            raise SandboxUnavailable(why.reason, remedy=why.remedy) from None
        finally:
            terminal.close()
            protected.close()

    def _launch(
        self, spec: SandboxSpec, abi: int, own: tuple[str, Terminal], held: ExitStack,
        masked: MaskedFiles,
    ) -> Launch:  # fmt: skip
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
            _grant(ruleset, rule, masked)
        init = self._support.init
        accounts = account_stamp(spec.run_as)
        return Launch(
            argv=[*drop_privileges(spec.run_as), f"/proc/self/fd/{init}"],
            inherit=[init],
            setup=wire.Setup(flags=_setup_flags(spec)),
            ruleset=ruleset.fileno(),
            filter_for=lambda command: _filter(spec, command),
            counts="root" if os.getuid() == 0 and spec.run_as is None else "user",
            verify=lambda: (
                account_stamp(spec.run_as) == accounts
                and masked.exposed() is None
                and paths_hold(spec)
                and granted.unchanged()
            ),
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
        around = RuleContext(
            own_code=self._own_code,
            root=os.getuid() == 0 and spec.run_as is None,
            network=spec.network.kind == "inherit",
        )
        try:
            return rules(mount_plan(spec, self._support.host), max(kernel_abi(), 1), around)
        except TooManyRules as many:
            raise PolicyNotSupported(
                f"Landlock cannot leave one path out of {many}: it would need a rule for each of "
                "the many others in it",
                field="fs_deny",
                remedy="allow narrower folders, or use a host where bubblewrap works",
            ) from None

    def _first_time(self, abi: int) -> None:
        if not self._used:
            self._used = True
            for sentence in missing_features(abi):
                log.warning("Landlock: %s", sentence)


def _grant(ruleset: Ruleset, rule: PathRule, masked: MaskedFiles) -> None:
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
        masked.grant(os.fstat(fd))
    except OSError as error:
        if error.errno not in (errno.EBADFD, errno.ENOMSG):
            raise
    finally:
        os.close(fd)


def _setup_flags(spec: SandboxSpec) -> wire.SetupFlag:
    flags = wire.SetupFlag.HAS_RULESET | wire.SetupFlag.GUARD | wire.SetupFlag.SET_GID
    flags |= wire.SetupFlag.NO_UNIX
    return flags | wire.SetupFlag.NO_INET if _is_closed(spec) else flags


def _is_closed(spec: SandboxSpec) -> bool:
    return spec.network.kind != "inherit"


def _filter(spec: SandboxSpec, command: Command) -> FilterSpec:
    denied = _is_closed(spec)
    return FilterSpec(
        level=command.syscall_policy, restrict_families=denied, no_namespaces=True,
        deny_inet=denied, refused_by_init=True,
    )  # fmt: skip


def _layers() -> tuple[str, ...]:
    return (*layers(kernel_abi()), "seccomp filters")


def _warnings() -> tuple[str, ...]:
    return (
        "without namespaces: names, sizes and owners of files and the command lines of processes "
        "show; /tmp is the host's and closed (TMPDIR leads to a private folder); there is no "
        "/dev/shm, so that POSIX semaphores and shared memory do not work",
        *missing_features(kernel_abi()),
        *root_warnings(),
    )
