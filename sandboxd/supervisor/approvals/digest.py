"""The digest of what an approval is about: a decision repeats it, and it is worked out again before
the command starts, so that nothing runs that was not shown."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from typing import Any

import msgspec

from sandboxd.platform.current import files

MOST_FILES = 16
MOST_FILE_BYTES = 1 << 20


def digest_of(parts: dict[str, Any]) -> str:
    """SHA-256 over canonical JSON."""
    encoded = msgspec.json.encode(_plain(parts), order="deterministic")
    return "sha256:" + hashlib.sha256(encoded).hexdigest()


def _plain(value: Any) -> Any:
    """Escape names that are not UTF-8, so that JSON can hold them."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def environment_digest(env: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The names in clear, the values only as a digest."""
    values = hashlib.sha256()
    for name, value in env:
        values.update(f"{len(name)}:{name}={len(value)}:{value}".encode("utf-8", "surrogateescape"))
    return {"names": [name for name, _ in env], "values": values.hexdigest()}


def file_digests(argv: Sequence[str], cwd: str) -> dict[str, str]:
    """The contents of regular files that argv names. For a worker thread: files may be slow."""
    found: dict[str, str] = {}
    for word in argv:
        path = os.path.join(cwd, word)
        if len(found) == MOST_FILES or "\0" in word or not word:
            continue
        content = _content_digest(path)
        if content is not None:
            found[path] = content
    return found


def _content_digest(path: str) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | files.QUIETLY)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        data = b""
        while len(data) < MOST_FILE_BYTES:
            block = os.read(fd, MOST_FILE_BYTES - len(data))
            if not block:
                break
            data += block
        found = f"{status.st_size}:{hashlib.sha256(data).hexdigest()}"
        # Beyond the first part only the ctime shows a change.
        beyond = status.st_size > MOST_FILE_BYTES
        return f"{found}:{status.st_ino}:{status.st_ctime_ns}" if beyond else found
    except OSError:
        return None
    finally:
        os.close(fd)
