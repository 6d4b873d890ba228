"""Rulesets in the real kernel: a child confines itself and tries, beside one that does not."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandboxd.linux.landlock import RulesetSpec, add_path, build_ruleset, kernel_abi

pytestmark = [pytest.mark.isolation, pytest.mark.requires("landlock")]

# Everything that the attempt needs is imported before the domain begins.
CHILD = """
import ctypes, errno, fcntl, os, signal, socket, sys
ruleset, code, *args = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
if int(ruleset) >= 0:
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.syscall(446, int(ruleset), 0) == 0, os.strerror(ctypes.get_errno())
try:
    exec(code)
except OSError as error:
    print(errno.errorcode[error.errno])
else:
    print("ok")
"""

Attempt = Callable[..., str]


def attempt(spec: RulesetSpec | None, code: str, *args: object, abi: int | None = None) -> str:
    """Run `code` (its arguments are `args`) in a domain of its own; None: without one."""
    with contextlib.ExitStack() as stack:
        fd = -1
        if spec is not None:
            built = build_ruleset(spec, kernel_abi() if abi is None else abi)
            fd = stack.enter_context(built).fileno()
        command = [sys.executable, "-c", CHILD, str(fd), code, *map(str, args)]
        done = subprocess.run(
            command,
            pass_fds=[fd] if fd >= 0 else [],
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout.strip()


def needs_abi(abi: int) -> pytest.MarkDecorator:
    return pytest.mark.skipif(kernel_abi() < abi, reason=f"Landlock ABI {abi}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """in/ is granted; out/ is not. Both hold a file `f`."""
    for name in ("in", "out"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "f").write_text("text")
    return tmp_path


READ = "open(args[0]).read()"
WRITE = "open(args[0], 'r+').write('x')"
ATTEMPTS = {
    "read": (READ, "f"),
    "list": ("os.listdir(args[0])", "."),
    "write": (WRITE, "f"),
    "make": ("open(args[0], 'w')", "new"),
    "mkdir": ("os.mkdir(args[0])", "newdir"),
    "symlink": ("os.symlink('/', args[0])", "link"),
    "fifo": ("os.mkfifo(args[0])", "fifo"),
    "socket": ("socket.socket(socket.AF_UNIX).bind(args[0])", "s"),
    "unlink": ("os.unlink(args[0])", "f"),
    "rmdir": ("os.rmdir(args[0])", "sub"),
    "rename": ("os.rename(args[0], args[0] + '2')", "f"),
}
READING = {"read", "list"}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_outside_the_rules_nothing_works(tree: Path, name: str) -> None:
    code, target = ATTEMPTS[name]
    spec = RulesetSpec(read=("/usr",), write=(str(tree / "in"),))
    assert attempt(spec, code, tree / "out" / target) == "EACCES"
    assert attempt(None, code, tree / "out" / target) == "ok"


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_writable_folder_takes_everything(tree: Path, name: str) -> None:
    code, target = ATTEMPTS[name]
    assert attempt(RulesetSpec(write=(str(tree / "in"),)), code, tree / "in" / target) == "ok"


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_readable_folder_is_only_read(tree: Path, name: str) -> None:
    code, target = ATTEMPTS[name]
    wanted = "ok" if name in READING else "EACCES"
    assert attempt(RulesetSpec(read=(str(tree / "in"),)), code, tree / "in" / target) == wanted


def test_execution_needs_a_rule(tree: Path) -> None:
    code = "pid = os.posix_spawn(args[0], [args[0]], {}); os.waitpid(pid, 0)"
    program = os.path.realpath("/bin/true")
    assert attempt(RulesetSpec(read=(str(tree),)), code, program) == "EACCES"
    assert attempt(RulesetSpec(read=("/",)), code, program) == "ok"


def test_a_file_can_be_granted_alone(tree: Path) -> None:
    spec = RulesetSpec(read=(str(tree / "in/f"),), write=(str(tree / "out/f"),))
    assert attempt(spec, READ, tree / "in/f") == "ok"
    assert attempt(spec, WRITE, tree / "in/f") == "EACCES"
    assert attempt(spec, WRITE, tree / "out/f") == "ok"
    assert attempt(spec, "os.unlink(args[0])", tree / "out/f") == "EACCES"


def test_descriptors_serve_as_paths_even_after_a_rename(tree: Path) -> None:
    fd = os.open(tree / "in", os.O_PATH | os.O_CLOEXEC)
    try:
        (tree / "in").rename(tree / "moved")
        (tree / "in").mkdir()
        (tree / "in/f").write_text("another")
        assert attempt(RulesetSpec(write=(fd,)), READ, tree / "moved/f") == "ok"
        assert attempt(RulesetSpec(write=(fd,)), READ, tree / "in/f") == "EACCES"
        os.fstat(fd)
    finally:
        os.close(fd)


def test_a_vanished_path_is_named(tree: Path) -> None:
    gone = str(tree / "gone")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError) as caught:
        build_ruleset(RulesetSpec(read=("/usr", gone)), kernel_abi())
    assert caught.value.filename == gone
    assert os.listdir("/proc/self/fd") == before


def test_a_link_put_in_place_of_a_path_is_not_followed(tree: Path) -> None:
    (tree / "in/link").symlink_to(tree / "out")
    with pytest.raises(OSError, match="symbolic link"):
        build_ruleset(RulesetSpec(write=(str(tree / "in/link"),)), kernel_abi())


def test_the_descriptor_is_close_on_exec_and_closed_with_the_context() -> None:
    with build_ruleset(RulesetSpec(read=("/usr",)), kernel_abi()) as ruleset:
        fd = ruleset.fileno()
        assert not os.get_inheritable(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(ValueError, match="closed"):
        ruleset.fileno()
    ruleset.close()


def test_rules_can_be_added_later(tree: Path) -> None:
    with build_ruleset(RulesetSpec(), kernel_abi()) as ruleset:
        add_path(ruleset, str(tree / "in"), ruleset.handled_fs)
        command = [sys.executable, "-c", CHILD, str(ruleset.fileno()), WRITE, tree / "in/f"]
        assert subprocess.check_output(command, pass_fds=[ruleset.fileno()]) == b"ok\n"


@needs_abi(3)
def test_truncate_is_covered_from_abi_3_on(tree: Path) -> None:
    spec = RulesetSpec(read=(str(tree),), write=(str(tree / "in"),))
    code = "os.truncate(args[0], 0)"
    assert attempt(spec, code, tree / "out/f", abi=3) == "EACCES"
    assert attempt(spec, code, tree / "in/f", abi=3) == "ok"
    # Older kernels let it through, and the ruleset says so.
    assert attempt(spec, code, tree / "out/f", abi=2) == "ok"
    with build_ruleset(spec, 2) as ruleset:
        assert any("truncate is not covered" in text for text in ruleset.missing)


@needs_abi(2)
def test_files_move_between_writable_folders_only(tree: Path) -> None:
    move = "os.rename(args[0], args[1])"
    link = "os.link(args[0], args[1])"
    both = RulesetSpec(write=(str(tree / "in"), str(tree / "out")))
    one = RulesetSpec(read=(str(tree),), write=(str(tree / "in"),))
    assert attempt(both, move, tree / "in/f", tree / "in/sub/f") == "ok"
    assert attempt(both, link, tree / "in/sub/f", tree / "out/sub/f") == "ok"
    assert attempt(one, move, tree / "in/sub/f", tree / "out/g") in ("EACCES", "EXDEV")
    assert attempt(one, link, tree / "out/f", tree / "in/g") in ("EACCES", "EXDEV")
    # ABI 1 knows no right for it and refuses always.
    assert attempt(both, move, tree / "in/sub/f", tree / "in/g", abi=1) == "EXDEV"
    assert attempt(None, move, tree / "in/sub/f", tree / "out/g") == "ok"


@contextlib.contextmanager
def listening(family: int, address: object) -> Iterator[socket.socket]:
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind(address)
        server.listen()
        yield server


CONNECT = "socket.socket().connect(('127.0.0.1', int(args[0])))"
BIND = "socket.socket().bind(('127.0.0.1', int(args[0])))"


@needs_abi(4)
def test_tcp_is_denied_from_abi_4_on() -> None:
    with listening(socket.AF_INET, ("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert attempt(None, CONNECT, port) == "ok"
        assert attempt(None, BIND, 0) == "ok"
        denied = RulesetSpec(deny_tcp=True)
        assert attempt(denied, CONNECT, port) == "EACCES"
        assert attempt(denied, BIND, 0) == "EACCES"
        assert attempt(denied, CONNECT, port, abi=3) == "ok"
    with build_ruleset(RulesetSpec(deny_tcp=True), 3) as ruleset:
        assert any("TCP ports are not covered" in text for text in ruleset.missing)
    with build_ruleset(RulesetSpec(), 3) as ruleset:
        assert not any("TCP" in text for text in ruleset.missing)


@needs_abi(4)
def test_single_ports_can_be_opened() -> None:
    with listening(socket.AF_INET, ("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert attempt(RulesetSpec(deny_tcp=True, connect_ports=(port,)), CONNECT, port) == "ok"
        assert attempt(RulesetSpec(connect_ports=(port,)), CONNECT, port) == "ok"
        assert attempt(RulesetSpec(connect_ports=(1,)), CONNECT, port) == "EACCES"
        assert attempt(RulesetSpec(connect_ports=(1,)), BIND, 0) == "ok"
        assert attempt(RulesetSpec(bind_ports=()), BIND, 0) == "EACCES"
        assert attempt(RulesetSpec(bind_ports=(0,)), BIND, 0) == "ok"


@needs_abi(6)
def test_abstract_sockets_outside_are_out_of_reach_from_abi_6_on() -> None:
    name = f"\0sandboxd-test-{os.getpid()}"
    code = "socket.socket(socket.AF_UNIX).connect('\\0' + args[0])"
    with listening(socket.AF_UNIX, name):
        assert attempt(None, code, name[1:]) == "ok"
        scoped = RulesetSpec(scope_abstract=True)
        assert attempt(RulesetSpec(), code, name[1:]) == "ok"
        assert attempt(scoped, code, name[1:]) == "EPERM"
        assert attempt(scoped, code, name[1:], abi=5) == "ok"
    with build_ruleset(scoped, 5) as ruleset:
        assert any("abstract" in text for text in ruleset.missing)


@needs_abi(6)
def test_signals_stay_inside_from_abi_6_on() -> None:
    code = "os.kill(int(args[0]), 0)"
    own_child = "p = os.posix_spawn('/bin/sleep', ['sleep', '9'], {}); os.kill(p, signal.SIGKILL)"
    with subprocess.Popen(["sleep", "60"]) as victim:
        try:
            scoped = RulesetSpec(read=("/",), scope_signal=True)
            assert attempt(None, code, victim.pid) == "ok"
            assert attempt(RulesetSpec(), code, victim.pid) == "ok"
            assert attempt(scoped, code, victim.pid) == "EPERM"
            assert attempt(scoped, own_child) == "ok"
            assert attempt(scoped, code, victim.pid, abi=5) == "ok"
            assert victim.poll() is None
        finally:
            victim.send_signal(signal.SIGKILL)


@needs_abi(5)
def test_device_ioctls_need_a_rule_from_abi_5_on() -> None:
    """TCGETS on /dev/null: the device's own answer is ENOTTY, so EACCES is Landlock's."""
    code = "fcntl.ioctl(os.open(args[0], os.O_RDONLY), 0x5401, bytes(64))"
    null = "/dev/null"
    assert attempt(None, code, null) == "ENOTTY"
    assert attempt(RulesetSpec(read=(null,)), code, null) == "EACCES"
    assert attempt(RulesetSpec(devices=(null,)), code, null) == "ENOTTY"
    assert attempt(RulesetSpec(devices=("/dev",)), code, null) == "ENOTTY"
    assert attempt(RulesetSpec(read=(null,), device_ioctl=False), code, null) == "ENOTTY"
    assert attempt(RulesetSpec(read=(null,)), code, null, abi=4) == "ENOTTY"


def test_devices_are_used_not_made(tree: Path) -> None:
    spec = RulesetSpec(devices=("/dev/null", str(tree / "in")))
    assert attempt(spec, "open(args[0], 'w').write('x')", "/dev/null") == "ok"
    assert attempt(spec, "open(args[0], 'w')", tree / "in/new") == "EACCES"
    assert attempt(spec, "os.unlink(args[0])", tree / "in/f") == "EACCES"


@pytest.mark.requires("root")
def test_root_can_make_no_device_nodes_even_where_it_may_write(tree: Path) -> None:
    code = "os.mknod(args[0], 0o020600, os.makedev(1, 3))"
    if attempt(None, code, tree / "out/null") != "ok":
        pytest.skip("no right to make device nodes here")
    assert attempt(RulesetSpec(write=(str(tree / "in"),)), code, tree / "in/null") == "EACCES"


@pytest.mark.requires("root")
def test_reading_proc_does_not_open_core_pattern_for_root() -> None:
    """Opened only, never written."""
    code = "os.close(os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY))"
    if attempt(None, code) != "ok":
        pytest.skip("core_pattern is closed to root here")
    assert attempt(RulesetSpec(read=("/proc",), write=("/tmp",)), code) == "EACCES"
