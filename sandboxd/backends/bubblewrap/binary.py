"""The bwrap binary: where it is and which options it has."""

from __future__ import annotations

import os
import shutil

import anyio
import msgspec

from sandboxd import event_loop
from sandboxd.linux.spawn import spawn

ASK_S = 5.0
MOST_BYTES = 64 * 1024  # of what it says
_KNOWN_MAX = 4


class Bwrap(msgspec.Struct, frozen=True):
    path: str
    version: str
    bind_fd: bool
    disable_userns: bool


class Hung(Exception):
    """It did not answer."""


_Key = tuple[str, int]  # path and time of change
_known: dict[_Key, Bwrap] = {}
_asked: dict[_Key, event_loop.Task[Bwrap]] = {}


def find_path() -> str | None:
    """Looked up each time: it may be installed while the daemon runs."""
    return shutil.which("bwrap", path=os.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin")


def known() -> Bwrap | None:
    """What the program said when it was last asked, if it is still the same file."""
    key = _key()
    return _known.get(key) if key is not None else None


async def find() -> Bwrap | None:
    """The program, asked for its options if it is new; None where there is none that runs.

    BlockingIOError when no process can be made for that; Hung when it does not answer.
    """
    key = _key()
    if key is None:
        return None
    if key not in _known:
        try:
            found = await _ask_once(key)
        except BlockingIOError:
            raise
        except OSError:
            return None
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[key] = found
    return _known[key]


async def _ask_once(key: _Key) -> Bwrap:
    """Requests that come meanwhile wait for the same answer."""
    asked = _asked.get(key)
    if asked is None or asked.get_loop() is not event_loop.running_loop():
        asked = _asked[key] = event_loop.create_task(_inspect(key[0]))
        asked.add_done_callback(lambda _: _asked.pop(key, None))
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await event_loop.shield(asked)


def _key() -> _Key | None:
    path = find_path()
    try:
        return None if path is None else (path, os.stat(path).st_mtime_ns)
    except OSError:
        return None


async def _inspect(path: str) -> Bwrap:
    options = await _said(path, "--help")
    version = await _said(path, "--version")
    return Bwrap(
        path=path,
        version=version.strip().removeprefix("bubblewrap "),
        bind_fd="--ro-bind-fd" in options,
        disable_userns="--disable-userns" in options,
    )


async def _said(path: str, option: str) -> str:
    read, write = os.pipe()
    os.set_blocking(read, False)
    try:
        try:
            helper = spawn([path, option], {}, [], stdout=write, stderr=write)
        finally:
            os.close(write)
        try:
            with anyio.fail_after(ASK_S):
                return (await _read_all(read)).decode(errors="replace")
        except TimeoutError:
            raise Hung(f"`{path} {option}` did not end in {ASK_S:g} s") from None
        finally:
            with anyio.CancelScope(shield=True):
                helper.kill()
                await helper.ended()
    finally:
        os.close(read)


async def _read_all(fd: int) -> bytes:
    said = b""
    while len(said) < MOST_BYTES:
        try:
            more = os.read(fd, 4096)
        except BlockingIOError:
            await anyio.wait_readable(fd)
            continue
        if not more:
            break
        said += more
    return said
