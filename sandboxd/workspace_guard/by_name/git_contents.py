"""What git acts upon in a git dir, read by path and compared with what it was before a command.

For systems that judge no file through a descriptor: when every command is dead. The judges are
those of `git/judge`. What they cannot tell here counts as harmful: a repository in the work tree
that the plan does not know.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator

from sandboxd.platform.current import files
from sandboxd.policy.data.git_work_names import ALTERNATES, NEEDED_FOLDERS, STATE_FILES
from sandboxd.policy.data.protected_names import REBASE_STATE
from sandboxd.policy.paths.within import is_below
from sandboxd.policy.protected import git_config
from sandboxd.workspace_guard.git import judge

# A file's bytes, or the files of a folder.
Content = bytes | dict[str, bytes]
_MOST_KEPT = 16 << 20  # a larger one is judged as if all of it were new
_MOST_BYTES = 128 << 20
_MOST_FILES = 5000
_FILES = ("HEAD", "index", *STATE_FILES, *ALTERNATES)


class UnreadableError(Exception):
    """It is there, and is no plain file or folder of plain files of a usual size."""


class GitContents:
    """Make it before the command starts. `known`: git dirs whose settings are protected."""

    def __init__(self, git_dir: str, known: frozenset[str]) -> None:
        self._git_dir = git_dir
        self._known = known
        names = (*_FILES, *REBASE_STATE)
        self._strange = [name for name in names if files.islink(posixpath.join(git_dir, name))]
        self._before = {name: self._kept(name) for name in names if name not in self._strange}
        self._folders = [name for name in NEEDED_FOLDERS if self._is_folder(name)]

    def offences(self) -> Iterator[tuple[str, Content | None]]:
        """(path, what has to be there again; None: nothing, or it is not known)."""
        for name, before in self._before.items():
            if self._is_harmful(name, before):
                yield posixpath.join(self._git_dir, name), before
        for name in self._folders:
            if not self._is_folder(name):
                yield posixpath.join(self._git_dir, name), {}

    def _kept(self, name: str) -> Content | None:
        try:
            return self._read(name, _MOST_KEPT)
        except UnreadableError:
            return None

    def _is_harmful(self, name: str, before: Content | None) -> bool:
        try:
            now = self._read(name)
        except UnreadableError:
            return True
        if now == before and name != "index":
            return False
        if name in ALTERNATES:
            return True
        if now is None:
            return name == "HEAD"  # the others go when git has finished
        if isinstance(now, dict):
            known = before if isinstance(before, dict) else None
            return bool(judge.judge_operation_state(name, known, now))
        try:
            return bool(self._reasons(name, before if isinstance(before, bytes) else None, now))
        except UnreadableError:
            return True

    def _reasons(self, name: str, before: bytes | None, now: bytes) -> list[str]:
        if name == "HEAD":
            return judge.judge_head(before, now)
        if name != "index":
            return judge.judge_state_file(name, before, now)
        config = self._kept("config")
        return judge.judge_index(
            before, now,
            hash_bytes=git_config.hash_bytes(config if isinstance(config, bytes) else b""),
            is_harmful_repository=self._leads_to_unknown, shared=self._shared,
        )  # fmt: skip

    def _shared(self, name: bytes) -> bytes | None:
        found = self._kept(f"sharedindex.{name.decode()}")
        return found if isinstance(found, bytes) else None

    def _leads_to_unknown(self, path: bytes) -> bool:
        """Whether git would enter a repository there that may not be the user's."""
        tree, name = posixpath.split(self._git_dir)
        if name != ".git" or path.endswith(b"/"):
            return True
        pointer = posixpath.join(tree, os.fsdecode(path), ".git")
        if not files.lexists(pointer):
            return False
        if not files.isdir(pointer):
            said = _file(pointer, _MOST_KEPT).removeprefix(b"gitdir: ")
            inside = os.fsdecode(said.rstrip(b"\r\n"))
            pointer = posixpath.join(posixpath.dirname(pointer), files.internal(inside))
        leads_to = files.realpath(pointer)
        # An earlier command may have made any other one.
        is_own = is_below(leads_to, posixpath.join(self._git_dir, "modules"))
        return not is_own or leads_to not in self._known

    def _read(self, name: str, most: int = _MOST_BYTES) -> Content | None:
        path = posixpath.join(self._git_dir, name)
        if files.islink(path):
            raise UnreadableError(path)
        if not files.lexists(path):
            return None
        return _folder(path, most) if name in REBASE_STATE else _file(path, most)

    def _is_folder(self, name: str) -> bool:
        path = posixpath.join(self._git_dir, name)
        return files.isdir(path) and not files.islink(path)


def _file(path: str, most: int) -> bytes:
    try:
        with os.fdopen(files.open_regular(path), "rb") as file:
            data = file.read(most + 1)
    except OSError:
        raise UnreadableError(path) from None
    if len(data) > most:
        raise UnreadableError(path)
    return data


def _folder(path: str, most: int) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        with files.scandir(path) as entries:
            for entry in entries:
                if entry.is_symlink() or not entry.is_file() or len(found) > _MOST_FILES:
                    raise UnreadableError(path)
                found[entry.name] = _file(entry.path, most)
    except OSError:
        raise UnreadableError(path) from None
    return found
