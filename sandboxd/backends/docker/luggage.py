"""What goes into a container beforehand: the init, and what the daemon has to tell it.

As a tar, whose folder and files belong to nobody who runs inside: not even a command of root, which
has no capabilities, can change them or put anything beside them.
"""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import dataclass

from sandboxd.linux import init_binary
from sandboxd.linux import init_wire as wire
from sandboxd.linux.filters import filter_descriptor
from sandboxd.linux.init_sandbox import exec_request
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.sandbox import Command

NOBODY = 65534
_SETUP = wire.Setup(flags=wire.SetupFlag.WATCH_MOUNTS)


@dataclass(frozen=True, slots=True)
class Luggage:
    tar: bytes
    has_filter: bool


def packed(command: Command, spec: FilterSpec, *, root: bool) -> Luggage:
    """ExecFailed for what no init would take."""
    program = filter_descriptor(spec)
    request = exec_request(
        command, has_filter=program is not None, has_terminal=command.pty is not None,
        has_cgroup=False, root=root,
    )  # fmt: skip
    encoded = wire.encode(request)
    parts = {"setup": wire.encode(_SETUP).message, "exec": encoded.message}
    if encoded.payload is not None:
        parts["payload"] = encoded.payload
    if program is not None:
        parts["filter"] = os.pread(program, os.fstat(program).st_size, 0)
    with open(init_binary.PATH, "rb") as file:
        return Luggage(_tar(file.read(), parts), program is not None)


def _tar(init: bytes, parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        folder = tarfile.TarInfo("./")
        folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, 0o555, NOBODY, NOBODY
        tar.addfile(folder)
        for name, data in {"init": init, **parts}.items():
            info = tarfile.TarInfo(name)
            info.mode = 0o555 if name == "init" else 0o444
            info.uid = info.gid = NOBODY
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()
