"""Two sandboxes of one plan at the same time: nothing of one can be found in the other.

Clones of a template start from the same process and the same mounts, so this is where a mistake
would show. A command that holds one of everything runs in the first; the second looks for it.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.attacks import Box, Verdict, freely, python, weakest
from support.backends import OTHER_WAY, product_name, running_backend
from support.users import open_to_others, unprivileged_user

pytestmark = pytest.mark.isolation

NAME = f"sandboxd-clone-{os.getpid()}"
NUMBER = 0x5C000000 | (os.getpid() & 0xFFFF)
PRIVATE = ("/tmp", "/var/tmp", "/dev/shm", "/dev")
FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/dev", "/run", "/")

# Each piece may be refused; the parts that were made are what the second sandbox is asked for.
HOLD = python("""
    import socket
    folder, name, number, folders = args[0], args[1], int(args[2]), args[3:]
    made = []
    def attempt(what, action):
        try:
            action()
            made.append(what)
        except (OSError, ValueError):
            pass
    kept = []
    for place in folders:
        attempt(place, lambda: open(f"{place}/{name}", "w").close())
    attempt("user keyring", lambda: call("add_key", b"user", name.encode(), b"secret", 6, -4))
    attempt("shared memory", lambda: c("shmget", number, 16, 0o1666))
    attempt("semaphore", lambda: c("semget", number, 1, 0o1666))
    attempt("message queue", lambda: c("msgget", number, 0o1666))
    attempt("posix queue", lambda: c("mq_open", b"/" + name.encode(), os.O_RDWR | os.O_CREAT,
                                     0o666, None))
    def listen(family, address):
        listener = socket.socket(family)
        listener.bind(address)
        listener.listen()
        kept.append(listener)
        return listener
    attempt("abstract socket", lambda: listen(socket.AF_UNIX, chr(0) + name))
    def loopback():
        port = listen(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        open(f"{folder}/port", "w").write(str(port))
    attempt("loopback", loopback)
    made.append("process")
    made.append("events")
    open(f"{folder}/made.new", "w").write(chr(10).join(made))
    os.rename(f"{folder}/made.new", f"{folder}/made")
    for _ in range(1200):
        if os.path.exists(f"{folder}/stop"):
            break
        if os.path.exists(f"{folder}/write"):
            for place in folders:
                attempt("", lambda: open(f"{place}/{name}", "w").close())
            os.rename(f"{folder}/write", f"{folder}/written")
        time.sleep(0.05)
    for place in folders:
        attempt("", lambda: os.unlink(f"{place}/{name}"))
    attempt("", lambda: c("mq_unlink", b"/" + name.encode()))
    attempt("", lambda: c("shmctl", c("shmget", number, 16, 0), 0, None))
    attempt("", lambda: c("semctl", c("semget", number, 1, 0), 0, 0))
    attempt("", lambda: c("msgctl", c("msgget", number, 0), 0, None))
    worked()
""")
FIND = python("""
    import socket
    what, folder, name, number = args[0], args[1], args[2], int(args[3])
    if what.startswith("/"):
        os.stat(f"{what}/{name}")
    elif what == "user keyring":
        call("keyctl", 10, -4, b"user", name.encode(), 0)
    elif what == "shared memory":
        c("shmget", number, 16, 0)
    elif what == "semaphore":
        c("semget", number, 1, 0)
    elif what == "message queue":
        c("msgget", number, 0)
    elif what == "posix queue":
        c("mq_open", b"/" + name.encode(), os.O_RDWR)
    elif what == "abstract socket":
        socket.socket(socket.AF_UNIX).connect(chr(0) + name)
    elif what == "loopback":
        socket.create_connection(("127.0.0.1", int(open(f"{folder}/port").read())), 2)
    elif what == "events":
        watch = c("inotify_init1", os.O_NONBLOCK)
        for place in args[4:]:
            c("inotify_add_watch", watch, place.encode(), 0x8 | 0x20 | 0x100)  # close, open, create
        open(f"{folder}/write", "w").close()
        while not os.path.exists(f"{folder}/written"):
            time.sleep(0.02)
        os.unlink(f"{folder}/written")
        name.encode() in os.read(watch, 1 << 16) or blocked("events of others")
    else:
        def is_the_other(pid):
            try:
                line = open(f"/proc/{pid}/cmdline").read()
            except OSError:
                return False
            return pid != str(os.getpid()) and name in line and "mq_unlink" in line
        any(map(is_the_other, filter(str.isdigit, os.listdir("/proc")))) or blocked("another")
    worked()
""")
KINDS = (*FOLDERS, "user keyring", "shared memory", "semaphore", "message queue", "posix queue",
         "abstract socket", "loopback", "process", "events")  # fmt: skip
CHILD = """
    def child():
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            c("prctl", 1, 9, 0, 0, 0)  # ends with its parent
            os.getppid() == parent and time.sleep(120)
            os._exit(0)
        return pid
"""
# Counts that a limit of a command is compared with. What the first sandbox uses of them would
# leave nothing of the second one's own, smaller limit.
USE_UP = python(
    CHILD,
    """
    import resource
    what, role, folder = args
    FEW, MANY = 3, 12
    def timer():
        c("timer_create", 1, None, ctypes.create_string_buffer(8))
    def memory():
        libc.shmat.restype = ctypes.c_void_p
        segment = c("shmget", 0, 4096, 0o1600)
        libc.shmat(segment, None, 0)
        c("shmctl", segment, 0, None)  # removed with its last process
        c("shmctl", segment, 11, None)  # locked
    one, limit, size = {
        "signals": (timer, resource.RLIMIT_SIGPENDING, 1),
        "memory": (memory, resource.RLIMIT_MEMLOCK, 4096),
        "processes": (child, resource.RLIMIT_NPROC, 1),
    }[what]
    if role == "first":
        for _ in range(MANY):
            one()
        open(f"{folder}/used", "w").close()
        while not os.path.exists(f"{folder}/enough"):
            time.sleep(0.02)
        worked()
    resource.setrlimit(limit, (MANY * size, MANY * size))
    try:
        for _ in range(FEW):
            one()
    except OSError as error:
        worked(error)  # nothing was left
    blocked("a count of its own")
""",
)
# What follows is for whoever has capabilities over mounts: the template has them.
POWERS = """
    role, targets = args[0], args[1:]
    if role == "control":
        powers(NEWNET, 0x04000000)  # and a host name of its own
        c("mount", b"tmpfs", targets[0].encode(), b"tmpfs", 0, None)
    for target in targets:
        try:
            act(target.encode())
        except OSError as error:
            refusal = errno.errorcode[error.errno]
        else:
            worked(target)
    blocked(refusal)
"""
ON_MOUNTS = {
    "umount": 'c("umount2", path, DETACH)',
    "remount": 'c("mount", None, path, None, REMOUNT | BIND, None)',
    "mount over": 'c("mount", b"tmpfs", path, b"tmpfs", 0, None)',
    "clone the tree": 'call("open_tree", -100, path, 1)',
    "new file system": 'call("fsopen", b"tmpfs", 0)',
    "raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "host name": 'c("sethostname", b"other", 5)',
    "user namespace": 'c("unshare", 0x10000000)',
    "mount namespace": 'c("unshare", 0x20000)',
}
ON_INIT = {
    "trace": 'c("ptrace", 0x4206, pid, None, None)',
    "root folder": 'os.listdir(f"/proc/{pid}/root")',
    "memory": 'open(f"/proc/{pid}/mem", "rb")',
    "descriptor": 'call("pidfd_getfd", call("pidfd_open", pid, 0), 0, 0)',
    "namespace links": 'os.readlink(f"/proc/{pid}/ns/mnt")',
}
# The files in /proc of a process that is not dumpable belong to root of its user namespace, if that
# has one: the template's has, a sandbox's has not.
FILES_OF_INIT = python(
    CHILD,
    """
    pid = int(args[0]) or child()
    opened = []
    for name in ("autogroup", "clear_refs", "comm", "coredump_filter", "oom_score_adj", "uid_map"):
        try:
            opened.append(os.open(f"/proc/{pid}/{name}", os.O_WRONLY))
        except OSError:
            pass
    try:
        opened += os.listdir(f"/proc/{pid}/fd")
    except OSError:
        pass
    worked(opened) if opened else blocked("none")
""",
)
# Only root of the host can do these at all.
AS_ROOT = {
    "device node": 'os.mknod(f"{args[0]}/node", 0o20600, os.makedev(1, 3))',
    "core pattern": 'os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)',
}


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, "the first command did not get ready"
        time.sleep(0.02)


def _made(folder: Path) -> list[str]:
    _wait_for(folder / "made")
    return (folder / "made").read_text().splitlines()


@pytest.fixture(scope="module", params=("bubblewrap", OTHER_WAY))
def linux_backend(request: pytest.FixtureRequest) -> Iterator[Box]:
    with running_backend(request.param) as daemon:
        box = Box(product_name(request.param), daemon)
        yield box
        box.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clones").resolve()


@pytest.fixture(scope="module")
def held(linux_backend: Box, shared: Path) -> Iterator[list[str]]:
    """What the first sandbox was able to make."""
    box = Box(linux_backend.backend, linux_backend.daemon)
    for name in ("made", "stop"):
        (shared / name).unlink(missing_ok=True)
    line = (*HOLD, str(shared), NAME, str(NUMBER), *FOLDERS)
    command = threading.Thread(
        target=lambda: box.run(*line, manifest=weakest(shared, network="deny"))
    )
    command.start()
    try:
        yield _made(shared)
    finally:
        (shared / "stop").touch()
        command.join()
        box.close()


@pytest.mark.parametrize("what", KINDS)
def test_a_sandbox_of_the_same_plan_finds_nothing(
    box: Box, held: list[str], shared: Path, what: str
) -> None:
    found = box.attack(
        FIND, what, shared, NAME, NUMBER, *PRIVATE, manifest=weakest(shared, network="deny")
    )
    assert found.blocked, (what, held)


def test_the_first_one_could_make_what_is_looked_for(held: list[str]) -> None:
    assert {"/tmp", "/dev/shm", "shared memory", "loopback", "process"} <= set(held)


def test_without_a_sandbox_all_of_it_is_found(tmp_path: Path) -> None:
    """The control. A user cannot write to / or /run; those parts are then not made."""
    line = (*HOLD, str(tmp_path), NAME, str(NUMBER), *FOLDERS)
    holder = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    try:
        for what in _made(tmp_path):
            assert freely(FIND, what, tmp_path, NAME, NUMBER, *PRIVATE).worked, what
    finally:
        (tmp_path / "stop").touch()
        holder.wait()


@pytest.mark.parametrize("what", ["signals", "memory", "processes"])
def test_what_a_sandbox_uses_is_not_counted_for_another(
    box: Box, tmp_path: Path, what: str
) -> None:
    """The second one has a limit of its own, below what the first one uses."""
    manifest = weakest(tmp_path, network="deny")

    def used_up(first: Callable[[], object], second: Callable[[], Verdict]) -> bool:
        for name in ("used", "enough"):
            (tmp_path / name).unlink(missing_ok=True)
        holder = threading.Thread(target=first)
        holder.start()
        try:
            _wait_for(tmp_path / "used")
            return second().worked
        finally:
            (tmp_path / "enough").touch()
            holder.join()

    line = (*USE_UP, what)
    # Root of the host has no limit but that for signals.
    assert used_up(
        lambda: subprocess.run([*line, "first", tmp_path], check=False, start_new_session=True),
        lambda: freely(line, "second", tmp_path),
    ) == (what == "signals" or os.geteuid() != 0)
    other = Box(box.backend, box.daemon)
    try:
        assert not used_up(
            lambda: other.run(*line, "first", str(tmp_path), manifest=manifest),
            lambda: box.attack(line, "second", tmp_path, manifest=manifest),
        )
    finally:
        other.close()


@pytest.mark.parametrize("what", ON_MOUNTS)
def test_a_clone_has_no_power_over_its_mounts(box: Box, tmp_path: Path, what: str) -> None:
    """None is left of what the template could do. Without a filter: the kernel itself refuses."""
    attack = python(f"def act(path): {ON_MOUNTS[what]}", POWERS)
    assert freely(attack, "control", tmp_path).worked
    mounts = ("/", "/proc", "/proc/sys", "/dev", "/dev/pts", "/dev/shm", "/tmp", "/var/tmp")
    manifest = weakest(tmp_path, network="deny")
    assert box.attack(attack, "inside", *mounts, tmp_path, manifest=manifest).blocked


@pytest.mark.parametrize("what", ON_INIT)
def test_a_clone_has_no_power_over_its_init(box: Box, what: str) -> None:
    """The init came out of the template, by which it was dumpable for a moment."""
    attack = python(
        CHILD,
        """
        pid = int(args[0]) or child()
    """,
        ON_INIT[what],
        "worked()",
    )
    assert freely(attack, 0).worked
    assert box.attack(attack, 1).blocked


def test_files_of_the_init_belong_to_no_command(box: Box, tmp_path: Path) -> None:
    assert freely(FILES_OF_INIT, 0).worked
    workspace = tmp_path / "of-a-user"
    workspace.mkdir()
    if os.geteuid() == 0:  # a command of root's is root in its user namespace
        user = unprivileged_user()
        os.chown(workspace, user.pw_uid, user.pw_gid)
        open_to_others(tmp_path)
    assert box.attack(FILES_OF_INIT, 1, workspace=str(workspace)).blocked


def test_the_init_is_in_no_group_and_session_of_others(box: Box) -> None:
    """What it signals by its group would reach the inits of other clones. 0: one from outside."""
    attack = python("""
        if args:
            powers(NEWPID)
            child = os.fork()
            if child:
                os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        ids = os.getpgid(1), os.getsid(1)
        worked(ids) if 0 in ids else blocked(ids)
    """)
    assert freely(attack, "control").worked
    assert box.attack(attack).blocked


@pytest.mark.parametrize("what", AS_ROOT)
def test_a_clone_is_not_root(box: Box, tmp_path: Path, what: str) -> None:
    attack = python(AS_ROOT[what], "worked()")
    assert freely(attack, tmp_path).worked == (os.geteuid() == 0)
    assert box.attack(attack, "/tmp").blocked


def test_posix_queues_are_not_made(box: Box) -> None:
    """So they use up nothing of the user's limit, which all sandboxes would share."""
    attack = python("""
        name = f"/sandboxd-{os.getpid()}".encode()
        c("mq_open", name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, None)
        c("mq_unlink", name)
        worked()
    """)
    assert freely(attack).worked
    assert box.attack(attack, manifest=weakest(network="deny")).blocked
