"""What lies at, above and below a path that a remedy would name: bounded looks at the host.

A name is judged at every depth, without case: a copy of ~/.ssh is as secret as ~/.ssh, and some
file systems take `.Git` for `.git`. A folder that holds more than can be looked at is `unknown`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Literal

from sandboxd.denials.context import HostFile, HostView
from sandboxd.policy.data import protected_names, secrets

Trait = Literal[
    "unknown", "repository", "startup", "secret", "hidden", "private", "program", "special",
    "foreign", "linked",
]  # fmt: skip
MOST_ENTRIES = 1024  # of all looks for one answer
MOST_AT_ONCE = 512  # of one path
DEEPEST = 32
_MOST_IN_OTHER = 256

# Names that say what is in the file.
_TELLING = re.compile(
    r"^id_(?:rsa|dsa|ecdsa|ed25519)|secret|passw|passphrase|credential|token|private|api_?key"
    r"|\.(?:pem|key|p12|pfx|jks|keystore|kdbx?|ppk|gpg|asc|age|ovpn)$|_history$|^kubeconfig"
    r"|^cookies?\b|^wallet|^key(?:ring|s)?\b"
)
# Files that hold data. A file of another kind may be code, or settings that name programs.
_DATA = frozenset(
    ("txt", "text", "md", "rst", "csv", "tsv", "log", "out", "err", "o", "a", "d", "obj", "dat",
     "data", "db", "sqlite", "sqlite3", "jsonl", "ndjson", "png", "jpg", "jpeg", "gif", "webp",
     "ico", "bmp", "tiff", "pdf", "ps", "eps", "tex", "bib", "aux", "odt", "ods", "zip", "gz",
     "bz2", "xz", "zst", "tar", "tgz", "7z", "parquet", "feather", "arrow", "npy", "npz", "h5",
     "hdf5", "onnx", "safetensors", "mp3", "wav", "ogg", "flac", "mp4", "mkv", "webm", "avi",
     "ttf", "otf", "woff", "woff2", "tmp", "bak", "old", "orig", "patch", "diff", "map", "snap",
     "gcda", "gcno", "lcov", "info", "prof", "trace", "pid", "cache", "index", "idx", "stamp",
     "timestamp")
)  # fmt: skip
# Hidden names that projects have, and that no program runs or logs in with.
_ORDINARY = frozenset(
    (".gitignore", ".gitkeep", ".gitattributes", ".keep", ".editorconfig", ".dockerignore",
     ".npmignore", ".nojekyll", ".ds_store", ".pytest_cache", ".mypy_cache", ".ruff_cache",
     ".coverage", ".hypothesis", ".sconsign.dblite", ".ninja_log", ".ninja_deps", ".deps", ".libs")
)  # fmt: skip


_SHARED_TOPS = (".config", ".github", "bin")


def _protected_top(name: str) -> str:
    """Of a name with several components the first one counts: the rest can be made in it. Not so
    where many other things lie in there too."""
    top = name.split("/")[0]
    return name if top in _SHARED_TOPS else top


def _named() -> dict[str, list[tuple[str, Trait]]]:
    """Last component → whole names that end with it."""
    found: dict[str, Trait] = {".git": "repository"}
    found |= {_protected_top(name).lower(): "startup" for name in protected_names.WORKSPACE}
    # What has no dot is too common a word.
    paths = (path.lower() for group in secrets.HOME for path in group.paths)
    found |= {path: "secret" for path in paths if path[0] in "._"}
    by_end: dict[str, list[tuple[str, Trait]]] = {}
    for name, trait in found.items():
        by_end.setdefault(posixpath.basename(name), []).append((f"/{name}", trait))
    return by_end


_NAMED = _named()


def name_traits(path: str) -> set[Trait]:
    """What the names of an absolute path say."""
    found: set[Trait] = set()
    parts = path.split("/")
    for count in range(2, len(parts) + 1):
        found |= _last_name("/".join(parts[:count]))
    return found


def _last_name(path: str) -> set[Trait]:
    low = path.lower()
    name = low.rsplit("/", 1)[-1]
    found = {trait for whole, trait in _NAMED.get(name, ()) if low.endswith(whole)}
    if name[:1] == "." and name not in _ORDINARY:
        found.add("hidden")
    if _TELLING.search(name):
        found.add("private")
    if name in {"bin", "sbin"}:
        found.add("program")
    return found


def is_git_dir(host: HostView, folder: str) -> bool:
    """Whether it looks like one, or like that of a worktree, whatever its name is."""
    head, *others = (
        host.exists(posixpath.join(folder, name)) for name in ("HEAD", "objects", "commondir")
    )
    return head and any(others)


def in_git_dir(host: HostView, path: str) -> bool:
    return any(is_git_dir(host, folder) for folder in _above(path))


def in_repository(host: HostView, path: str) -> bool:
    return any(host.exists(posixpath.join(folder, ".git")) for folder in _above(path))


def _above(path: str) -> list[str]:
    """The path and the folders above it, without the root."""
    found = []
    while path not in {"/", ""}:
        found.append(path)
        path = posixpath.dirname(path)
    return found


class HostLooks:
    """The looks for one answer. Each path is looked at once; the number of entries is limited."""

    def __init__(self, host: HostView, most: int = MOST_ENTRIES) -> None:
        self._host = host
        self._left = most
        self._known: dict[str, frozenset[Trait]] = {}
        self._links: dict[str, tuple[str, ...]] = {}
        self._linked: dict[str, set[tuple[int, int]]] = {}

    def has_name_among(self, path: str, others: Iterable[str]) -> bool:
        """Whether the file, or one that the folder holds, is also one of `others` or in one, as far
        as that can be looked at."""
        self.at(path)
        linked = self._linked[path]
        if not linked:
            return False
        for other in filter(self._host.exists, others):
            looks = HostLooks(self._host, _MOST_IN_OTHER)
            looks.at(other)
            if not linked.isdisjoint(looks._linked[other]):
                return True
        return False

    def linked_from(self, home: str) -> tuple[str, ...]:
        """Where hidden links of a home folder lead: dotfiles are often kept elsewhere."""
        if home not in self._links:
            folders = (home, f"{home}/.config")
            self._links[home] = tuple(
                self._host.canonical(posixpath.join(folder, entry.name))
                for folder in folders
                for entry in self._host.entries(folder, MOST_AT_ONCE) or ()
                if entry.kind == "link" and (entry.name[0] == "." or folder != home)
            )
        return self._links[home]

    def at(self, path: str) -> frozenset[Trait]:
        """The traits of the file, or of all that a folder holds."""
        if path not in self._known:
            self._known[path] = frozenset(self._look(path))
        return self._known[path]

    def _look(self, path: str) -> set[Trait]:
        linked = self._linked.setdefault(path, set())
        file = self._host.file(path)
        if file is None:
            return {"unknown"}
        found = _own_traits(file)
        linked.update([file.inode] if file.linked else [])
        if file.kind != "folder":
            return found
        pending, end = [path], max(0, self._left - MOST_AT_ONCE)
        while pending:
            folder = pending.pop()
            shallow = folder.count("/") < path.count("/") + DEEPEST
            entries = self._host.entries(folder, self._left - end) if shallow else None
            if entries is None:
                self._left = end
                return {*found, "unknown"}
            self._left -= len(entries)
            names = {entry.name for entry in entries}
            linked.update(entry.inode for entry in entries if entry.linked)
            if "HEAD" in names and names & {"objects", "commondir"}:
                found.add("repository")
            for entry in entries:
                whole = posixpath.join(folder, entry.name)
                found |= _own_traits(entry) | _last_name(whole)
                pending += [whole] if entry.kind == "folder" else []
        return found


def _own_traits(file: HostFile) -> set[Trait]:
    found: set[Trait] = set()
    if file.kind == "other":
        found.add("special")
    if not file.own:
        found.add("foreign")
    if file.private:
        found.add("private")
    if file.linked:
        found.add("linked")
    plain = file.name.startswith(".") or file.name.lower().rpartition(".")[2] in _DATA
    if file.program or (file.kind == "file" and not (plain and "." in file.name)):
        found.add("program")
    return found
