"""Toolchains in the home folder that the caller's PATH leads to, bound read-only.

A program needs more than its own folder: what its installation holds, and what it links to. Both
are followed within bounds, and never up to the home folder itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from sandboxd.policy import hostfs
from sandboxd.policy.canonical import Resolved, resolve
from sandboxd.policy.environment import Pairs
from sandboxd.policy.plan import Grant, Link
from sandboxd_proto.errors import PathDenied

# folder below home on PATH → the folders that the programs there need
ROOTS: dict[str, tuple[str, ...]] = {
    ".pyenv": (".pyenv",),
    ".nvm": (".nvm",),
    ".volta": (".volta",),
    ".asdf": (".asdf",),
    ".sdkman": (".sdkman",),
    ".bun": (".bun",),
    ".deno": (".deno",),
    ".rbenv": (".rbenv",),
    ".nodenv": (".nodenv",),
    ".cargo/bin": (".cargo/bin", ".rustup"),  # rustup's proxies in bin run what lies in .rustup
    ".local/bin": (
        ".local/bin", ".local/lib",  # pip install --user
        ".local/share/uv/tools", ".local/share/uv/python", ".local/pipx", ".local/share/pipx",
    ),
    "go/bin": ("go/bin",),
    ".local/share/mise": (".local/share/mise",),
    ".local/share/fnm": (".local/share/fnm",),
    ".local/share/pnpm": (".local/share/pnpm",),
}  # fmt: skip
_MOST_GRANTS = 64
_MOST_PROGRAMS = 512
_INSTALLATION = ("lib", "lib64", "libexec", "share", "include", "pyvenv.cfg", "conda-meta")


@dataclass(slots=True)
class Toolchains:
    grants: list[Grant] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    def add(self, path: str, home: str) -> None:
        """Grant `path` if it exists, is hidden otherwise and is not covered yet."""
        found = _resolved(path)
        if found is None or len(self.grants) >= _MOST_GRANTS:
            return
        self.links += [link for link in found.links if link not in self.links]
        if _hidden(found.path, home) and not self.covers(found.path):
            self.grants.append(Grant(found.path, "read", found.identity, "toolchain"))

    def covers(self, path: str) -> bool:
        return any(path == g.path or path.startswith(g.path + "/") for g in self.grants)


def toolchains(env: Pairs, home: str) -> Toolchains:
    found = Toolchains()
    home = hostfs.realpath(home)
    entries = _entries(dict(env).get("PATH", ""), home)
    # Known roots first: what they cover is not looked at again.
    for entry in entries:
        for root in _known(entry, home):
            found.add(root, home)
    for entry in entries:
        found.add(_installation(entry, home), home)
        for target in _programs(entry, home, found):
            found.add(_installation_of(target, home), home)
    for grant in list(found.grants):
        base = _python_of(grant.path)
        if base is not None and not found.covers(base):
            found.add(_installation(base, home), home)
    return found


def grants(env: Pairs, home: str) -> list[Grant]:
    return toolchains(env, home).grants


def _entries(path: str, home: str) -> list[str]:
    """The folders on PATH that are there and would be hidden, each once."""
    absolute = dict.fromkeys(os.path.normpath(e) for e in path.split(":") if os.path.isabs(e))
    return [
        e for e in absolute
        if (_hidden(e, home) or _hidden(hostfs.realpath(e), home)) and hostfs.isdir(e)
    ]  # fmt: skip


def _known(entry: str, home: str) -> Iterator[str]:
    for lead, needed in ROOTS.items():
        start = os.path.join(home, lead)
        if entry == start or entry.startswith(start + "/"):
            yield from (os.path.join(home, path) for path in needed)


def _hidden(path: str, home: str) -> bool:
    """Whether `base: host` hides it. The home folder itself is never a toolchain."""
    return any(path.startswith(f"{folder}/") for folder in (home, "/home", "/root", "/run"))


def _resolved(path: str) -> Resolved | None:
    try:
        return resolve(path, "env")
    except PathDenied:
        return None


def _installation(folder: str, home: str) -> str:
    """The prefix that a folder of programs belongs to, else the folder."""
    prefix = os.path.dirname(folder.rstrip("/"))
    too_wide = (home, os.path.join(home, ".local"), "/run", "/home", "/root")
    if os.path.basename(folder.rstrip("/")) not in ("bin", "sbin") or prefix in too_wide:
        return folder
    is_one = any(hostfs.exists(os.path.join(prefix, name)) for name in _INSTALLATION)
    return prefix if is_one else folder


def _installation_of(program: str, home: str) -> str:
    folder = os.path.dirname(program)
    prefix = _installation(folder, home)
    return program if prefix == folder else prefix


def _programs(entry: str, home: str, found: Toolchains) -> Iterator[str]:
    """Where the symlinks in a folder of programs lead, if that is hidden."""
    try:
        programs = hostfs.entries(entry)[:_MOST_PROGRAMS]
        links = [p.path for p in programs if p.is_symlink()]
        targets = {os.path.normpath(os.path.join(entry, hostfs.readlink(link))) for link in links}
    except OSError:
        return
    for target in sorted(targets):
        # Most lead to a neighbour; resolving each would cost more than the rest of the plan.
        if not found.covers(target):
            real = hostfs.realpath(target)
            if _hidden(real, home) and not found.covers(real) and hostfs.isfile(real):
                yield real


def _python_of(prefix: str) -> str | None:
    """The folder of the interpreter that a virtual environment was made from."""
    try:
        lines = hostfs.read(os.path.join(prefix, "pyvenv.cfg"), 4096).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    values = (line.partition("=")[2].strip() for line in lines if line.startswith("home"))
    return next(values, None)
