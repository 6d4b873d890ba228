"""The files that are copied into a container before it starts: the init and its messages.

A tar archive whose folder and files belong to no user inside: not even a command of root, which has
no capabilities, can change them or add files.
"""

from __future__ import annotations

import io
import os
import tarfile

import msgspec

from sandboxd.linux.init_client import binary, codec
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.rlimits import ProcessCount
from sandboxd.linux.init_client.session import exec_request
from sandboxd.linux.seccomp import FilterSpec
from sandboxd.linux.seccomp.filters import filter_descriptor
from sandboxd.types import Command
from sandboxd_proto.errors import ExecFailed

NOBODY = 65534
_SETUP = wire.Setup(flags=wire.SetupFlag.WATCH_MOUNTS | wire.SetupFlag.SET_GID)


class Bundle(msgspec.Struct, frozen=True):
    tar: bytes
    has_filter: bool


def pack(command: Command, spec: FilterSpec, counts: ProcessCount) -> Bundle:
    """ExecFailed for a command that the init would refuse."""
    program = filter_descriptor(spec)
    request = exec_request(
        command, has_filter=program is not None, has_terminal=command.pty is not None,
        has_cgroup=False, counts=counts,
    )  # fmt: skip
    try:
        encoded = codec.encode(request)
    except ValueError as error:
        raise ExecFailed(str(error)) from None
    parts = {"setup": codec.encode(_SETUP).message, "exec": encoded.message}
    if encoded.payload is not None:
        parts["payload"] = encoded.payload
    if program is not None:
        parts["filter"] = os.pread(program, os.fstat(program).st_size, 0)
    with open(binary.PATH, "rb") as file:
        return Bundle(_tar(file.read(), parts), program is not None)


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
