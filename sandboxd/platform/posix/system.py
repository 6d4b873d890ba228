"""What Linux and macOS share of what the daemon needs: user, folders, event loop, signals."""

from __future__ import annotations

import grp
import os
import pwd
import resource
import signal
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import anyio

from sandboxd import event_loop

assert sys.platform != "win32"

PASSES_DESCRIPTORS = True  # a client may pass its own pipes for a command
_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp
_ACCEPTS = "00010000"  # __SO_ACCEPTCON in /proc/net/unix
_NO_HOME = "/nonexistent"
_FIRST_PERSON = 1000  # smaller ids belong to services


def user_id() -> int:
    return os.getuid()


def is_privileged() -> bool:
    """Whether the daemon could do to the machine what its user usually could not."""
    return os.getuid() == 0


def home_folder() -> str:
    """The account's. In a container a user often has no account, or none with a home folder: then
    HOME counts, if that is a folder of the user's own."""
    home, named = home_of(os.getuid()), os.environ.get("HOME", "")
    if home is not None and os.path.isdir(home):
        return home
    with suppress(OSError):
        status = os.stat(named)
        if os.path.isabs(named) and stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
            return named
    return home or _NO_HOME


def home_of(uid: int) -> str | None:
    """As the user database says."""
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return None


def name_of(uid: int) -> str | None:
    """As the user database says."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def group_of(uid: int) -> int | None:
    """The primary group, as the user database says."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return None


def groups_of(uid: int, gid: int) -> set[int]:
    """All groups of a user with this primary group; of another one as the user database says."""
    if uid == os.geteuid():
        return {gid, *os.getgroups()}
    try:
        return set(os.getgrouplist(pwd.getpwuid(uid).pw_name, gid))
    except KeyError:
        return {gid}


def is_group(gid: int) -> bool:
    """Whether the group database has it."""
    try:
        grp.getgrgid(gid)
    except KeyError:
        return False
    return True


def config_root(env: Mapping[str, str]) -> str | None:
    """Where configs lie that XDG_CONFIG_HOME does not name; None: by the home folder."""
    return None


def state_root(env: Mapping[str, str]) -> str:
    """Where daemons keep their trails and sessions."""
    home = env.get("HOME")
    root = env.get("XDG_STATE_HOME") or (os.path.join(home, ".local/state") if home else "/var/lib")
    return os.path.join(root, "sandboxd")


def run_loop(main: Callable[..., Awaitable[None]], *args: object) -> None:
    anyio.run(main, *args, backend_options={"loop_factory": event_loop.new_loop})


@asynccontextmanager
async def stop_signals(stop: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `stop` for each SIGTERM and SIGINT while it is open."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on, signals, stop)
            yield
            tasks.cancel_scope.cancel()


async def _stop_on(signals: AsyncIterator[signal.Signals], stop: Callable[[], None]) -> None:
    async for _ in signals:
        stop()


def restrict_process(most_descriptors: int | None = None) -> None:
    """No core dump, enough descriptors, and children that can be waited for."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _raise_descriptor_limit(most_descriptors)
    # Inherited as ignored (a shell's `trap "" CHLD`), no child could be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _raise_descriptor_limit(most: int | None) -> None:
    """Thousands of connections and hundreds of sandboxes need more than the usual 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 1 << 20
    if most is not None:
        wanted = min(wanted, most)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def effective_ids() -> tuple[int, int]:
    return os.geteuid(), os.getegid()


def process_exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}/stat")


def people(cannot_look: Callable[[str], bool]) -> list[tuple[int, str]]:
    """(uid, home) of people and of root. Users that the name service knows live in /home.

    `cannot_look`: whether a look at that path could hang.
    """
    found = [(0, "/root")]
    try:
        with open("/etc/passwd", encoding="utf-8", errors="replace") as file:
            rows = [line.rstrip("\n").split(":") for line in file]
    except OSError:
        return found
    for row in rows:
        if len(row) == 7 and row[2].isdigit() and row[5].count("/") > 1:
            if cannot_look(row[5]):
                continue
            uid, home = int(row[2]), os.path.realpath(row[5].rstrip("/"))
            if uid >= _FIRST_PERSON and os.path.isdir(home):
                found.append((uid, home))
    return found


def listens(port: int) -> bool:
    """Whether something on this host accepts TCP connections on `port`."""
    suffix = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        if any(row[1].endswith(suffix) and row[3] == _LISTEN for row in rows if len(row) > 3):
            return True
    return False


def listens_at(path: str) -> bool:
    """Whether something on this host accepts connections at a socket file of this name.

    The kernel's list has the path as the program spelled it, through links or from its folder: the
    last component decides.
    """
    name = os.path.basename(path)
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
            rows = [line.rstrip("\n").split(None, 7) for line in file.readlines()[1:]]
    except OSError:
        return False
    bound = (row[7] for row in rows if len(row) > 7 and row[3] == _ACCEPTS)
    return any(os.path.basename(one) == name for one in bound if not one.startswith("@"))
