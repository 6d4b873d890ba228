"""Attack programs and what became of them.

An attack ends by saying that it worked or that it was blocked, each with an exit code of its own.
Any other end is a broken program and fails the test: an attack that never ran proves nothing.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.daemon import Daemon
from support.engine import shared_engine
from support.runs import Ran, Runner

# `programs/NAME.c` and compiler flags to the command line of the attack.
Build = Callable[..., tuple[str, ...]]

WORKED, BLOCKED = 42, 43
PYTHON = "/usr/bin/python3"  # Debian's: an interpreter below a home folder is hidden inside
PATIENCE_S = 60

# Numbers of what the C library does not wrap; from 424 on they are the same everywhere.
_X86 = platform.machine() == "x86_64"
_CALLS = {
    "add_key": 248 if _X86 else 217,
    "request_key": 249 if _X86 else 218,
    "keyctl": 250 if _X86 else 219,
    "pivot_root": 155 if _X86 else 41,
    "perf_event_open": 298 if _X86 else 241,
    "userfaultfd": 323 if _X86 else 282,
    "bpf": 321 if _X86 else 280,
    "kcmp": 312 if _X86 else 272,
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "pidfd_open": 434,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
}

# `blocked` is for ends that are no errno.
PRELUDE = f"""\
import errno, os, struct, sys, time
def end(code, *words):
    print(*words, flush=True)
    os._exit(code)
def worked(*words): end({WORKED}, "worked", *words)
def blocked(*words): end({BLOCKED}, "blocked", *words)
"""

# Added to programs that use a name of it.
SYSTEM_CALLS = f"""\
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
CALLS = {_CALLS!r}
def checked(function, args):
    words = [a if isinstance(a, (bytes, ctypes.Array, ctypes.Structure)) or a is None
             else ctypes.c_long(a) for a in args]
    result = function(*words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def c(name, *args):
    '''A function of the C library; OSError when it answers less than 0.'''
    return checked(getattr(libc, name), args)
def call(name, *args):
    '''A system call that the C library does not wrap.'''
    return checked(libc.syscall, (CALLS[name], *args))
def powers(*more):
    '''Every capability over mounts of one's own: root's, or those of a nested user namespace.'''
    flags = sum(more) | 0x20000
    uid, gid = os.geteuid(), os.getegid()
    try:
        c("unshare", flags)
    except OSError:
        c("unshare", flags | 0x10000000)
        maps = {{"setgroups": "deny", "uid_map": f"0 {{uid}} 1", "gid_map": f"0 {{gid}} 1"}}
        for name, text in maps.items():
            with open(f"/proc/self/{{name}}", "w") as file:
                file.write(text)
    c("mount", b"none", b"/", None, 0x44000, None)
NEWNET, NEWPID = 0x40000000, 0x20000000
BIND, READ_ONLY, REMOUNT, DETACH = 4096, 1, 32, 2
"""
# An uncaught OSError is "blocked" by its name. Set after the imports: these must not fail.
HOOK = """\
def hook(kind, error, trace):
    if issubclass(kind, OSError) and error.errno:
        blocked(errno.errorcode.get(error.errno, error.errno))
    sys.__excepthook__(kind, error, trace)
sys.excepthook = hook
args = sys.argv[1:]
"""
_SYSTEM_CALL = re.compile(
    r"\b(ctypes|libc|CALLS|checked|c|call|powers|NEWNET|NEWPID|BIND|READ_ONLY|REMOUNT|DETACH)\b"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`words`: what the program said besides, such as an errno's name."""

    worked: bool
    words: str

    @property
    def blocked(self) -> bool:
        return not self.worked


def python(*parts: str) -> tuple[str, ...]:
    """The command line of an attack in Python; see PRELUDE and SYSTEM_CALLS for what it may use.

    It imports only what it names: `socket` and `ctypes` take longer than the interpreter's start.
    """
    own = "\n".join(map(textwrap.dedent, parts))
    code = PRELUDE
    if re.search(r"\bsocket\b", own):
        code += "import socket\n"
    if _SYSTEM_CALL.search(own):
        code += SYSTEM_CALLS
    return (PYTHON, "-I", "-S", "-c", code + HOOK + own)


COPY_DESCRIPTOR = python("""
    call("pidfd_getfd", call("pidfd_open", os.getpid(), 0), 0, 0)
    worked()
""")


def freely(program: Sequence[str], *args: object, **options: Any) -> Verdict:
    """The attack without any sandbox: the control."""
    options.setdefault("env", {"PATH": "/usr/bin:/bin"})
    options.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run(
        [*program, *map(str, args)], capture_output=True, timeout=PATIENCE_S, check=False, **options
    )
    return verdict_of(done)


def plain_bwrap(*folders: Path) -> list[str]:
    """bwrap as it is often used, for controls: the system, and some folders writable.

    Without "--bind / /": mounts of other containers, which end at any time, make bwrap fail.
    """
    system = [name for name in ("/usr", "/bin", "/lib", "/lib64", "/etc") if os.path.exists(name)]
    words = ["bwrap", "--dev", "/dev", "--dir", "/tmp"]
    words += [word for name in system for word in ("--ro-bind", name, name)]
    return words + [word for path in folders for word in ("--bind", str(path), str(path))]


def verdict_of(done: subprocess.CompletedProcess[bytes]) -> Verdict:
    return _verdict(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def _verdict(code: int, stdout: bytes, story: str) -> Verdict:
    lines = stdout.decode(errors="replace").splitlines()
    word, _, words = (lines[-1] if lines else "").partition(" ")
    assert (code, word) in {(WORKED, "worked"), (BLOCKED, "blocked")}, (
        f"the attack is broken: exit {code}, {lines} {story}"
    )
    return Verdict(word == "worked", words)


def verdict(ran: Ran) -> Verdict:
    assert ran.outcome == "exited", f"the attack did not end by itself: {ran.raw}"
    assert ran.exit_code is not None
    return _verdict(ran.exit_code, ran.bytes_of("stdout"), str(ran.raw))


def weakest(*writable: Path, **more: Any) -> dict[str, Any]:
    """The manifest that promises least: what holds under it holds under every other one."""
    manifest: dict[str, Any] = {
        "base": "host",
        "network": "inherit",
        "syscall_policy": "inherit",
        "fs_write_allow": [str(path) for path in writable],
    }
    return {**manifest, **more}


class Box(Runner):
    """Sandboxes of one backend, for attacks."""

    def __init__(self, backend: str, daemon: Daemon) -> None:
        super().__init__(daemon)
        self.backend = backend

    @property
    def firm(self) -> bool:
        """Whether files are isolated for certain. A backend that says "best_effort" promises less:
        reading and writing are refused, but not everything that can be done with a file's name."""
        tiers = self.check(manifest=weakest())["enforcement"]
        return {tiers["base"], tiers["fs_write_allow"]} == {"enforced"}

    @property
    def has_unix_sockets(self) -> bool:
        """Whether commands can make Unix sockets besides pairs.

        Their init must be able to copy a descriptor. Docker's own profile refuses the call.
        """
        if self.backend != "docker":
            return self.backend != "landlock"
        engine = shared_engine()
        assert engine is not None
        return engine.in_container(*COPY_DESCRIPTOR).returncode == WORKED

    def attack(self, program: Sequence[str], *args: object, **params: Any) -> Verdict:
        """The same program in a sandbox; without `manifest` or `preset`, the weakest one."""
        if "manifest" not in params and "preset" not in params:
            params["manifest"] = weakest()
        return verdict(self.run(*program, *map(str, args), **params))


class Victim:
    """A file of the host that an attack is after."""

    ORIGINAL = "what the host keeps here\n"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reset()

    def __str__(self) -> str:
        return str(self.path)

    def reset(self) -> None:
        self.path.unlink(missing_ok=True)
        self.path.write_text(self.ORIGINAL)
        self.path.chmod(0o644)
        self._status = self.path.stat()

    @property
    def untouched(self) -> bool:
        """Same content, same mode, same file: not even replaced by an equal one."""
        now = self.path.lstat()
        same = [(s.st_ino, s.st_mode, s.st_uid, s.st_nlink) for s in (now, self._status)]
        return same[0] == same[1] and self.path.read_text() == self.ORIGINAL

    def was_hit(self) -> bool:
        """Whether something changed it; afterwards it is as new, for the next attack."""
        hit = not self.untouched
        self.reset()
        return hit


def compiled(source: Path, folder: Path, *flags: str) -> tuple[str, ...]:
    """A C program as an attack, executable by all users."""
    binary = folder / source.stem
    if not binary.exists():
        command = ["cc", "-O1", "-Wall", "-Werror", "-o", str(binary), str(source), *flags]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
        os.chmod(binary, 0o755)
    return (str(binary),)
