"""The one walker of symlinks: the names that the kernel looks up for a path, in its order.

Which names matter differs by caller (all of them, the links, the first on a certain mount); how a
path is followed does not. Links that are refused are in `planted_links`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

MOST_LINKS = 40  # the kernel's own limit


class Step(NamedTuple):
    """`path` has a canonical parent. `target`: what the link holds, None for anything else.
    `is_last`: no further name follows, unless this one is a link."""

    path: str
    target: str | None
    is_last: bool


class Walk:
    """Iterate for the steps; afterwards `at` is the path without links.

    `read_link` returns None for what is not a link, and is never called for a step that the caller
    did not ask for: a caller that stops early touches nothing further. `start`: a canonical folder,
    for a relative path.
    """

    def __init__(
        self, path: str, read_link: Callable[[str], str | None], *, start: str = "/"
    ) -> None:
        self.at = "/" if path.startswith("/") else start
        self._pending = _names(path)
        self._read_link = read_link

    @property
    def rest(self) -> list[str]:
        """The names behind the present step."""
        return self._pending[::-1]

    def __iter__(self) -> Iterator[Step]:
        links = 0
        while self._pending:
            name = self._pending.pop()
            here = self.at.rstrip("/")
            if name == "..":
                self.at = here.rpartition("/")[0] or "/"
                continue
            path = f"{here}/{name}"
            target = self._read_link(path) if links < MOST_LINKS else None
            yield Step(path, target, is_last=not self._pending)
            if target is None:
                self.at = path
                continue
            links += 1
            self.at = "/" if target.startswith("/") else self.at
            self._pending += _names(target)


def _names(path: str) -> list[str]:
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]
