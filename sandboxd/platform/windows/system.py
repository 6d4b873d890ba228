"""What the daemon needs of Windows: user, folders, event loop, Ctrl-C, hardening."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import FrameType

import anyio

from sandboxd import event_loop
from sandboxd.platform.windows.loop import new_event_loop
from sandboxd.platform.windows.paths import internal
from sandboxd_proto import locations

assert sys.platform == "win32"

PASSES_DESCRIPTORS = False  # a named pipe carries bytes only
_SEM_FAILCRITICALERRORS = 0x1
_SEM_NOGPFAULTERRORBOX = 0x2
_SEM_NOOPENFILEERRORBOX = 0x8000
_DYNAMIC_CODE_IMAGE_LOAD_POLICY = 10  # ProcessImageLoadPolicy
_NO_REMOTE_IMAGES = 0x1 | 0x2 | 0x4  # not from the network, not low integrity, System32 first


def user_id() -> int:
    """No number names a user here, and nothing runs as another user than the daemon's."""
    return -1


def is_privileged() -> bool:
    """Whether the token is elevated: an administrator's, with all of its privileges."""
    return bool(ctypes.windll.shell32.IsUserAnAdmin())


def home_folder() -> str:
    return internal(os.path.expanduser("~"))


def home_of(uid: int) -> str | None:
    return None


def name_of(uid: int) -> str | None:
    return None


def group_of(uid: int) -> int | None:
    """No user is a number here."""
    return None


def groups_of(uid: int, gid: int) -> set[int]:
    return set()


def is_group(gid: int) -> bool:
    return False


def local_folder(env: Mapping[str, str]) -> str:
    return locations.local_folder(env)


def config_root(env: Mapping[str, str]) -> str | None:
    """%APPDATA%, where programs keep settings of their user."""
    return env.get("APPDATA") or None


def state_root(env: Mapping[str, str]) -> str:
    return os.path.join(local_folder(env), "state")


def caches_root(home: str) -> str:
    root = os.path.join(local_folder(os.environ), "caches")
    with suppress(OSError):
        os.makedirs(root, exist_ok=True)
    return internal(root)


def run_loop(main: Callable[..., Awaitable[None]], *args: object) -> None:
    anyio.run(main, *args, backend_options={"loop_factory": new_event_loop})


@asynccontextmanager
async def stop_signals(stop: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `stop` for each Ctrl-C and Ctrl-Break while it is open."""
    loop = event_loop.running_loop()

    def tell(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)

    wanted = [signal.SIGINT, signal.SIGBREAK]
    before = {number: signal.signal(number, tell) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def harden() -> None:
    """No dialogs on errors, no libraries from the network, System32 before the current folder."""
    kernel32 = ctypes.windll.kernel32
    kernel32.SetErrorMode(
        _SEM_FAILCRITICALERRORS | _SEM_NOGPFAULTERRORBOX | _SEM_NOOPENFILEERRORBOX
    )
    kernel32.SetDllDirectoryW("")
    policy = ctypes.c_uint32(_NO_REMOTE_IMAGES)
    set_policy = getattr(kernel32, "SetProcessMitigationPolicy", None)
    if set_policy is not None:
        set_policy(_DYNAMIC_CODE_IMAGE_LOAD_POLICY, ctypes.byref(policy), ctypes.sizeof(policy))


def effective_ids() -> tuple[int, int]:
    return -1, -1


def process_exists(pid: int) -> bool:
    """Not looked up: an AppContainer's command sees other processes' ids anyway."""
    return False


def people(cannot_look: Callable[[str], bool]) -> list[tuple[int, str]]:
    """The daemon's own home folder; every other one is foreign."""
    return [(user_id(), home_folder())]


def listens(port: int) -> bool:
    """Not looked up: the host's loopback is out of a command's reach in any case."""
    return False


def listens_at(path: str) -> bool:
    """Not looked up: no command is refused a socket file here."""
    return False
