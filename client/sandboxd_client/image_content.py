"""The files of a base image: a static busybox, and programs of this machine with their libraries.

It needs no registry and no Dockerfile: the result is a tar of a root file system, which every
engine can import.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from typing import IO

from sandboxd_proto.errors import SandboxdError

SEARCH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")
_FOLDERS = ("bin", "dev", "etc", "home", "lib", "proc", "root", "run", "sys", "usr/bin", "var")
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    "etc/group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/hosts": "127.0.0.1\tlocalhost\n::1\tlocalhost\n",
    "etc/resolv.conf": "",
    "etc/hostname": "sandbox\n",
}
# Parts of Python's library that no program needs at run time.
_NOT_PYTHON = frozenset({"__pycache__", "test", "tests", "site-packages", "dist-packages",
                         "ensurepip", "idlelib", "turtledemo"})  # fmt: skip
_PYTHON_FACTS = """\
import json, sys, sysconfig
print(json.dumps([sys.executable, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]))
"""


class CannotBuild(SandboxdError):
    """A program or library for the image is missing on this machine."""

    kind = "SandboxUnavailable"
    code = -32001


def write(out: IO[bytes], programs: Iterable[str]) -> None:
    """The tar. `programs` are names or paths; "python3" brings its library along."""
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        image = _Image(tar)
        image.skeleton()
        image.busybox(_static_busybox())
        for name in programs:
            image.program(_found(name))


def _found(name: str) -> str:
    path = shutil.which(name, path=SEARCH)
    if path is None:
        raise CannotBuild(
            f"{name} is not installed here, so it cannot go into the image",
            remedy="install it, or leave it out",
        )
    return path


def _static_busybox() -> str:
    path = shutil.which("busybox", path=SEARCH)
    if path is None or _libraries(path):
        raise CannotBuild(
            "the base image needs a statically linked busybox",
            remedy="install it: apt-get install busybox-static (apk add busybox-static)",
        )
    return path


class _Image:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._there: set[str] = set()

    def skeleton(self) -> None:
        for name in _FOLDERS:
            self._folder(f"/{name}")
        self._folder("/tmp", mode=0o1777)
        self._folder("/var/tmp", mode=0o1777)
        for name, text in _FILES.items():
            self._file(f"/{name}", text.encode(), 0o644)

    def busybox(self, path: str) -> None:
        """Every applet as a link; a real program that is added later replaces it."""
        self._copy(path, "/bin/busybox")
        said = subprocess.run([path, "--list"], capture_output=True, text=True, check=True)
        for applet in said.stdout.split():
            if applet != "busybox":
                self._link(f"/bin/{applet}", "busybox")
        self._link("/usr/bin/env", "../../bin/busybox")

    def program(self, path: str) -> None:
        real = os.path.realpath(path)
        self._copy(real, real)
        for library in _libraries(real):
            self._copy(os.path.realpath(library), library)
        if path != real:
            self._link(path, real)
        if re.fullmatch(r"python3(\.\d+)?", os.path.basename(real)):
            self._python(path)

    def _python(self, path: str) -> None:
        said = subprocess.run([path, "-I", "-c", _PYTHON_FACTS], capture_output=True, check=True)
        _, *folders = json.loads(said.stdout)
        for folder in dict.fromkeys(folders):
            for source in _walk(folder):
                self._copy(source, source)
                if source.endswith(".so"):
                    for library in _libraries(source):
                        self._copy(os.path.realpath(library), library)

    # what the tar is made of

    def _copy(self, source: str, dest: str) -> None:
        if dest in self._there:
            return
        with open(source, "rb") as file:
            executable = os.fstat(file.fileno()).st_mode & 0o111
            self._file(dest, file.read(), 0o755 if executable else 0o644)

    def _file(self, dest: str, data: bytes, mode: int) -> None:
        info = self._entry(dest, mode)
        info.size = len(data)
        self._tar.addfile(info, io.BytesIO(data))

    def _link(self, dest: str, target: str) -> None:
        if dest not in self._there:
            info = self._entry(dest, 0o777)
            info.type, info.linkname = tarfile.SYMTYPE, target
            self._tar.addfile(info)

    def _folder(self, dest: str, mode: int = 0o755) -> None:
        if dest not in self._there:
            info = self._entry(dest, mode)
            info.type = tarfile.DIRTYPE
            self._tar.addfile(info)

    def _entry(self, dest: str, mode: int) -> tarfile.TarInfo:
        parent = os.path.dirname(dest)
        if parent != "/":
            self._folder(parent)
        self._there.add(dest)
        info = tarfile.TarInfo(dest.lstrip("/"))
        info.mode = mode
        return info


def _walk(folder: str) -> Iterator[str]:
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in _NOT_PYTHON and f[:7] != "config-")
        yield from (os.path.join(at, name) for name in sorted(files))


def _libraries(path: str) -> list[str]:
    """What the loader would load; empty for a static program."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    return _LIBRARY.findall(said.stdout) if said.returncode == 0 else []
