"""A made-up machine to judge messages on: a workspace, a read-only rest, hidden places, masks."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from msgspec.structs import replace

from sandboxd.denials import HostView, RunEvidence, Setting, StreamScanner
from sandboxd.denials.context import HostFile
from sandboxd.policy.mounts.mount_plan import Mount, MountKind, MountPlan
from sandboxd.policy.plan import (
    Limits,
    Mask,
    NetworkRule,
    Plan,
    Protected,
    SandboxSpec,
)
from sandboxd_proto.denial import Denial
from sandboxd_proto.manifest import SyscallPolicy

WS = "/w/ws"
ON_HOST = frozenset(
    {
        "/",
        "/etc",
        "/etc/hosts",
        "/opt",
        "/opt/tools",
        "/opt/tools/bin",
        "/opt/tools/bin/cargo",
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/w",
        WS,
        "/w/ws/.git",
        "/w/ws/.git/config",
        "/w/ws/.git/hooks",
        "/w/ws/.env",
        "/w/ws/src",
        "/w/out",
        "/w/out/old.txt",
        "/w/out/a b.txt",
        "/h",
        "/h/u",
        "/h/u/.ssh",
        "/h/u/.ssh/id",
        "/h/u/notes.txt",
        "/h/u/lib",
        "/run",
        "/run/docker.sock",
        "/tmp",
        "/tmp/of-host",
        "/C:\\data",
    }
)
NO_LIMITS = Limits()


def host(
    *,
    pids: Iterable[int] = (),
    ports: Iterable[int] = (),
    mine: tuple[str, ...] = ("/w", "/h"),
    unread: tuple[str, ...] = (),
    modes: tuple[str, ...] = ("/",),
    strangers: str = "/strangers",
    more: dict[str, HostFile] | None = None,
) -> HostView:
    """`mine`: what may be written; `unread`: what may not be read; `modes`: what the bits allow;
    `more`: files beside ON_HOST, by path."""
    there = {path: HostFile("", "file" if "." in path else "folder") for path in ON_HOST}
    there |= more or {}

    def file(path: str) -> HostFile | None:
        inside = any(other.startswith(path + "/") for other in there)
        found = HostFile("", "folder") if inside else there.get(path)
        return replace(found, name=posixpath.basename(path)) if found else None

    def entries(path: str, most: int) -> list[HostFile] | None:
        below = [o[len(path) + 1 :].split("/")[0] for o in there if o.startswith(path + "/")]
        found = [file(f"{path}/{name}") for name in dict.fromkeys(below)]
        return [one for one in found if one is not None] if len(found) <= most else None

    return HostView(
        file=file,
        entries=entries,
        exists=lambda path: file(path) is not None,
        is_dir=lambda path: (found := file(path)) is not None and found.kind == "folder",
        permits=lambda path, access: (
            path not in unread if access == "read" else path.startswith(mine)
        ),
        barrier=lambda path, access, top: None if path.startswith(modes) else path,
        owner=lambda path: "ada",
        user=lambda: "bob",
        foreign_home=lambda path: path.startswith(strangers),
        canonical=lambda path: path.replace("/var/run", "/run", 1),
        pid_exists=frozenset(pids).__contains__,
        listens=frozenset(ports).__contains__,
    )


def setting(
    *argv: str,
    network: NetworkRule | None = None,
    limits: Limits = NO_LIMITS,
    syscall_policy: SyscallPolicy = "inherit",
    view: HostView | None = None,
    env: tuple[tuple[str, str], ...] = (),
    **more: object,
) -> Setting:
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
        Mount("/", MountKind.SYSTEM),
        Mount("/tmp", MountKind.PRIVATE),
        Mount("/h", MountKind.HIDDEN),
        Mount("/run", MountKind.HIDDEN),
        Mount("/opt/tools", MountKind.HIDDEN),
        Mount(WS, MountKind.WRITE),
        Mount("/proc", MountKind.PROC),
        Mount("/dev", MountKind.DEV),
        *(Mount(m.path, MountKind.MASK, m.is_dir) for m in spec.masks),
        *(Mount(p.path, MountKind.PROTECTED, p.is_dir) for p in spec.protected),
    ]
    plan = Plan(
        sandbox=spec,
        syscall_policy=syscall_policy,
        timeout_s=30.0,
        limits=limits,
        cwd=WS,
        env=env or (("PATH", "/usr/bin:/opt/tools/bin"), ("HOME", "/h/u")),
    )
    return Setting(
        plan=plan,
        layout=MountPlan(places),
        host=view or host(),
        argv=argv,
        **more,  # type: ignore[arg-type]
    )


def open_setting(*argv: str, view: HostView | None = None) -> Setting:
    """A plan that allows everything: the root writable, the network open, no limits, no filter."""
    spec = SandboxSpec(base="host", network=NetworkRule("inherit"))
    places = [
        Mount("/", MountKind.WRITE),
        Mount("/proc", MountKind.PROC),
        Mount("/dev", MountKind.DEV),
    ]
    plan = Plan(
        sandbox=spec, syscall_policy="inherit", timeout_s=None, limits=NO_LIMITS, env=(), cwd=WS
    )
    return Setting(plan=plan, layout=MountPlan(places), host=view or host(), argv=argv)


def denials(
    where: Setting, stderr: str | bytes = "", facts: RunEvidence | None = None, *, stdout: str = ""
) -> list[Denial]:
    scanner = StreamScanner(where)
    scanner.feed("stderr", stderr.encode() if isinstance(stderr, str) else stderr)
    scanner.feed("stdout", stdout.encode())
    return scanner.finish(facts or RunEvidence(exit_code=1))
