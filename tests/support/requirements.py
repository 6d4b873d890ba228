"""What this machine must have for a test: skipped without it, failed where CI promised it.

`SANDBOXD_TEST_REQUIRE=bubblewrap,landlock,…` names what must not be missing; `all`: everything that
can be installed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache

import pytest

# Facts about the user or the machine, which nothing that is installed changes.
_NOT_INSTALLED = {"root", "unprivileged", "cgroup2"}


def is_promised(name: str) -> bool:
    promised = os.environ.get("SANDBOXD_TEST_REQUIRE", "").split(",")
    return name in promised or ("all" in promised and name not in _NOT_INSTALLED)


def require(name: str) -> None:
    """Go on when `name` works here; else skip, or fail when it was promised."""
    if _works(name):
        return
    if is_promised(name):
        pytest.fail(f"{name} is in SANDBOXD_TEST_REQUIRE and does not work here", pytrace=False)
    pytest.skip(f"{name} does not work here")


@cache
def _works(name: str) -> bool:
    check = CHECKS.get(name)
    return check() if check is not None else shutil.which(name) is not None


def _bubblewrap() -> bool:
    """The real thing: namespaces can be forbidden where the program is installed."""
    if shutil.which("bwrap") is None:
        return False
    # A new /proc is the first thing that a container forbids.
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def landlock_abi() -> int:
    """landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION); 0 when there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(444, None, 0, 1)))


def _seccomp() -> bool:
    return ctypes.util.find_library("seccomp") is not None


def _cgroup() -> bool:
    return os.path.exists("/sys/fs/cgroup/cgroup.controllers")


def _sanitizers() -> bool:
    """The compiler's libraries for -fsanitize=address,undefined can be missing."""
    flags = ["-fsanitize=address,undefined", "-x", "c", "-", "-o", "/dev/null"]
    source = b"int main(void) { return 0; }"
    if shutil.which("cc") is None:
        return False
    return subprocess.run(["cc", *flags], input=source, capture_output=True).returncode == 0


# Whatever is not named here is a program that must be in PATH.
CHECKS: dict[str, Callable[[], bool]] = {
    "bubblewrap": _bubblewrap,
    "landlock": lambda: landlock_abi() > 0,
    "seccomp": _seccomp,
    "cgroup2": _cgroup,
    "sanitizers": _sanitizers,
    "fuse": lambda: os.path.exists("/dev/fuse"),
    "catalogs": lambda: os.path.exists("/usr/share/locale/de/LC_MESSAGES/libc.mo"),
    "root": lambda: os.geteuid() == 0,
    "unprivileged": lambda: os.geteuid() != 0,
}
