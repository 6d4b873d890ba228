"""A sandbox spec to bwrap's arguments. Pure: the same on every machine for the same facts.

Host paths that a caller named appear as `Bind` tokens: they are bound by descriptor (`--bind-fd`),
because a name could lead elsewhere by the time that bwrap looks at it.
"""

from __future__ import annotations

import os

import msgspec

from sandboxd.policy.mounts.mount_plan import Mount, MountKind, MountPlan
from sandboxd.policy.plan import SHM_BYTES, TMP_BYTES, Identity, SandboxSpec, SharedTmp

# As root these are writable whatever bwrap does: the files are checked against the real uid 0.
# A write to core_pattern is host root in one step.
KERNEL_FILES = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
_STREAMS = ("stdin", "stdout", "stderr")


class Bind(msgspec.Struct, frozen=True):
    """One bind mount. With an identity it must be exactly that inode."""

    source: str
    dest: str
    writable: bool = False
    identity: Identity | None = None


Token = str | Bind


class MountSources(msgspec.Struct, frozen=True):
    """Where the daemon keeps what it mounts, and what this bwrap and this host can do.

    `template_of`: for a process that sandboxes are cloned from (clones.py), their uid and gid."""

    etc: str
    names: str
    empty_file: str
    empty_dir: str
    disable_userns: bool = True
    kernel_files: tuple[str, ...] = ()
    tmp_bytes: int = TMP_BYTES
    shm_bytes: int = SHM_BYTES
    shared_tmp: SharedTmp | None = None
    template_of: tuple[int, int] | None = None


def arguments(spec: SandboxSpec, layout: MountPlan, around: MountSources) -> list[Token]:
    ids = around.template_of
    return [
        *(_template_isolation(spec, *ids) if ids is not None else _isolation(spec, around)),
        *_mounts(layout, around),
        *_read_only(layout),
    ]


def _isolation(spec: SandboxSpec, around: MountSources) -> list[Token]:
    tokens: list[Token] = ["--unshare-all", "--unshare-user"]
    if spec.network.kind == "inherit":
        tokens.append("--share-net")
    if around.disable_userns:
        # A nested user namespace could mount over what is protected here.
        tokens.append("--disable-userns")
    return [
        *tokens,
        "--die-with-parent",
        "--new-session",  # no controlling terminal, so TIOCSTI cannot type into it
        "--cap-drop", "ALL",  # as root bwrap leaves every capability otherwise
        "--clearenv",
        "--as-pid-1",
    ]  # fmt: skip


def _template_isolation(spec: SandboxSpec, uid: int, gid: int) -> list[Token]:
    """Capabilities over these mounts, which each clone drops. Files of the template and of its
    clones in /proc belong to uid 0 of this user namespace: it has none but that of commands."""
    return [
        "--unshare-all", *(["--share-net"] if spec.network.kind == "inherit" else []),
        "--unshare-user", "--uid", str(uid), "--gid", str(gid), "--cap-add", "ALL",
        "--die-with-parent", "--new-session", "--clearenv", "--as-pid-1",
    ]  # fmt: skip


def _mounts(layout: MountPlan, around: MountSources) -> list[Token]:
    tokens: list[Token] = []
    for place in layout.places:
        tokens += _mount(place, layout, around)
    return tokens


def _mount(place: Mount, layout: MountPlan, around: MountSources) -> list[Token]:
    path = place.path
    match place.kind:
        case MountKind.ROOT:
            return []
        case MountKind.PRIVATE if path == "/tmp" and around.shared_tmp is not None:
            shared = around.shared_tmp
            bind = Bind(shared.path, path, writable=True, identity=shared.identity)
            return [bind, *_own_mount_points(layout, around)]
        case MountKind.PRIVATE:
            size = around.shm_bytes if path == "/dev/shm" else around.tmp_bytes
            return ["--perms", "1777", "--size", str(size), "--tmpfs", path]
        case MountKind.HIDDEN:
            return ["--perms", "0755", "--tmpfs", path]
        case MountKind.SYSTEM:
            return ["--ro-bind", path, path]
        case MountKind.CURATED:
            source = os.path.join(around.names, place.target) if place.target else around.etc
            return [Bind(source, path)]
        case MountKind.LINK:
            return ["--symlink", place.target, path]
        case MountKind.READ if path == "/":
            return ["--ro-bind", path, path]  # always the same inode, and not bound by descriptor
        case MountKind.WRITE | MountKind.READ:
            identity = place.grant.identity if place.grant else None
            return [Bind(path, path, place.kind is MountKind.WRITE, identity)]
        case MountKind.PROTECTED:
            return [Bind(path, path)]
        case MountKind.MASK:
            return _mask(place, layout, around)
        case MountKind.PROC:
            covers = [token for file in around.kernel_files for token in ("--ro-bind", file, file)]
            # Root could change modes, which are those of every /proc. Clones mount their own.
            if around.kernel_files and around.template_of is None:
                covers += ["--remount-ro", path]
            return ["--proc", path, *covers]
        case MountKind.DEV:
            return ["--dev", path] if around.template_of is None else _devices(path)


def _devices(dev: str) -> list[Token]:
    """What --dev makes, without a devpts, for which bwrap would enter a second user namespace."""
    nodes = ("null", "zero", "full", "random", "urandom", "tty")
    links = (
        *((f"/proc/self/fd/{number}", name) for number, name in enumerate(_STREAMS)),
        ("/proc/self/fd", "fd"), ("/proc/kcore", "core"), ("pts/ptmx", "ptmx"),
    )  # fmt: skip
    return [
        "--perms", "0755", "--tmpfs", dev, "--perms", "0755", "--dir", f"{dev}/pts",
        *(word for node in nodes for word in ("--dev-bind", f"{dev}/{node}", f"{dev}/{node}")),
        *(word for target, name in links for word in ("--symlink", target, f"{dev}/{name}")),
    ]  # fmt: skip


def _own_mount_points(layout: MountPlan, around: MountSources) -> list[Token]:
    """Mount points below the shared /tmp are made in a file system of this sandbox's own: they
    would stay, and later commands would write into them instead of being refused."""
    size = str(around.tmp_bytes)
    return [
        token for folder in folders_in_tmp(layout)
        for token in ("--perms", "0755", "--size", size, "--tmpfs", folder)
    ]  # fmt: skip


def folders_in_tmp(layout: MountPlan) -> list[str]:
    """The folders right in /tmp that something is mounted below."""
    mounted = {place.path for place in layout.places}
    below = (path.split("/") for path in mounted if path.startswith("/tmp/"))
    return sorted({f"/tmp/{parts[2]}" for parts in below if len(parts) > 3} - mounted)


def _mask(place: Mount, layout: MountPlan, around: MountSources) -> list[Token]:
    if not place.is_dir:
        return [Bind(around.empty_file, place.path)]
    if layout.has_below(place.path):
        # Something is mounted below it: the mount point has to be made in it.
        return ["--perms", "0755", "--tmpfs", place.path]
    return [Bind(around.empty_dir, place.path)]


def empty_mounts(layout: MountPlan) -> list[str]:
    """Where a file system of the sandbox's own covers what the host has there."""
    return [
        place.path
        for place in layout.places
        if place.kind in (MountKind.PRIVATE, MountKind.HIDDEN)
        or (place.kind is MountKind.MASK and place.is_dir and layout.has_below(place.path))
    ]


def _read_only(layout: MountPlan) -> list[Token]:
    """Last, when every mount point inside exists: nothing can be written to nowhere."""
    tokens: list[Token] = []
    for place in layout.places:
        made = place.kind in (MountKind.HIDDEN, MountKind.DEV) or (
            place.kind is MountKind.MASK and place.is_dir and layout.has_below(place.path)
        )
        if made:
            tokens += ["--remount-ro", place.path]
    if layout.at("/").kind is MountKind.ROOT:
        tokens += ["--remount-ro", "/"]
    return tokens


def preview(tokens: list[Token]) -> list[str]:
    """The arguments with names in place of descriptors, for people."""
    out: list[str] = []
    for token in tokens:
        if isinstance(token, Bind):
            out += ["--bind" if token.writable else "--ro-bind", token.source, token.dest]
        else:
            out.append(token)
    return out
