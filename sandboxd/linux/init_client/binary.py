"""The init's executable as a sealed memfd, which no process can change, not even root inside.

It is executed through /proc/self/fd, so no path of the host has to be visible in the sandbox.
"""

from __future__ import annotations

import fcntl
import os

from sandboxd_proto.errors import SandboxUnavailable

PATH = os.path.join(os.path.dirname(os.path.dirname(__file__)), "init", "sandboxd-init")
_MFD_EXEC = 0x10  # Linux 6.3; earlier kernels make every memfd executable
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def seal(content: bytes, name: str, *, executable: bool = False) -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create(name, flags | (_MFD_EXEC if executable else 0))
    except OSError:
        fd = os.memfd_create(name, flags)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)  # processes that inherit the descriptor share its offset
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def load() -> int:
    try:
        with open(PATH, "rb") as file:
            content = file.read()
    except OSError as error:
        raise SandboxUnavailable(
            f"the sandbox's init is missing: {PATH} ({os.strerror(error.errno or 0)})",
            remedy="install sandboxd again with a C compiler (apt-get install gcc libc6-dev)",
        ) from None
    writable = seal(content, "sandboxd-init", executable=True)
    # exec needs a descriptor that is not open for writing: ETXTBSY otherwise.
    readable = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    os.close(writable)
    return readable
