"""A FUSE file system with an empty folder that stops answering when it is told to. Needs root.

Run as a program: `silent_fuse.py FOLDER`. It answers until it reads a line from stdin. With another
argument its folder lists names for ever: of files, or of folders that do the same.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_NO_REPLY = {2, 42}  # FORGET, BATCH_FORGET
_ATTRIBUTES = struct.pack(
    "<QII6Q10I", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0
)
_REPLIES = {
    3: _ATTRIBUTES,
    17: bytes(80),  # STATFS
    26: struct.pack("<IIIIHHII", 7, 31, 0, 0, 16, 12, 4096, 1).ljust(64, b"\0"),  # INIT
    27: bytes(16),  # OPENDIR
    28: b"",  # READDIR
    29: b"",  # RELEASEDIR
    34: b"",  # ACCESS
}
_ERRORS = {1: 2, 22: 61}  # LOOKUP: ENOENT, GETXATTR: ENODATA


class SilentFuse:
    def __init__(self, folder: Path, server: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self._server = server

    def fall_silent(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(b"\n")
        self._server.stdin.flush()
        assert self._server.stdout.readline() == b"silent\n"


@contextmanager
def silent_fuse(
    folder: Path, *, answers: bool = False, endless: str | None = None
) -> Iterator[SilentFuse]:
    """Mounted at `folder`; with `answers` until `fall_silent`. `endless`: "files" or "folders"."""
    server = subprocess.Popen(
        [sys.executable, __file__, str(folder), *([endless] if endless else [])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"mounted\n"
        mounted = SilentFuse(folder, server)
        if not answers:
            mounted.fall_silent()
        yield mounted
    finally:
        server.kill()  # the kernel ends every call that waits
        server.communicate()
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _listed(request: bytes, kind: int) -> bytes:
    """A page of entries after the one at which the last page ended."""
    _, offset, size = struct.unpack_from("<QQI", request, _IN.size)
    page = b""
    while len(page) + 40 <= size:
        offset += 1
        name = b"%012d" % offset
        page += struct.pack("<QQII", 1000 + offset, offset, len(name), kind) + name
        page += bytes(-len(page) % 8)
    return page


def _serve(folder: str, endless: str = "") -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"silent", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    print("mounted", flush=True)
    while True:
        ready, _, _ = select.select([device, 0], [], [])
        if 0 in ready:
            break
        request = os.read(device, 1 << 17)
        _, opcode, unique, *_ = _IN.unpack_from(request)
        if opcode in _NO_REPLY:
            continue
        body = _REPLIES.get(opcode)
        if opcode == 28 and endless:
            body = _listed(request, 4 if endless == "folders" else 8)
        elif opcode == 1 and endless == "folders":  # LOOKUP: every number is a folder
            name = request[_IN.size :].rstrip(b"\0")
            if name.isdigit():
                body = struct.pack("<QQQQII", 1000 + int(name), 0, 1, 1, 0, 0) + _ATTRIBUTES[16:]
        error = 0 if body is not None else -_ERRORS.get(opcode, 38)
        body = body or b""
        os.write(device, _OUT.pack(_OUT.size + len(body), error, unique) + body)
    print("silent", flush=True)
    while True:
        select.select([], [], [])


if __name__ == "__main__":
    _serve(*sys.argv[1:])
