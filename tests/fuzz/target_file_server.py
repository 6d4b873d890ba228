"""Requests to a sandbox's file server, carried out by its own code, built with the sanitizers.

They are carried out in namespaces of their own, in a small tmpfs: nothing of the host can be named
but the libraries of the program, read-only.
"""

from __future__ import annotations

import atexit
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fuzz.driver import Target
from fuzz.target_init_messages import FLAGS, HERE, INIT

from sandboxd.linux.init_client.file_server import NO_MODE, FileOperation, string

SOURCES = (
    "wire.c", "memory.c", "command/file_server.c", "command/file_content.c",
    "command/file_remove.c", "command/file_trees.c",
)  # fmt: skip
SPACE = str(16 << 20)
PATHS = ("f", "dir", "dir/sub/g", "link", "loop", "fifo", "/proc/self/mem", "/proc/self/root/tree")


@cache
def harness(*more_flags: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="sandboxd-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sources = [str(HERE / "file_server.c"), *(str(INIT / name) for name in SOURCES)]
    command = ["cc", *FLAGS, *more_flags, f"-I{INIT}", *sources, "-o", str(folder / "harness")]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    tree = folder / "tree"
    (tree / "dir" / "sub").mkdir(parents=True)
    (tree / "f").write_bytes(b"content" * 500)
    (tree / "dir" / "sub" / "g").write_bytes(b"")
    (tree / "link").symlink_to("dir/sub/g")
    (tree / "loop").symlink_to("loop")
    return folder / "harness"


def walls(program: Path) -> list[str]:
    """bwrap's arguments: the program, its libraries, and a copy of the tree to work in."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    needed = sorted(set(re.findall(r"(/\S+) \(0x", said)))
    binds = [word for path in (str(program), *needed) for word in ("--ro-bind", path, path)]
    tree = program.parent / "tree"
    script = [
        word
        for path in sorted(tree.rglob("*"))
        for word in _made(path, f"/tree/{path.relative_to(tree)}")
    ]
    return [
        "bwrap", "--unshare-all", "--die-with-parent", "--clearenv",
        "--setenv", "ASAN_OPTIONS", "detect_leaks=0",
        "--setenv", "UBSAN_OPTIONS", "print_stacktrace=1", *binds, "--proc", "/proc",
        "--size", SPACE, "--tmpfs", "/tree", *script, "--remount-ro", "/", "--chdir", "/tree",
    ]  # fmt: skip


def _made(path: Path, inside: str) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), inside]
    if path.is_dir():
        return ["--dir", inside]
    return ["--ro-bind", str(path), inside]


def seeds() -> Sequence[bytes]:
    found = []
    for path in PATHS:
        name = string(path)
        found += [
            bytes((FileOperation.READ,)) + name + struct.pack("<QQ", 0, 1 << 20),
            bytes((FileOperation.READ,)) + name + struct.pack("<QQ", 2**63 - 1, 2**64 - 1),
            bytes((FileOperation.WRITE,)) + name + struct.pack("<IIQ", 4, NO_MODE, 0) + b"data",
            bytes((FileOperation.WRITE,)) + name + struct.pack("<IIQ", 2, 0o644, 2**63 - 1) + b"x",
            bytes((FileOperation.STAT,)) + name + struct.pack("<I", 0),
            bytes((FileOperation.LIST,)) + name + struct.pack("<II", 1, 100),
            bytes((FileOperation.LIST,)) + name + struct.pack("<II", 0, 1),
            bytes((FileOperation.MKDIR,)) + name + struct.pack("<II", 1, NO_MODE),
            bytes((FileOperation.REMOVE,)) + name + struct.pack("<I", 1),
            bytes((FileOperation.RENAME,)) + name + string("other"),
            bytes((FileOperation.COPY,)) + name + string("copy/") + struct.pack("<I", 1),
            bytes((FileOperation.REALPATH,)) + name,
        ]
    return [*found, bytes((FileOperation.CONNECT,)) + struct.pack("<I", 80)]


def answers(inputs: Sequence[bytes], *more_flags: str) -> list[int]:
    """The errno of each. AssertionError when a sanitizer complains."""
    requests = b"".join(struct.pack("<I", len(data) or 1) + (data or b"\0") for data in inputs)
    program = harness(*more_flags)
    ran = subprocess.run(
        [*walls(program), str(program)], input=requests, capture_output=True, check=False,
        timeout=300,
    )  # fmt: skip
    complaint = ran.stderr.decode(errors="replace")
    assert (ran.returncode, complaint) == (0, ""), complaint[:4000]
    found, at = [], 0
    while at < len(ran.stdout):
        length, number = struct.unpack_from("<II", ran.stdout, at)
        found.append(number)
        at += 4 + length
    assert (at, len(found)) == (len(ran.stdout), len(inputs))
    return found


TARGET = Target(
    "file_server", seeds, lambda data: answers([data]), check_many=answers,
    words=(b"/", b"..", b"/tree", string("f"), b"\xff\xff\xff\xff", bytes(8)),
)  # fmt: skip
