"""A made-up machine to judge messages on: a workspace, a read-only rest, hidden places, masks."""

from __future__ import annotations

from collections.abc import Iterable

from sandboxd.denials import Facts, HostView, Setting, StreamScanner
from sandboxd.policy.layout import Kind, Layout, Place
from sandboxd.policy.plan import (
    Limits,
    Mask,
    NetworkRule,
    Plan,
    Protected,
    SandboxSpec,
)  # fmt: skip
from sandboxd_proto.denial import Denial
from sandboxd_proto.manifest import SyscallPolicy

WS = "/w/ws"
ON_HOST = frozenset(
    {"/", "/etc", "/etc/hosts", "/opt", "/opt/tools", "/opt/tools/bin", "/opt/tools/bin/cargo",
     "/usr", "/usr/bin", "/usr/lib", "/w", WS, "/w/ws/.git", "/w/ws/.git/config",
     "/w/ws/.git/hooks", "/w/ws/.env", "/w/ws/src", "/w/out", "/w/out/old.txt", "/w/out/a b.txt",
     "/h", "/h/u", "/h/u/.ssh", "/h/u/.ssh/id", "/h/u/notes.txt", "/h/u/lib", "/run",
     "/run/docker.sock", "/tmp", "/tmp/of-host", "/C:\\data"}
)  # fmt: skip
NO_LIMITS = Limits()


def host(
    *, pids: Iterable[int] = (), ports: Iterable[int] = (), mine: tuple[str, ...] = ("/w", "/h")
) -> HostView:
    return HostView(
        exists=ON_HOST.__contains__,
        is_dir=lambda path: any(other.startswith(path + "/") for other in ON_HOST),
        permits=lambda path, access: access == "read" or path.startswith(mine),
        canonical=lambda path: path.replace("/var/run", "/run", 1),
        pid_exists=frozenset(pids).__contains__,
        listens=frozenset(ports).__contains__,
    )


def setting(
    *argv: str, network: NetworkRule | None = None, limits: Limits = NO_LIMITS,
    syscall_policy: SyscallPolicy = "inherit", view: HostView | None = None,
    env: tuple[tuple[str, str], ...] = (), **more: object,
) -> Setting:  # fmt: skip
    """/h is hidden, ~/.ssh and .env masked, .git/config and hooks protected, WS writable."""
    spec = SandboxSpec(
        base="host",
        network=network or NetworkRule("deny"),
        masks=(Mask("/w/ws/.env", is_dir=False), Mask("/h/u/.ssh", is_dir=True)),
        protected=(
            Protected("/w/ws/.git/config", WS, present=True),
            Protected("/w/ws/.git/hooks", WS, present=True, is_dir=True),
        ),
    )
    places = [
        Place("/", Kind.SYSTEM), Place("/tmp", Kind.PRIVATE), Place("/h", Kind.HIDDEN),
        Place("/run", Kind.HIDDEN), Place("/opt/tools", Kind.HIDDEN), Place(WS, Kind.WRITE),
        Place("/proc", Kind.PROC), Place("/dev", Kind.DEV),
        *(Place(m.path, Kind.MASK, m.is_dir) for m in spec.masks),
        *(Place(p.path, Kind.PROTECTED, p.is_dir) for p in spec.protected),
    ]  # fmt: skip
    plan = Plan(
        sandbox=spec, syscall_policy=syscall_policy, timeout_s=30.0, limits=limits, cwd=WS,
        env=env or (("PATH", "/usr/bin:/opt/tools/bin"), ("HOME", "/h/u")),
    )  # fmt: skip
    return Setting(
        plan=plan, layout=Layout(places), host=view or host(), argv=argv, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def open_setting(*argv: str, view: HostView | None = None) -> Setting:
    """A plan that allows everything: the root writable, the network open, no limits, no filter."""
    spec = SandboxSpec(base="host", network=NetworkRule("inherit"))
    places = [Place("/", Kind.WRITE), Place("/proc", Kind.PROC), Place("/dev", Kind.DEV)]
    plan = Plan(
        sandbox=spec, syscall_policy="inherit", timeout_s=None, limits=NO_LIMITS, env=(), cwd=WS
    )
    return Setting(plan=plan, layout=Layout(places), host=view or host(), argv=argv)


def denials(
    where: Setting, stderr: str | bytes = "", facts: Facts | None = None, *, stdout: str = ""
) -> list[Denial]:
    scanner = StreamScanner(where)
    scanner.feed("stderr", stderr.encode() if isinstance(stderr, str) else stderr)
    scanner.feed("stdout", stdout.encode())
    return scanner.finish(facts or Facts(exit_code=1))
