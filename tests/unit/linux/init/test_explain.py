"""Explain mode: every refused access is told, and the command behaves as it does without it."""

from __future__ import annotations

import errno
import os
import platform
import select
import signal
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from init_driver import Command, Init, Place, ready_init

from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.messages import Wanted

pytestmark = pytest.mark.requires("bubblewrap")
EXPLAIN = wire.ExecFlag.EXPLAIN


@pytest.fixture(params=["self", pytest.param("user", marks=pytest.mark.requires("root"))])
def inside(request: pytest.FixtureRequest) -> Iterator[Init]:
    place = Place(bwrap=True, unprivileged=request.param == "user")
    with ready_init(place) as init:
        yield init


def refused(command: Command) -> list[tuple[str, Wanted, str]]:
    found = [m for m in command.wait().messages if isinstance(m, wire.RefusedPathsMessage)]
    return [
        (errno.errorcode.get(r.errno, "0"), r.wanted, r.path) for m in found for r in m.refusals
    ]


def told(init: Init, script: str) -> list[tuple[str, Wanted, str]]:
    return refused(init.python(script, flags=EXPLAIN))


def attempts(*calls: str) -> str:
    lines = [f"try: {call}\nexcept OSError: pass" for call in calls]
    return "\n".join(["import os, socket", *lines])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("open('/usr/new', 'w')", ("EROFS", Wanted.CREATE, "/usr/new")),
        ("open('/usr/bin/env', 'r+')", ("EROFS", Wanted.WRITE, "/usr/bin/env")),
        ("open('/none/there')", ("ENOENT", Wanted.READ, "/none/there")),
        ("os.stat('/none')", ("ENOENT", Wanted.LOOK, "/none")),
        ("os.mkdir('/usr/d')", ("EROFS", Wanted.CREATE, "/usr/d")),
        ("os.unlink('/usr/bin/env')", ("EROFS", Wanted.REMOVE, "/usr/bin/env")),
        ("os.rename('/usr/bin/env', '/usr/e')", ("EROFS", Wanted.RENAME, "/usr/e")),
        ("os.rename('/usr/bin/env', '/usr/e')", ("EROFS", Wanted.RENAME, "/usr/bin/env")),
        ("os.symlink('/x', '/usr/link')", ("EROFS", Wanted.CREATE, "/usr/link")),
        ("os.chmod('/usr/bin/env', 0o755)", ("EROFS", Wanted.CHANGE, "/usr/bin/env")),
        ("os.utime('/usr/bin/env')", ("EROFS", Wanted.CHANGE, "/usr/bin/env")),
        ("os.truncate('/usr/bin/env', 0)", ("EROFS", Wanted.WRITE, "/usr/bin/env")),
        ("os.execv('/none', ['x'])", ("ENOENT", Wanted.EXEC, "/none")),
        ("os.chdir('/none')", ("ENOENT", Wanted.ENTER, "/none")),
        ("socket.socket(socket.AF_UNIX).connect('/n/s')", ("ENOENT", Wanted.LOOK, "/n/s")),
        ("socket.socket(socket.AF_UNIX).bind('/usr/s')", ("EROFS", Wanted.CREATE, "/usr/s")),
        ("os.chdir('/usr'); open('rel/ative')", ("ENOENT", Wanted.READ, "/usr/rel/ative")),
        ("os.mkdir('x', dir_fd=os.open('/usr', 0))", ("EROFS", Wanted.CREATE, "/usr/x")),
    ],
)
def test_a_refused_call_is_told_with_its_absolute_path(
    inside: Init, call: str, expected: tuple[str, Wanted, str]
) -> None:
    error, wanted, path = expected
    # Of a file of root the permission bits may be looked at before the mount.
    errors = {"EROFS", "EACCES", "EPERM"} if error == "EROFS" else {error}
    found = told(inside, attempts(call))
    assert any(f[0] in errors and f[1:] == (wanted, path) for f in found), found


def test_without_explain_nothing_is_told(inside: Init) -> None:
    assert refused(inside.python(attempts("open('/usr/new', 'w')"))) == []


def test_asking_whether_one_may_write_is_a_probe(inside: Init) -> None:
    found = told(inside, "import os; os.access('/usr', os.W_OK)")
    assert [f for f in found if f[2] == "/usr"] in (
        [("EROFS", Wanted.PROBE, "/usr")],
        [("EACCES", Wanted.PROBE, "/usr")],  # the permission bits are looked at first
    )


def test_a_refusal_is_told_once(inside: Init) -> None:
    script = attempts("[os.path.exists('/none') for _ in range(1000)]")
    assert told(inside, script).count(("ENOENT", Wanted.LOOK, "/none")) == 1


def test_thousands_are_told_in_order(inside: Init) -> None:
    found = told(inside, "import os\nfor i in range(5000): os.path.exists(f'/none/{i}')")
    numbers = [int(path[6:]) for _, _, path in found if path.startswith("/none/")]
    assert numbers == list(range(5000))


def test_threads_forks_and_programs_that_it_starts_are_traced(inside: Init) -> None:
    script = (
        "import os, subprocess, threading\n"
        "def look(name): os.path.exists(name)\n"
        "threads = [threading.Thread(target=look, args=(f'/thread/{i}',)) for i in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "if os.fork() == 0:\n look('/fork'); os._exit(0)\n"
        "os.wait()\n"
        "subprocess.run(['sh', '-c', 'cd /shell; (setsid cat /cat &) ; sleep .2'])\n"
    )
    paths = {path for _, _, path in told(inside, script)}
    assert {f"/thread/{i}" for i in range(8)} | {"/fork", "/shell", "/cat"} <= paths


def test_an_open_mount_of_its_own_is_told_without_an_error() -> None:
    with tempfile.NamedTemporaryFile() as empty:
        mounts = ("--ro-bind", empty.name, "/etc/hostname")
        with ready_init(Place(bwrap=True, mounts=mounts)) as init:
            found = told(init, "open('/etc/hostname').read()")
    assert ("0", Wanted.READ, "/etc/hostname") in found


def test_exit_codes_signals_and_output_are_the_same(inside: Init) -> None:
    stopped = "sleep 60 & kill -STOP $!; kill -KILL $!; wait $! 2>/dev/null; exit 3"
    for script in ("exit 7", "kill -9 $$", "echo out; echo err >&2", stopped):
        plain, traced = inside.shell(script).wait(), inside.shell(script, flags=EXPLAIN).wait()
        assert (plain.code, plain.signal) == (traced.code, traced.signal)
        assert (plain.stdout, plain.stderr) == (traced.stdout, traced.stderr)


def test_a_stopped_job_stays_stopped_until_it_is_continued(inside: Init) -> None:
    script = (
        "state() { cut -d' ' -f3 /proc/$p/stat; }\n"
        "reach() { for i in $(seq 400);do case $(state) in [$1]) return; esac; sleep .05; done; }\n"
        "sleep 60 & p=$!; reach S; kill -STOP $p; reach Tt; sleep .1; state; "
        "kill -CONT $p; reach S; state; kill $p"
    )
    states = inside.shell(script, flags=EXPLAIN).wait().stdout.decode().split()
    assert states[0] in ("T", "t")
    assert states[1] == "S"


def test_killing_the_tree_works_while_it_is_traced(inside: Init) -> None:
    storm = (
        "import os\nwhile 1:\n if os.fork() == 0: os.path.exists('/none'); os._exit(0)\n os.wait()"
    )
    command = inside.python(storm, flags=EXPLAIN)
    command.started()
    while not any(isinstance(m, wire.RefusedPathsMessage) for m in command.messages):
        command.receive()
    command.send(wire.Kill())
    assert isinstance(command.wait().messages[-1], wire.Gone)


def test_a_command_that_kills_its_reaper_dies_with_it(inside: Init) -> None:
    script = "kill -9 $PPID; while :; do :; done"
    ended = inside.shell(script, flags=EXPLAIN).wait()
    assert ended.signal == signal.SIGKILL
    assert ended.kinds[-1] == "Gone"


def test_the_call_that_a_filter_killed_for_is_named(inside: Init) -> None:
    uname = {"x86_64": 63, "aarch64": 160}[platform.machine()]
    program = b"".join(
        struct.pack("<HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, 0), (0x15, 0, 1, uname),
            (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7FFF0000),
        )
    )  # fmt: skip
    with tempfile.TemporaryFile() as file:
        file.write(program)
        file.flush()
        flags = EXPLAIN | wire.ExecFlag.HAS_FILTER
        for script in ("uname", "uname; exit 0"):
            ended = inside.shell(script, filter_fd=file.fileno(), flags=flags).wait()
            assert wire.KilledCall(uname) in ended.messages


def test_a_call_with_a_number_beyond_an_int_does_not_break_the_protocol(inside: Init) -> None:
    """A filter kills it on x86-64, where its number in the register is no negative one."""
    program = b"".join(
        struct.pack("<HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, 0), (0x35, 0, 1, 0x80000000),
            (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7FFF0000),
        )
    )  # fmt: skip
    with tempfile.TemporaryFile() as file:
        file.write(program)
        file.flush()
        flags = EXPLAIN | wire.ExecFlag.HAS_FILTER
        script = "import ctypes; ctypes.CDLL(None).syscall(ctypes.c_long(0x8000_0000))"
        ended = inside.python(script, filter_fd=file.fileno(), flags=flags).wait()
    assert ended.signal == signal.SIGSYS


def test_a_program_that_cannot_be_executed_is_a_failed_exec(inside: Init) -> None:
    failed = inside.exec("/none", flags=EXPLAIN).wait().only(wire.ExecFailedMessage)
    assert (failed.stage, failed.errno) == (wire.ExecStage.EXEC, errno.ENOENT)


def test_a_terminal_works_while_it_is_traced(inside: Init) -> None:
    flags = EXPLAIN | wire.ExecFlag.PTY
    command = inside.exec("sh", "-c", "test -t 0 && exit 5", flags=flags, rows=24, columns=80)
    assert command.wait().code == 5


def test_the_traced_command_cannot_be_reached_before_it_has_its_filter(inside: Init) -> None:
    """It is made dumpable for the reaper only after the filter that was asked for is loaded."""
    ended = inside.shell("grep Seccomp: /proc/self/status", flags=EXPLAIN).wait()
    assert ended.stdout.split() == [b"Seccomp:", b"2"]


SPY = """
import os, signal, sys
marker, seen, found = sys.stdin.readline().strip().encode(), 0, 0
while seen < 5 and not found:
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/mem", "rb", 0) as memory, open(f"/proc/{name}/maps") as maps:
                if "sandboxd-init" not in os.readlink(f"/proc/{name}/exe"):
                    continue
                os.kill(int(name), signal.SIGSTOP)
                try:
                    parts = [line.split()[:2] for line in maps]
                    seen += bool(parts)
                    for part, access in parts:
                        start, end = (int(edge, 16) for edge in part.split("-"))
                        if access.startswith("rw"):
                            memory.seek(start)
                            found += marker in memory.read(end - start)
                finally:
                    os.kill(int(name), signal.SIGCONT)
        except OSError:
            pass
print(seen, found)
"""


def test_nothing_of_the_init_can_be_read_in_a_command_before_it_is_executed(inside: Init) -> None:
    """The init's memory has the key of its filter. An earlier command's words stand for it."""
    if Path("/proc/sys/kernel/yama/ptrace_scope").exists():
        pytest.skip("Yama may refuse the spy every look")
    marker = "only-in-the-memory-of-the-init"
    keep = wire.ExecFlag.KEEP_BACKGROUND
    spy = inside.python(SPY, flags=keep)
    spy.started()
    os.write(spy.stdin, f"{marker}\n".encode())
    while not select.select([spy.channel], [], [], 0)[0]:
        inside.exec("/bin/true", 1000 * "x" + marker, flags=keep).wait()
        assert inside.exec("/bin/true", flags=EXPLAIN | keep).wait().code == 0
    seen, found = spy.wait().stdout.split()[-2:]
    assert (int(seen) > 0, int(found)) == (True, 0)
