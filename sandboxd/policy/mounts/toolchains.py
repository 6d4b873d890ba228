"""Toolchains in the home folder that the caller's PATH and similar variables lead to, bound
read-only.

A program needs more than its own folder: its installation, and the targets of its symlinks. Both
are followed within limits, and never up to the home folder itself.

A virtual environment in a project is on PATH too. A command that could write there decides where
its links and its pyvenv.cfg lead, so they are followed only into the folders that hold toolchains.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product

from sandboxd.platform.current import files
from sandboxd.policy.data.system_dirs import HOMES, RUNTIME
from sandboxd.policy.environment import Pairs
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.canonical import Resolved, resolve
from sandboxd.policy.paths.within import is_below, within, within_any
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
# Only on macOS, below the home folder as well; Homebrew's own folders are part of the system.
MACOS_ROOTS: dict[str, tuple[str, ...]] = {
    "Library/Python": ("Library/Python",),  # pip install --user
    "Library/pnpm": ("Library/pnpm",),
    "Library/Application Support/fnm": ("Library/Application Support/fnm",),
    "Library/Application Support/mise": ("Library/Application Support/mise",),
    "homebrew/bin": ("homebrew",),  # without an administrator's rights
}
if sys.platform == "darwin":
    ROOTS.update(MACOS_ROOTS)
# Further folders of the home folder that hold toolchains; shown where something leads there.
_MORE = ("bin", "miniconda3", "anaconda3", "miniforge3", "mambaforge", ".conda", ".rye",
         ".local/share/mamba")  # fmt: skip
# By which a program that PATH leads to finds the rest of itself.
_VARIABLES = ("RUSTUP_HOME", "JAVA_HOME", "GOROOT", "PYENV_ROOT", "DOTNET_ROOT")
_MOST_GRANTS = 64
_MOST_PROGRAMS = 512
_INSTALLATION = ("lib", "lib64", "libexec", "share", "include", "pyvenv.cfg", "conda-meta")


@dataclass(slots=True)
class Toolchains:
    """`homes` of the user are canonical. `writable`: what the command may write."""

    homes: tuple[str, ...]
    writable: tuple[str, ...] = ()
    grants: list[Grant] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    def add(self, path: str, named_in: str | None = None) -> None:
        """Grant `path` if it exists, is hidden otherwise and is not covered yet.

        `named_in`: the link or file that leads there.
        """
        found = _resolved(path)
        if found is None or len(self.grants) >= _MOST_GRANTS:
            return
        ways = [link.path for link in found.planted] + ([named_in] if named_in else [])
        if not all(map(self._is_users_own, ways)) and not self._holds_tools(found.path):
            return
        self.links += [link for link in found.links if link not in self.links]
        if _hidden(found.path, self.homes) and not self.covers(found.path):
            self.grants.append(Grant(found.path, "read", found.identity, "toolchain"))

    def covers(self, path: str) -> bool:
        return any(within(path, grant.path) for grant in self.grants)

    def _is_users_own(self, path: str) -> bool:
        """Whether no command in a workspace could have written it."""
        folder = posixpath.dirname(path)
        if folder not in self.homes and not self._holds_tools(folder):
            return False  # by its spelling: where it leads could change from look to look
        return not within_any(recording_fs.realpath(folder), self.writable)

    def _holds_tools(self, path: str) -> bool:
        names = (*(name for needed in ROOTS.values() for name in needed), *_MORE)
        spelled = [posixpath.join(home, name) for name in names for home in self.homes]
        return within_any(path, spelled) or within_any(path, map(recording_fs.realpath, spelled))


def toolchains(env: Pairs, homes: Iterable[str], writable: Iterable[str] = ()) -> Toolchains:
    homes = tuple(map(recording_fs.realpath, homes))
    found = Toolchains(homes, tuple(writable))
    variables = dict(env)
    named = [variables[name] for name in ("PATH", *_VARIABLES) if name in variables]
    entries = _entries(files.PATH_SEPARATOR.join(named), homes)
    # Known roots first: what they cover is not looked at again.
    for entry in entries:
        for root in _known(entry, homes):
            found.add(root)
    for entry in entries:
        found.add(_installation(entry, homes))
        for link, target in _programs(entry, homes, found):
            found.add(_installation_of(target, homes), named_in=link)
    for grant in list(found.grants):
        base = _python_of(grant.path)
        if base is not None and not found.covers(base):
            found.add(_installation(base, homes), named_in=f"{grant.path}/pyvenv.cfg")
    return found


def _entries(path: str, homes: tuple[str, ...]) -> list[str]:
    """The folders on PATH that are there and would be hidden, each once."""
    spelled = map(files.internal, path.split(files.PATH_SEPARATOR))
    absolute = dict.fromkeys(posixpath.normpath(e) for e in spelled if posixpath.isabs(e))
    return [
        e for e in absolute
        if (_hidden(e, homes) or _hidden(recording_fs.realpath(e), homes)) and recording_fs.isdir(e)
    ]  # fmt: skip


def _known(entry: str, homes: tuple[str, ...]) -> Iterator[str]:
    for home, (lead, needed) in product(homes, ROOTS.items()):
        if within(entry, posixpath.join(home, lead)):
            yield from (posixpath.join(home, path) for path in needed)


def _hidden(path: str, homes: tuple[str, ...]) -> bool:
    """Whether `base: host` hides it. A home folder itself is never a toolchain."""
    return any(is_below(path, folder) for folder in (*homes, *HOMES, *RUNTIME))


def _resolved(path: str) -> Resolved | None:
    try:
        return resolve(path, "env")
    except PathDenied:
        return None


def _installation(folder: str, homes: tuple[str, ...]) -> str:
    """The prefix that a folder of programs belongs to, else the folder."""
    prefix = posixpath.dirname(folder.rstrip("/"))
    too_wide = (*homes, *(f"{home}/.local" for home in homes), *HOMES, *RUNTIME)
    if posixpath.basename(folder.rstrip("/")) not in ("bin", "sbin") or prefix in too_wide:
        return folder
    is_one = any(recording_fs.exists(posixpath.join(prefix, name)) for name in _INSTALLATION)
    return prefix if is_one else folder


def _installation_of(program: str, homes: tuple[str, ...]) -> str:
    folder = posixpath.dirname(program)
    prefix = _installation(folder, homes)
    return program if prefix == folder else prefix


def _programs(entry: str, homes: tuple[str, ...], found: Toolchains) -> Iterator[tuple[str, str]]:
    """The symlinks in a folder of programs and where they lead, if that is hidden."""
    try:
        programs = recording_fs.entries(entry)[:_MOST_PROGRAMS]
        links = [p.path for p in programs if p.is_symlink()]
        targets = {
            posixpath.normpath(posixpath.join(entry, recording_fs.readlink(link))): link
            for link in links
        }
    except OSError:
        return
    for target in sorted(targets):
        # Most lead to a neighbour; resolving each would cost more than the rest of the plan.
        if not found.covers(target):
            real = recording_fs.realpath(target)
            if _hidden(real, homes) and not found.covers(real) and recording_fs.isfile(real):
                yield targets[target], real


def _python_of(prefix: str) -> str | None:
    """The folder of the interpreter that a virtual environment was made from."""
    try:
        lines = recording_fs.read(posixpath.join(prefix, "pyvenv.cfg"), 4096).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    values = (line.partition("=")[2].strip() for line in lines if line.startswith("home"))
    return next(values, None)
