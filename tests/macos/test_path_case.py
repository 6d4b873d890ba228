"""Names on disk: one spelling for everything that is compared as text."""

from __future__ import annotations

import errno
import os

import pytest

from sandboxd.platform.path_case import resolve_case

DISK = ("/", "/Users", "/Users/me", "/Users/me/.ssh", "/Users/me/Work")


def look(path: str) -> str:
    """A volume that ignores case."""
    for name in DISK:
        if name.lower() == path.lower():
            return name
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/users/ME/.SSH", "/Users/me/.ssh"), ("/Users/me/work", "/Users/me/Work"), ("/", "/"),
     ("/USERS/me/work/New/File", "/Users/me/Work/New/File"), ("/other/Place", "/other/Place")],
)  # fmt: skip
def test_what_exists_is_spelled_as_on_disk(path: str, expected: str) -> None:
    assert resolve_case(path, look) == expected
