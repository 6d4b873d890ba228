"""Move what a command made into the kept folder of its root, by paths and not by descriptors.

The sibling of `quarantine` for systems that open nothing relative to a folder: the same folders
and names, so that `sandboxctl kept` finds both. The command may still run, and exchange a folder
for a link meanwhile: each folder on the way, there and back, is pinned and looked at. A folder that
holds a pinned file can be neither removed nor made a link.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from sandboxd.platform.open_flags import PRIVATE
from sandboxd.workspace_guard.quarantine.entry_names import entry_name
from sandboxd_proto.locations import KEPT_FOLDER

# Whether a file or folder is a link; it stays where it is as long as the context lasts.
Pin = Callable[[str], AbstractContextManager[bool]]
_IGNORE = ".gitignore"


@contextmanager
def unpinned(path: str) -> Iterator[bool]:
    """Where nothing can be pinned: only when every command is dead."""
    os.lstat(path)
    yield os.path.islink(path)


class PathQuarantine:
    """One run's folder below a root (a native path); made when the first thing is moved."""

    def __init__(self, root: str, pin: Pin) -> None:
        self._root = root
        self._pin = pin
        self._name = ""
        self._count = 0

    def take(self, parts: list[str]) -> tuple[list[str], list[str]]:
        """(what was moved, where it is), as parts below the root.

        That is the path, or a link in the place of a folder above it. It gets an inert name where
        it is if no folder can be made. FileNotFoundError: it is gone. OSError: it is still there.
        """
        with ExitStack() as held:
            held.enter_context(self._pin(self._root))
            parts = self._enter(parts, held)
            return parts, self._move(parts, held)

    def put_back(self, parts: list[str], before: bytes | dict[str, bytes]) -> list[str] | None:
        """Write a file or a folder of files again; where is now what was there, if it was moved."""
        with ExitStack() as held:
            held.enter_context(self._pin(self._root))
            moved = None
            # One link after the other in the place of a folder above.
            while (found := self._enter(parts, held)) != parts:
                moved = self._move(found, held)
            with suppress(FileNotFoundError):
                moved = self._move(parts, held)
            _write(os.path.join(self._root, *parts), before)
            return moved

    def _move(self, parts: list[str], held: ExitStack) -> list[str]:
        source = os.path.join(self._root, *parts)
        os.lstat(source)
        try:
            target = [*self._open(held), self._entry(parts)]
            os.rename(source, os.path.join(self._root, *target))
        except OSError:
            os.lstat(source)
            target = [*parts[:-1], f"{parts[-1]}.sandboxd-{secrets.token_hex(4)}"]
            os.rename(source, os.path.join(self._root, *target))
        return target

    def _enter(self, parts: list[str], held: ExitStack) -> list[str]:
        """Pin the folders above; the parts end at the first of them that is a link."""
        for number in range(1, len(parts)):
            folder = os.path.join(self._root, *parts[:number])
            with ExitStack() as opened:
                if opened.enter_context(self._pin(folder)):
                    return parts[:number]
                held.push(opened.pop_all())
        return parts

    def _entry(self, parts: list[str]) -> str:
        self._count += 1
        return f"{self._count}-{entry_name('/'.join(parts))}"

    def _open(self, held: ExitStack) -> list[str]:
        """This run's folder, pinned: below the one that all runs share, if that is a folder."""
        if not self._name:
            self._name = secrets.token_hex(6)
        try:
            with ExitStack() as opened:
                self._pin_folder([KEPT_FOLDER], opened)
                found = self._pin_folder([KEPT_FOLDER, self._name], opened)
                held.push(opened.pop_all())
        except OSError:
            # The command put something else at the path of the shared folder.
            found = self._pin_folder([f"{KEPT_FOLDER}-{self._name}"], held)
        return found

    def _pin_folder(self, parts: list[str], held: ExitStack) -> list[str]:
        """Made if it is missing. Git ignores what is in it, by a file that is pinned too."""
        folder = os.path.join(self._root, *parts)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        if held.enter_context(self._pin(folder)):
            raise NotADirectoryError(f"{folder} is a link")
        ignore = os.path.join(folder, _IGNORE)
        _write_ignore(ignore)
        if held.enter_context(self._pin(ignore)):
            raise NotADirectoryError(f"{ignore} is a link")
        return parts


def _write_ignore(path: str) -> None:
    """Replaced as a whole: what a command has put there is not written through.

    One that another run has pinned meanwhile stays as it is.
    """
    draft = f"{path}-{secrets.token_hex(4)}"
    _write(draft, b"*\n")
    try:
        os.replace(draft, path)
    except PermissionError:
        os.unlink(draft)


def _write(path: str, content: bytes | dict[str, bytes]) -> None:
    """Where nothing is; OSError if something is."""
    if isinstance(content, dict):
        os.mkdir(path)
        for name, data in content.items():
            _write(os.path.join(path, name), data)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PRIVATE
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)
