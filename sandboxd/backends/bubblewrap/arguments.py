"""A sandbox spec to bwrap's arguments. Pure: the same on every machine for the same facts.

Host paths that a caller named appear as `Bind` tokens: they are bound by descriptor (`--bind-fd`),
because a name could lead elsewhere by the time that bwrap looks at it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from sandboxd.policy.layout import Kind, Layout, Place
from sandboxd.policy.plan import Identity, SandboxSpec

TMP_BYTES = 1 << 30
SHM_BYTES = 256 << 20

# As root these are writable whatever bwrap does: the files are checked against the real uid 0.
# A write to core_pattern is host root in one step.
KERNEL_FILES = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")


@dataclass(frozen=True, slots=True)
class Bind:
    """One bind mount. With an identity it must be exactly that inode."""

    source: str
    dest: str
    writable: bool = False
    identity: Identity | None = None


Token = str | Bind


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where the daemon keeps what it mounts, and what this bwrap and this host can do."""

    etc: str
    names: str
    empty_file: str
    empty_dir: str
    disable_userns: bool = True
    kernel_files: tuple[str, ...] = ()


def arguments(spec: SandboxSpec, layout: Layout, around: Surroundings) -> list[Token]:
    return [
        *_isolation(spec, around),
        *_mounts(layout, around),
        *_read_only(layout),
    ]


def _isolation(spec: SandboxSpec, around: Surroundings) -> list[Token]:
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


def _mounts(layout: Layout, around: Surroundings) -> list[Token]:
    tokens: list[Token] = []
    for place in layout.places:
        tokens += _mount(place, layout, around)
    return tokens


def _mount(place: Place, layout: Layout, around: Surroundings) -> list[Token]:
    path = place.path
    match place.kind:
        case Kind.ROOT:
            return []
        case Kind.PRIVATE:
            size = SHM_BYTES if path == "/dev/shm" else TMP_BYTES
            return ["--perms", "1777", "--size", str(size), "--tmpfs", path]
        case Kind.HIDDEN:
            return ["--perms", "0755", "--tmpfs", path]
        case Kind.SYSTEM:
            return ["--ro-bind", path, path]
        case Kind.CURATED:
            source = os.path.join(around.names, place.target) if place.target else around.etc
            return [Bind(source, path)]
        case Kind.LINK:
            return ["--symlink", place.target, path]
        case Kind.WRITE | Kind.READ:
            identity = place.grant.identity if place.grant else None
            return [Bind(path, path, place.kind is Kind.WRITE, identity)]
        case Kind.PROTECTED:
            return [Bind(path, path)]
        case Kind.MASK:
            return _mask(place, layout, around)
        case Kind.PROC:
            covers = [token for file in around.kernel_files for token in ("--ro-bind", file, file)]
            return ["--proc", path, *covers]
        case Kind.DEV:
            return ["--dev", path]


def _mask(place: Place, layout: Layout, around: Surroundings) -> list[Token]:
    if not place.is_dir:
        return [Bind(around.empty_file, place.path)]
    if has_inner(place, layout):
        # Something is mounted below it: the mount point has to be made in it.
        return ["--perms", "0755", "--tmpfs", place.path]
    return [Bind(around.empty_dir, place.path)]


def has_inner(place: Place, layout: Layout) -> bool:
    below = place.path.rstrip("/") + "/"
    return any(other.path.startswith(below) for other in layout.places)


def _read_only(layout: Layout) -> list[Token]:
    """Last, when every mount point inside exists: nothing can be written to nowhere."""
    tokens: list[Token] = []
    for place in layout.places:
        made = place.kind is Kind.HIDDEN or (
            place.kind is Kind.MASK and place.is_dir and has_inner(place, layout)
        )
        if made:
            tokens += ["--remount-ro", place.path]
    if layout.at("/").kind is Kind.ROOT:
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
