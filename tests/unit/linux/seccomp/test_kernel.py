"""The programs in the real kernel: each refusal beside the same call without a filter."""

from __future__ import annotations

import errno
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.linux.seccomp import FilterSpec, compile_filter
from sandboxd.linux.seccomp.compiler import call_number

pyseccomp = pytest.importorskip("pyseccomp")
pytestmark = [pytest.mark.isolation, pytest.mark.requires("seccomp", "gcc")]

SOURCE = Path(__file__).parents[3] / "strict" / "under_filter.c"
KILLED = f"killed by {signal.Signals.SIGSYS.name}"
GARBAGE = 0xDEAD_0000_0000_0000
MISSING_PID = 0x3FFF_FFF0
BAD_FD = -1

BASELINE = FilterSpec("baseline", False)
STRICT = FilterSpec("strict", False)
OWN_NETWORK = FilterSpec("inherit", True)
INHERIT = FilterSpec("inherit", False)
NO_NAMESPACES = FilterSpec("inherit", False, no_namespaces=True)
NO_NETWORK = FilterSpec("inherit", True, no_namespaces=True, deny_inet=True)

Under = Callable[..., subprocess.CompletedProcess[str]]
Call = Callable[..., str]


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("launcher") / "under_filter"
    subprocess.run(["gcc", "-O1", "-pthread", "-o", binary, SOURCE], check=True)
    return binary


@pytest.fixture
def under(launcher: Path, tmp_path: Path) -> Under:
    """Run the launcher under a spec's program; None: without."""

    def run(spec: FilterSpec | None, *words: object) -> subprocess.CompletedProcess[str]:
        program = compile_filter(spec) if spec else None
        file = tmp_path / "program"
        file.write_bytes(program or b"")
        command = [str(launcher), str(file) if program else "-", *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )

    return run


@pytest.fixture
def call(under: Under) -> Call:
    """Make one call and say what came of it: "ok", an errno's name, or the signal."""

    def make(spec: FilterSpec | None, name: str, *args: int, how: str = "call") -> str:
        number = call_number(pyseccomp, name)
        done = under(spec, how, number, *args)
        if done.returncode < 0:
            return f"killed by {signal.Signals(-done.returncode).name}"
        assert done.returncode == 0, done.stderr
        word = done.stdout.strip()
        return word if word == "ok" else errno.errorcode[int(word)]

    return make


# Calls whose own answer is never EPERM for these arguments, not even to an unprivileged user.
DENIED_BY_BASELINE = [
    ("add_key", ()),
    ("keyctl", (0, -3, 1)),
    ("request_key", ()),
    ("userfaultfd", (1,)),
    ("io_uring_setup", ()),
    ("setns", (BAD_FD, 0)),
    ("process_vm_readv", (MISSING_PID, 0, 0, 0, 0, 0)),
    ("process_vm_writev", (MISSING_PID, 0, 0, 0, 0, 0)),
    ("pidfd_getfd", (BAD_FD, 0, 0)),
    ("kcmp", (MISSING_PID, MISSING_PID, 0)),
    ("move_pages", (MISSING_PID, 0, 0, 0, 0, 0)),
    ("name_to_handle_at", (BAD_FD, 0, 0, 0, 0)),
    ("mount", (0, 0, 0, 0, 0)),
    ("ptrace", (16, MISSING_PID, 0, 0)),
    ("ptrace", (0x4206, MISSING_PID, 0, 0)),
    ("ptrace", (GARBAGE | 0x10, MISSING_PID, 0, 0)),
    ("ioctl", (0, 0x5412, 0)),
    ("ioctl", (0, 0x541C, 0)),
    ("ioctl", (0, GARBAGE | 0x5412, 0)),
    ("personality", (0x0040_0000,)),
    ("personality", (0x8040_0000,)),
    ("personality", (0xFFFF_FFFE,)),
    ("personality", (GARBAGE | 0x8010_0000,)),
]


@pytest.mark.parametrize(("name", "args"), DENIED_BY_BASELINE)
def test_baseline_refuses_what_the_kernel_would_look_at(
    call: Call, name: str, args: tuple[int, ...]
) -> None:
    control = call(None, name, *args)
    if control == "ENOSYS":
        pytest.skip(f"this kernel has no {name}")
    assert control != "EPERM"
    assert call(BASELINE, name, *args) == "EPERM"


@pytest.mark.parametrize("request_number", [16, 0x4206, GARBAGE | 0x10])
def test_no_filter_lets_processes_attach_to_each_other(call: Call, request_number: int) -> None:
    """With an exit event asked for on both sides, nothing would end them any more."""
    asked = ("ptrace", request_number, MISSING_PID, 0, 0)
    assert call(None, *asked) == "ESRCH"
    assert call(OWN_NETWORK, *asked) == call(INHERIT, *asked) == "EPERM"


def test_baseline_refuses_a_nested_user_namespace(call: Call) -> None:
    new_user = 0x1000_0000
    control = call(None, "unshare", new_user)
    if control != "ok":
        pytest.skip(f"user namespaces do not work here: {control}")
    assert call(BASELINE, "unshare", new_user) == "EPERM"
    assert call(BASELINE, "unshare", GARBAGE | new_user) == "EPERM"
    assert call(BASELINE, "clone", new_user | signal.SIGCHLD) == "EPERM"
    assert call(STRICT, "unshare", new_user) == "EPERM"


def test_unsharing_descriptors_stays_possible(call: Call) -> None:
    assert call(BASELINE, "unshare", 0x400) == call(STRICT, "unshare", 0x400) == "ok"


def test_clone3_is_unknown_so_that_libraries_use_clone(call: Call) -> None:
    assert call(None, "clone3") == "EINVAL"
    assert call(BASELINE, "clone3") == call(STRICT, "clone3") == "ENOSYS"


@pytest.mark.parametrize("spec", [BASELINE, INHERIT], ids=str)
def test_a_program_may_trace_its_own_child(under: Under, spec: FilterSpec) -> None:
    code = "import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, None, None))"
    assert under(spec, "run", sys.executable, "-c", code).stdout == "0\n"


@pytest.mark.requires("strace")
@pytest.mark.parametrize("spec", [BASELINE, INHERIT], ids=str)
def test_strace_runs_a_program(under: Under, spec: FilterSpec) -> None:
    done = under(spec, "run", "strace", "-f", "-e", "trace=execve", "/bin/true")
    assert done.returncode == 0, done.stderr
    assert 'execve("/bin/true"' in done.stderr


@pytest.mark.parametrize("name", ["bpf", "mount", "init_module", "open_by_handle_at", "swapoff"])
def test_strict_kills(call: Call, name: str) -> None:
    assert call(None, name) != KILLED
    assert call(STRICT, name) == KILLED


def test_strict_kills_the_whole_process_from_any_thread(call: Call) -> None:
    assert call(None, "bpf", how="thread") != KILLED
    assert call(STRICT, "bpf", how="thread") == KILLED


@pytest.mark.parametrize("name", ["io_uring_setup", "keyctl", "perf_event_open", "ptrace"])
def test_strict_answers_what_runtimes_only_try(call: Call, name: str) -> None:
    assert call(STRICT, name) in ("EPERM", "ENOSYS")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 has these entries")
@pytest.mark.parametrize("spec", [BASELINE, STRICT, OWN_NETWORK, NO_NAMESPACES], ids=str)
def test_32_bit_and_x32_entry_kill(under: Under, spec: FilterSpec) -> None:
    getpid_32, getpid_64 = 20, 39
    control = under(None, "int80", getpid_32)
    if control.returncode != 0:
        pytest.skip("this kernel runs no 32-bit programs")
    assert control.stdout == "ok\n"
    assert under(spec, "int80", getpid_32).returncode == -signal.SIGSYS
    # Without x32 in the kernel the control says ENOSYS: not killed.
    assert under(None, "x32", getpid_64).returncode == 0
    assert under(spec, "x32", getpid_64).returncode == -signal.SIGSYS


@pytest.mark.parametrize("spec", [OWN_NETWORK, BASELINE, STRICT], ids=str)
def test_vsock_cannot_be_made(call: Call, spec: FilterSpec) -> None:
    if call(None, "socket", socket.AF_VSOCK, socket.SOCK_STREAM) != "ok":
        pytest.skip("this kernel has no vsock")
    assert call(spec, "socket", socket.AF_VSOCK, socket.SOCK_STREAM) == "EAFNOSUPPORT"
    garbled = GARBAGE | socket.AF_VSOCK
    assert call(None, "socket", garbled, socket.SOCK_STREAM) == "ok"
    assert call(spec, "socket", garbled, socket.SOCK_STREAM) == "EAFNOSUPPORT"


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET, socket.AF_INET6])
def test_ordinary_sockets_can_be_made(call: Call, family: int) -> None:
    wanted = call(None, "socket", family, socket.SOCK_STREAM)
    for spec in (OWN_NETWORK, BASELINE, STRICT):
        assert call(spec, "socket", family, socket.SOCK_STREAM) == wanted


def test_in_a_network_of_its_own_netlink_speaks_routes_only(call: Call) -> None:
    uevents = (socket.AF_NETLINK, socket.SOCK_DGRAM, 15)
    assert call(None, "socket", *uevents) == "ok"
    assert call(OWN_NETWORK, "socket", *uevents) == "EPROTONOSUPPORT"
    assert call(OWN_NETWORK, "socket", socket.AF_NETLINK, socket.SOCK_DGRAM, 0) == "ok"


def test_a_network_of_its_own_comes_without_io_uring(call: Call) -> None:
    """IORING_OP_SOCKET makes sockets that no filter sees."""
    assert call(None, "io_uring_setup") != "EPERM"
    assert call(OWN_NETWORK, "io_uring_setup") == "EPERM"


def test_without_namespaces_no_unix_socket_but_pairs(under: Under) -> None:
    code = "import socket; socket.socketpair(); print('pair'); socket.socket(socket.AF_UNIX)"
    assert under(None, "run", sys.executable, "-c", code).returncode == 0
    done = under(NO_NAMESPACES, "run", sys.executable, "-c", code)
    assert done.stdout == "pair\n"
    assert "PermissionError" in done.stderr


RECONNECT = """
import socket, sys
here, _ = socket.socketpair(socket.AF_UNIX, int(sys.argv[2]))
here.connect(sys.argv[1])
here.send(b"out")
"""


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_RAW])
def test_without_namespaces_a_pair_cannot_be_reconnected_to_a_socket_file(
    under: Under, tmp_path: Path, kind: int
) -> None:
    path = str(tmp_path / "s")
    command = ("run", sys.executable, "-c", RECONNECT, path, str(int(kind)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as victim:
        victim.bind(path)
        victim.setblocking(False)
        assert under(None, *command).returncode == 0
        assert victim.recv(16) == b"out"
        assert under(NO_NAMESPACES, *command).returncode != 0
        with pytest.raises(BlockingIOError):
            victim.recv(16)


def test_without_namespaces_the_limits_of_another_process_cannot_be_set(under: Under) -> None:
    code = (
        "import resource, sys; pid = int(sys.argv[1]);"
        "print(resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)))"
    )
    with subprocess.Popen(["sleep", "60"]) as victim:
        try:
            command = ("run", sys.executable, "-c", code)
            assert under(None, *command, victim.pid).returncode == 0
            assert "PermissionError" in under(NO_NAMESPACES, *command, victim.pid).stderr
            assert under(NO_NAMESPACES, *command, 0).returncode == 0
        finally:
            victim.kill()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("shmget", (0, 4096, 0o1600)),
        ("semget", (0, 1, 0o1600)),
        ("mq_open", ()),
        ("sched_setaffinity", (MISSING_PID, 0, 0)),
        ("setpriority", (0, MISSING_PID, 0)),
        ("setpriority", (2, MISSING_PID, 0)),
        ("keyctl", (0, -3, 1)),
        ("io_uring_setup", ()),
    ],
)
def test_without_namespaces_the_hosts_objects_are_out_of_reach(
    call: Call, name: str, args: tuple[int, ...]
) -> None:
    assert call(None, name, *args) != "EPERM"
    assert call(NO_NAMESPACES, name, *args) == "EPERM"


def test_without_namespaces_and_network_no_internet_socket_can_be_made(call: Call) -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        assert call(NO_NETWORK, "socket", family, socket.SOCK_DGRAM) == "EPERM"
    assert call(None, "socket", socket.AF_INET, socket.SOCK_DGRAM) == "ok"


def test_a_filter_stays_with_the_children(under: Under) -> None:
    code = "import subprocess; print(subprocess.run(['keyctl-probe', '-c', PROBE]).returncode)"
    probe = "import ctypes; raise SystemExit(ctypes.CDLL(None).syscall(NUMBER, 0, -3, 1) < 0)"
    probe = probe.replace("NUMBER", str(call_number(pyseccomp, "keyctl")))
    code = code.replace("'keyctl-probe'", repr(sys.executable)).replace("PROBE", repr(probe))
    assert under(None, "run", sys.executable, "-c", code).stdout == "0\n"
    assert under(BASELINE, "run", sys.executable, "-c", code).stdout == "1\n"
