"""What a child could inherit: descriptors, environment, and what a loader makes of variables."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.attacks import Box, Build, Victim, freely, plain_bwrap, python, weakest
from support.backends import running_backend
from support.processes import processes_below

pytestmark = pytest.mark.isolation

USE_DESCRIPTORS = python("""
    import stat
    found = []
    for number in range(3, 4096):
        try:
            mode = os.fstat(number).st_mode
        except OSError:
            continue
        found.append(number)
        if stat.S_ISDIR(mode):
            os.close(os.open("victim", os.O_WRONLY | os.O_TRUNC, dir_fd=number))
    worked(*found) if found else blocked("none")
""")


@pytest.fixture(scope="module")
def leaky_box(
    linux_backend: Box, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Box, Victim]]:
    """A daemon that was started with a folder open, as careless programs start theirs."""
    folder = tmp_path_factory.mktemp("leaky").resolve()
    victim = Victim(folder / "victim")
    leak = python("""
        folder = os.open(args[0], os.O_RDONLY)
        os.set_inheritable(folder, True)
        os.dup2(folder, 77)
        os.execvp(args[1], args[1:])
    """)
    with running_backend(linux_backend.backend, prefix=[*leak, str(folder)]) as daemon:
        box = Box(linux_backend.backend, daemon)
        yield box, victim
        box.close()


def test_descriptors_of_the_daemon_do_not_reach_a_command(
    leaky_box: tuple[Box, Victim],
) -> None:
    """Use every open descriptor; one of a folder allows writes outside."""
    box, victim = leaky_box
    folder = os.open(victim.path.parent, os.O_RDONLY)
    try:
        assert freely(USE_DESCRIPTORS, pass_fds=[folder]).worked
    finally:
        os.close(folder)
    assert victim.was_hit()
    inside = box.attack(USE_DESCRIPTORS)
    assert inside.blocked, inside.words
    assert victim.untouched


def test_output_is_not_a_file_that_can_be_reopened(box: Box, outside: Path) -> None:
    """Reopen stdout by /proc/self/fd: an append-only log is truncated, a terminal is read."""
    attack = python("""
        import stat
        for number in range(3):
            mode = os.fstat(number).st_mode
            if stat.S_ISREG(mode):
                os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_TRUNC)
                end(42, "worked")
            if os.isatty(number):
                worked("terminal")
        blocked("pipes")
    """)
    log = outside / "log"
    log.write_text("kept\n")
    with log.open("a") as append_only:
        done = subprocess.run(attack, stdin=subprocess.DEVNULL, stdout=append_only, check=False)
    assert done.returncode == 42
    assert "kept" not in log.read_text()
    assert box.attack(attack).blocked


REOPEN = python("""
    import fcntl
    what = args[0]
    if what == "read":
        try:
            os.read(os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK), 100)
        except BlockingIOError:
            pass
    elif what == "write":
        os.write(os.open("/proc/self/fd/0", os.O_WRONLY | os.O_NONBLOCK), b"planted")
    elif what == "flags":
        for fd in (0, 1):
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_NONBLOCK | os.O_DIRECT)
    else:
        for fd in (0, 1):
            fcntl.fcntl(fd, 1031, 4096)  # F_SETPIPE_SZ
""")


@dataclass(slots=True)
class CallersPipes:
    """Both ends of two pipes of the caller's; "for the consumer" waits in the second."""

    stdin: tuple[int, int]
    stdout: tuple[int, int]

    @property
    def state(self) -> list[tuple[int, int]]:
        fds = (self.stdin[0], self.stdout[1])
        return [(fcntl.fcntl(fd, fcntl.F_GETFL), fcntl.fcntl(fd, _GETPIPE_SZ)) for fd in fds]

    @property
    def waiting(self) -> list[bytes]:
        found = []
        for fd in (self.stdin[0], self.stdout[0]):
            os.set_blocking(fd, False)
            try:
                found.append(os.read(fd, 1000))
            except BlockingIOError:
                found.append(b"")
            os.set_blocking(fd, True)
        return found


_GETPIPE_SZ = 1032


@pytest.fixture
def pipes() -> Iterator[CallersPipes]:
    made = CallersPipes(os.pipe(), os.pipe())
    os.write(made.stdout[1], b"for the consumer")
    yield made
    for fd in (*made.stdin, *made.stdout):
        os.close(fd)


@pytest.mark.parametrize("what", ["read", "write", "flags", "size"])
@pytest.mark.parametrize("inside", [False, True], ids=["control", "sandbox"])
def test_pipes_of_the_caller_are_not_the_commands(
    box: Box, pipes: CallersPipes, what: str, inside: bool
) -> None:
    """Reopen a passed pipe in the other direction, or change it for those who share it."""
    before = pipes.state
    argv = [*REOPEN, what]
    if inside:
        with box.daemon.connect() as connection:
            params = {"argv": argv, "fds": {"stdin": 0, "stdout": 1}, "manifest": weakest()}
            fds = [pipes.stdin[0], pipes.stdout[1]]
            connection.call("execute", params, fds=fds)
    else:
        stdin, stdout = pipes.stdin[0], pipes.stdout[1]
        subprocess.run(argv, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, check=True)
    kept = (pipes.state, pipes.waiting) == (before, [b"", b"for the consumer"])
    assert kept == inside


def test_environment_of_the_daemon_is_nowhere(box: Box) -> None:
    """Look for a secret of the daemon's environment, also in the environments of the init."""
    attack = python("""
        seen = [repr(dict(os.environ))]
        for pid in (name for name in os.listdir("/proc") if name.isdigit()):
            for name in ("environ", "cmdline"):
                try:
                    seen.append(open(f"/proc/{pid}/{name}", errors="replace").read())
                except OSError:
                    pass
        # Put together here, so that our own command line does not hold it.
        worked() if any("-".join(args) in text for text in seen) else blocked("not seen")
    """)
    words = ["known", "to", "the", "daemon", "only"]
    assert freely(attack, *words, env={"TEST_SECRET": "-".join(words)}).worked
    for manifest in ({}, weakest()):
        assert box.attack(attack, *words, manifest=manifest).blocked


def _shown(secret: str, pid: int) -> bool:
    """Whether it stands on a command line of this process or below it, as in `ps`."""
    pids = [pid, *(process.pid for process in processes_below(pid))]
    lines = [Path(f"/proc/{pid}/cmdline") for pid in pids]
    return any(secret in line.read_text(errors="replace") for line in lines if line.exists())


@pytest.mark.requires("bubblewrap")
def test_environment_of_a_command_is_on_no_command_line(box: Box) -> None:
    """Variables passed as bwrap's own arguments show in `ps` to every user of the machine."""
    secret = f"secret-of-a-command-{os.getpid()}"
    plain = [*plain_bwrap(), "--unshare-pid", "--die-with-parent"]
    token = ["--setenv", "TOKEN", secret, "--", "sh", "-c", "echo; exec sleep 60"]
    with subprocess.Popen([*plain, *token], stdout=subprocess.PIPE) as control:
        assert control.stdout is not None
        control.stdout.readline()
        shown = _shown(secret, control.pid)
        control.kill()
        assert shown
    with box.daemon.connect() as connection:
        params = {"argv": ["sh", "-c", "echo; sleep 60"], "stream": True, "execution_id": "env"}
        request = connection.start("execute", {**params, "manifest": weakest(env={"T": secret})})
        connection.notification("execution/output", execution_id="env")
        shown = _shown(secret, box.daemon.pid)
        connection.call("execution/cancel", {"execution_id": "env"})
        assert connection.result(request)["outcome"] == "cancelled"
    assert not shown


@pytest.mark.requires("bubblewrap")
def test_preloaded_library_is_loaded_by_the_command_only(
    box: Box, build: Build, workspace: Path
) -> None:
    """LD_PRELOAD in the command's environment: nothing that builds the sandbox may load it."""
    library = build("preload", "-shared", "-fPIC")[0]
    note = workspace / "note"
    env = {"LD_PRELOAD": library, "NOTE": str(note), "PATH": "/usr/bin:/bin"}
    plain = plain_bwrap(workspace, Path(library).parent)
    subprocess.run([*plain, "/usr/bin/true"], env=env, check=True)
    assert note.read_text().split() == ["bwrap", "true"]
    note.unlink()
    ran = box.run("/usr/bin/true", manifest=weakest(workspace, env=env, fs_read_allow=[library]))
    assert ran.exited(0)
    assert note.read_text().split() == ["true"]


def test_programs_in_the_commands_path_are_not_run_outside(box: Box, workspace: Path) -> None:
    """PATH in the command's environment with a bwrap, a setpriv and a python of the attacker's."""
    note = workspace / "note"
    for name in ("bwrap", "setpriv", "python3", "sandboxd-init", "docker", "true"):
        program = workspace / name
        program.write_text(f'#!/bin/sh\necho "{name} $(readlink /proc/self/ns/mnt)" >> {note}\n')
        program.chmod(0o755)
    env = {"PATH": str(workspace)}
    subprocess.run(["env", "-i", f"PATH={workspace}", "bwrap"], check=True)
    host = os.readlink("/proc/self/ns/mnt")
    assert note.read_text().split() == ["bwrap", host] or note.read_text() == "bwrap \n"
    note.unlink()
    ran = box.run("true", manifest=weakest(workspace, env=env))
    assert ran.exited(0), ran.raw
    assert [line.split()[0] for line in note.read_text().splitlines()] == ["true"]


def test_program_without_a_file_stays_in_the_sandbox(
    box: Box, build: Build, victim: Victim
) -> None:
    """memfd_create and execve: a program that no path rule has ever seen."""
    attack = python("""
        program = os.memfd_create("x")
        os.write(program, open("/usr/bin/python3", "rb").read())
        code = "import sys; open(sys.argv[1], 'w').write('changed')"
        child = os.fork()
        if child == 0:
            os.execve(program, ["python3", "-I", "-S", "-c", code, args[0]], {})
        worked() if os.waitstatus_to_exitcode(os.wait()[1]) == 0 else blocked("refused")
    """)
    assert freely(attack, victim).worked
    assert victim.was_hit()
    manifest = weakest(fs_read_allow=[str(victim.path.parent)])
    assert box.attack(attack, victim, manifest=manifest).blocked
    assert victim.untouched
