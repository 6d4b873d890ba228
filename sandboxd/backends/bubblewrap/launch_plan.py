"""How bwrap is started for a spec: its arguments, inherited descriptors, and the init's setup."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import lru_cache, partial

import msgspec
from msgspec.structs import replace

from sandboxd.backends.bubblewrap.arguments import (
    KERNEL_FILES,
    Bind,
    MountSources,
    Token,
    arguments,
    empty_mounts,
    folders_in_tmp,
    preview,
)
from sandboxd.backends.bubblewrap.binary import Bwrap
from sandboxd.backends.bubblewrap.clones import SpecTemplate, Verification, template_arguments
from sandboxd.backends.linux_context import LinuxSupport, filter_for
from sandboxd.linux import unix_peers
from sandboxd.linux.file_stamp import file_stamp
from sandboxd.linux.folder_access import folder_access
from sandboxd.linux.host_mounts import HostMounts
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.binary import seal
from sandboxd.linux.init_client.launch import Launch, bounding_processes, start_template
from sandboxd.linux.init_client.rlimits import ProcessCount
from sandboxd.linux.init_client.template import Template
from sandboxd.linux.landlock import Ruleset, confinement, kernel_abi
from sandboxd.linux.openat import changed_error, open_checked
from sandboxd.linux.rootfs.curated_etc import EtcRequest
from sandboxd.linux.setpriv import account_stamp
from sandboxd.policy.mounts.mount_plan import HOST_CONTENT, MountKind, MountPlan, mount_plan
from sandboxd.policy.paths.within import folders_above, is_below
from sandboxd.policy.plan import RunAs, SandboxSpec
from sandboxd_proto.errors import PathDenied

_MOST_PASSED = 128


class BwrapLine(msgspec.Struct, frozen=True):
    """How bwrap is started, and what the init must find at its mounts."""

    argv: list[str]
    inherit: list[int]
    checks: list[wire.Check]


class LaunchPlans:
    """Descriptors that are opened for a launch belong to the caller's `held`."""

    def __init__(self, support: LinuxSupport) -> None:
        self._support = support
        self._mounts: HostMounts | None = None

    def layout(self, spec: SandboxSpec) -> MountPlan:
        return mount_plan(spec, self._support.host)

    async def make_etc(self, spec: SandboxSpec) -> None:
        """For what is mounted from now on; it takes a thread."""
        layout = self.layout(spec)
        if layout.at("/etc").kind is MountKind.CURATED:
            await self._support.etc.make(self._etc_request(spec, layout))

    def hold_etc(self, spec: SandboxSpec) -> AbstractContextManager[None]:
        """The copy of /etc stays for as long as something has it mounted."""
        layout = self.layout(spec)
        if layout.at("/etc").kind is not MountKind.CURATED:
            return nullcontext()
        return self._support.etc.hold(self._etc_request(spec, layout))

    def command_line(self, spec: SandboxSpec, program: Bwrap | None) -> list[str]:
        """As a preview, without descriptors."""
        tokens = self._tokens(spec, self.layout(spec), program)
        name = program.path if program else "bwrap"
        return [*_drop(spec.run_as), name, *preview(tokens), "--", "sandboxd-init"]

    def verification(self, spec: SandboxSpec) -> Verification:
        """For what is made from now on. The plan's paths need no check, because the caller has just
        planned an equal spec; specs do not hold /etc, accounts, mounts, the machine's name, the
        folders of the base and who may pass through the folders above a path."""
        if self._mounts is None:
            self._mounts = HostMounts()
        return Verification(self._mounts.watch(self.layout(spec)), partial(self._facts, spec))

    def _facts(self, spec: SandboxSpec) -> object:
        etc = None if spec.base == "host" else self._support.etc.stamp()
        layout = self.layout(spec)
        folders = tuple(map(file_stamp, _folders_of_base(layout)))
        ways = tuple(map(folder_access, _folders_passed(layout))) if spec.run_as else ()
        return os.uname().nodename, etc, account_stamp(spec.run_as), folders, ways

    def launch(
        self,
        spec: SandboxSpec,
        line: BwrapLine,
        held: ExitStack,
        verify: Verification,
        ready_s: float,
    ) -> Launch:
        setup = self._setup(spec, self.layout(spec), line.checks)
        plan = self._plan(spec, setup, verify, argv=line.argv, inherit=line.inherit)
        return replace(plan, ruleset=self._held_ruleset(held), ready_s=ready_s)

    def clone(self, kept: SpecTemplate, held: ExitStack, ready_s: float) -> Launch:
        return replace(kept.launch, ruleset=self._held_ruleset(held), ready_s=ready_s)

    def _held_ruleset(self, held: ExitStack) -> int | None:
        ruleset = self.ruleset()
        return held.enter_context(ruleset).fileno() if ruleset is not None else None

    def ruleset(self) -> Ruleset | None:
        """Of its own for each sandbox: one that they share would collect the rules of all."""
        abi = kernel_abi()
        return confinement.ruleset(abi) if abi else None

    def start_template(
        self, spec: SandboxSpec, line: BwrapLine, verify: Verification
    ) -> SpecTemplate:
        layout = self.layout(spec)
        with ExitStack() as mounted:
            mounted.enter_context(self.hold_etc(spec))
            mount_sources = self._mount_sources(spec, layout, None)
            own_network = spec.network.kind != "inherit"
            flags = ("n" if own_network else "") + ("k" if root_inside(spec) else "")
            own = template_arguments(flags, layout, mount_sources)
            counted = bounding_processes(self._support.cgroups, _counts(spec))
            release = mounted.pop_all().close
            template = start_template(line.argv, own, line.inherit, release, counted)
        setup = self._setup(spec, layout, line.checks)
        return SpecTemplate(template, self._plan(spec, setup, verify, template=template), verify)

    def line(
        self, spec: SandboxSpec, program: Bwrap, held: ExitStack, sources: dict[str, Bind], *,
        template: bool,
    ) -> BwrapLine:  # fmt: skip
        """`sources` gets what is bound, by the name that bwrap has for it."""
        layout = self.layout(spec)
        for mask in spec.masks:
            # bwrap would make the missing mount point, and it would stay on the host.
            if not os.path.lexists(mask.path):
                raise changed_error(mask.path, "it is gone")
        _refuse_links_in_tmp(spec, layout)
        tokens = self._tokens(spec, layout, program, template=template)
        args, descriptors, checks = _open_binds(tokens, program, held, sources)
        checks += [wire.Check(path=path, device=0, inode=0) for path in self._empty(spec, layout)]
        args_fd = _kept(seal(os.fsencode("\0".join([*args, ""])), "args"), held)
        init = self._support.init
        # Root's bwrap starts where the host's device nodes are read-only (init/devices.c).
        protect = root_inside(spec) and not template
        before = [f"/proc/self/fd/{init}", "--devices"] if protect else _drop(spec.run_as)
        argv = [*before, program.path, "--args", str(args_fd), "--", f"/proc/self/fd/{init}"]
        return BwrapLine(argv, [*descriptors, args_fd, init], checks)

    def _setup(
        self, spec: SandboxSpec, layout: MountPlan, checks: Sequence[wire.Check]
    ) -> wire.Setup:
        abi = kernel_abi()
        flags = wire.SetupFlag.WATCH_MOUNTS | wire.SetupFlag.REQUIRE_PID1 | wire.SetupFlag.SET_GID
        flags |= unix_peers.setup_flags(spec)
        if spec.network.kind == "deny":
            # With allow_hosts the gate knows better, and evidence of every connection costs
            # milliseconds: the kernel walks all its sockets to list those of one namespace.
            flags |= wire.SetupFlag.NOTIFY
        return wire.Setup(
            flags=flags | (wire.SetupFlag.HAS_RULESET if abi else wire.SetupFlag(0)),
            checks=checks,
            rules=confinement.rules(layout, abi) if abi else (),
            scratch=_in_memory(spec, layout),
            sockets=unix_peers.named_sockets(spec),
        )

    def _plan(
        self, spec: SandboxSpec, setup: wire.Setup, verify: Verification, *,
        argv: list[str] | None = None, inherit: Sequence[int] = (),
        template: Template | None = None,
    ) -> Launch:  # fmt: skip
        """Without its ruleset."""
        return Launch(
            argv=argv or [],
            inherit=inherit,
            template=template,
            setup=setup,
            ruleset=None,
            filter_for=lambda command: filter_for(spec, command),
            counts=_counts(spec),
            verify=verify,
            changed=verify.changed,
            cgroups=self._support.cgroups,
        )

    def _empty(self, spec: SandboxSpec, places: MountPlan) -> list[str]:
        if spec.shared_tmp is None:
            return empty_mounts(places)
        private = [path for path in empty_mounts(places) if path != "/tmp"]
        return [*private, *folders_in_tmp(places)]

    def _tokens(
        self, spec: SandboxSpec, places: MountPlan, program: Bwrap | None, *,
        template: bool = False,
    ) -> list[Token]:  # fmt: skip
        mount_sources = self._mount_sources(spec, places, program)
        if template:  # each clone covers the files in a /proc of its own
            mount_sources = replace(mount_sources, kernel_files=(), template_of=_ids(spec))
        return arguments(spec, places, mount_sources)

    def _mount_sources(
        self, spec: SandboxSpec, places: MountPlan, program: Bwrap | None
    ) -> MountSources:
        state = self._support.state
        etc = ""
        if places.at("/etc").kind is MountKind.CURATED:
            etc = self._support.etc.folder(self._etc_request(spec, places))
        kernel = tuple(f for f in KERNEL_FILES if os.path.exists(f))
        return MountSources(
            etc=etc,
            names=self._support.names(spec.network),
            empty_file=state.empty_file,
            empty_dir=state.empty_dir,
            disable_userns=program is None or program.disable_userns,
            kernel_files=kernel if root_inside(spec) else (),
            tmp_bytes=spec.tmp_bytes,
            shm_bytes=spec.shm_bytes,
            shared_tmp=spec.shared_tmp,
        )

    def _etc_request(self, spec: SandboxSpec, places: MountPlan) -> EtcRequest:
        network = spec.network.kind == "inherit"
        return EtcRequest(*_ids(spec), network=network, mount_points=_inside_etc(places))


@lru_cache(maxsize=48)
def _inside_etc(places: MountPlan) -> tuple[tuple[str, bool], ...]:
    return tuple(
        (place.path.removeprefix("/etc/"), place.is_dir)
        for place in places.places
        if place.path.startswith("/etc/")
    )


@lru_cache(maxsize=48)
def _folders_of_base(places: MountPlan) -> list[str]:
    """Those that hold what bwrap binds by name: a rename in them leaves the old one bound. What it
    binds is not looked at, because a file system that is mounted there may hang."""
    named = (p.path for p in places.places if p.kind is MountKind.SYSTEM and p.path != "/")
    return sorted({os.path.dirname(path) for path in named})


@lru_cache(maxsize=48)
def _folders_passed(places: MountPlan) -> list[str]:
    """Folders of the host above what is bound, where a sandbox has folders of its own: a command
    does not pass through the host's, so nothing but bwrap notices that its user may not. A plan
    that names more of them looks at some."""
    shown = (place.path for place in places.places if place.kind in HOST_CONTENT)
    above = {folder for path in shown for folder in folders_above(path)}
    return sorted(folder for folder in above if not places.shows_host(folder))[:_MOST_PASSED]


def _in_memory(spec: SandboxSpec, layout: MountPlan) -> list[str]:
    """A session's /tmp is a folder of the host."""
    private = [place.path for place in layout.places if place.kind is MountKind.PRIVATE]
    return [path for path in private if path != "/tmp" or spec.shared_tmp is None]


def _refuse_links_in_tmp(spec: SandboxSpec, layout: MountPlan) -> None:
    """Commands of a session write its /tmp. bwrap would make a missing mount point where a link
    leads, and a link can lead to the host: bwrap has it below /oldroot while it mounts."""
    if spec.shared_tmp is None:
        return
    mounted = (place.path for place in layout.places if place.kind is not MountKind.LINK)
    for path in (path for path in mounted if is_below(path, "/tmp")):
        name = path.split("/")[2]
        if os.path.islink(os.path.join(spec.shared_tmp.path, name)):
            raise PathDenied(
                f"{path} cannot be shown: a command of this session made a symlink at /tmp/{name}",
                field="manifest",
                remedy=f"remove it with a command of this session: rm /tmp/{name}",
            )


def _counts(spec: SandboxSpec) -> ProcessCount:
    return "root" if root_inside(spec) else "namespace"


def _ids(spec: SandboxSpec) -> tuple[int, int]:
    """The uid and gid of commands."""
    return (spec.run_as.uid, spec.run_as.gid) if spec.run_as else (os.getuid(), os.getgid())


def root_inside(spec: SandboxSpec) -> bool:
    return os.getuid() == 0 and spec.run_as is None


def _open_binds(
    tokens: list[Token], program: Bwrap, held: ExitStack, sources: dict[str, Bind]
) -> tuple[list[str], list[int], list[wire.Check]]:
    """Each bind by descriptor, or by name where bwrap cannot; and what the init must find there.

    Also with a descriptor: a program on the host can rename over the *target* while bwrap mounts.
    """
    args: list[str] = []
    descriptors: list[int] = []
    checks: list[wire.Check] = []
    for token in tokens:
        if isinstance(token, str):
            args.append(token)
            continue
        fd = _kept(open_checked(token.source, token.identity), held)
        status = os.fstat(fd)
        checks.append(wire.Check(path=token.dest, device=status.st_dev, inode=status.st_ino))
        if program.bind_fd:
            descriptors.append(fd)
            sources[f"/proc/self/fd/{fd}"] = token
            args += ["--bind-fd" if token.writable else "--ro-bind-fd", str(fd), token.dest]
        else:
            sources[token.source] = token
            args += ["--bind" if token.writable else "--ro-bind", token.source, token.dest]
    return args, descriptors, checks


def _kept(fd: int, held: ExitStack) -> int:
    held.callback(os.close, fd)
    return fd


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
