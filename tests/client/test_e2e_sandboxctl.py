"""`sandboxctl` and the real daemon, from nothing: it is started by the first command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from ctl import ROOT, Ctl

from sandboxd_client import AsyncClient, Client, bytes_of
from sandboxd_client.cli.table import COMMANDS
from sandboxd_proto.errors import ExecFailed, NotFound, PathDenied
from sandboxd_proto.messages.notifications import Exited, Output, Started


@pytest.fixture
def fresh(ctl, folder):
    """sandboxctl with a socket on which nothing listens yet."""
    ctl.socket_path = str(folder / "run" / "sandboxd.sock")
    ctl.extra = []
    yield ctl
    ctl("shutdown", "--force")
    assert not _listens(ctl)


@pytest.fixture(scope="module")
def one_socket():
    """Nothing listens before the first test; the daemon that it starts serves the others, too."""
    with tempfile.TemporaryDirectory(prefix="sbxc-") as name:
        ctl = Ctl(f"{name}/run/sandboxd.sock", Path(name))
        yield ctl.socket_path
        ctl("shutdown", "--force")
        assert not _listens(ctl)


@pytest.fixture
def real(ctl, one_socket):
    """sandboxctl that starts the daemon if none runs."""
    ctl.socket_path = one_socket
    ctl.extra = []
    return ctl


@pytest.fixture
def client(real):
    assert real("run", "--", "true").returncode == 0
    with Client(real.socket_path) as client:
        yield client


def _listens(ctl) -> bool:
    try:
        Client(ctl.socket_path).close()
    except Exception:
        return False
    return True


def daemon_pid(ctl) -> int:
    return json.loads(ctl("status", "--json").stdout)["pid"]


def running(marker: str) -> list[str]:
    """Processes of this machine, in whatever namespace, whose command line has the marker."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if words[:1] == [b"sleep"] and marker.encode() in words:
            found.append(pid)
    return found


def appeared(marker: str) -> bool:
    deadline = time.monotonic() + 10
    while not running(marker) and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(running(marker))


def gone(marker: str) -> bool:
    deadline = time.monotonic() + 10
    while running(marker) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not running(marker)


def test_the_first_run_starts_the_daemon_and_behaves_like_the_command(fresh, workspace):
    done = fresh(
        "run", "--", "sh", "-c", "cat; echo err >&2; echo x > made; pwd; exit 7", input=b"in\n"
    )
    assert done.stdout == f"in\n{workspace}\n".encode()
    started, err = done.stderr.splitlines()
    assert started.startswith(b"sandboxctl: no daemon listened on ")
    assert (err, done.returncode) == (b"err", 7)
    assert (workspace / "made").read_text() == "x\n"


def test_outside_the_workspace_nothing_is_written_and_it_is_said(real, folder):
    target = folder / "outside"
    target.mkdir()
    line = f"echo x > {target}/f"
    subprocess.run(["sh", "-c", line], check=True)  # the control: without a sandbox it works
    (target / "f").unlink()
    done = real("run", "--", "sh", "-c", line)
    assert done.returncode != 0
    assert not (target / "f").exists()
    allowed = real("run", "--write", str(target), "--", "sh", "-c", line)
    assert (allowed.returncode, allowed.stderr) == (0, b"")
    assert (target / "f").read_text() == "x\n"


def test_exactly_the_callers_usual_variables_reach_the_command(real):
    done = real("run", "--env", "WANTED", "--", "env", SECRET="s", WANTED="w", LC_TIME="C")
    names = {line.partition("=")[0] for line in done.stdout.decode().splitlines()}
    assert {"PATH", "HOME", "TERM", "LC_TIME", "WANTED"} <= names
    assert not {"SECRET", "PYTHONPATH"} & names


def test_git_without_a_terminal_asks_for_a_message_instead_of_waiting_in_vi(real, workspace):
    who = {
        f"GIT_{role}_{what}": "me" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    done = real("run", "--timeout", "60s", "--", "git", "commit", "--allow-empty", **who)
    assert done.returncode == 1
    assert b"erminal is dumb" in done.stderr
    kept = real("run", "-e", "TERM", "--", "printenv", "TERM")
    assert kept.stdout == b"xterm\n"


def test_exit_codes(real, workspace):
    (workspace / "plain").write_text("x")
    assert real("run", "--", "no-such-program-here").returncode == 127
    assert real("run", "--", "./plain").returncode == 126
    assert real("run", "--timeout", "300ms", "--", "sleep", "61").returncode == 124
    assert real("run", "--", "sh", "-c", "kill -11 $$").returncode == 139
    assert real("run", "--read", "/no/such/path", "--", "true").returncode == 125


def test_binary_input_and_output_are_unchanged(real):
    data = os.urandom(3_000_000)
    assert real("run", "--", "cat", input=data).stdout == data


def test_interrupts_and_termination(real):
    script = "trap 'echo got; exit 9' INT; echo up; while :; do sleep 0.1; done"
    process = real.start("run", "--", "sh", "-c", script)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == b"got\n"
    assert process.returncode == 9
    process = real.start("run", "--", "sh", "-c", "trap '' INT; echo up; sleep 7531")
    assert process.stdout.readline() == b"up\n"
    assert appeared("7531")
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert gone("7531")
    process = real.start("run", "--", "sh", "-c", "echo up; sleep 7532")
    process.stdout.readline()
    assert appeared("7532")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert gone("7532")


def test_a_killed_sandboxctl_leaves_nothing_running(real):
    process = real.start("run", "--", "sh", "-c", "echo up; sleep 7533")
    process.stdout.readline()
    assert appeared("7533")
    process.kill()
    process.communicate()
    assert gone("7533")


def test_a_reader_that_leaves_ends_the_command(real):
    process = real.start("run", "--", "sh", "-c", "while :; do echo line; done")
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.wait(timeout=30) == 141
    process.stderr.close()
    assert json.loads(real("status", "--json").stdout)["executions"] == 0


def test_a_terminal(real, screen):
    shown = screen(real.argv("run", "--", "sh", "-c", "stty size; read x; echo got=$x; exit 3"))
    shown.until(b"31 97")
    shown.until_raw()
    shown.type(b"typed\r")
    shown.until(b"got=typed")
    assert shown.end() == 3
    assert shown.mode() == shown.before


def test_a_redirected_stderr_is_the_commands_own_beside_a_terminal(real, screen, workspace):
    script = "test -t 0 && test -t 1 && echo both; test -t 2 || echo apart; echo err >&2; exit 3"
    words = real.argv("run", "--", "sh", "-c", script)
    shown = screen(["sh", "-c", '"$@" 2>err.log', "sh", *words])
    assert shown.end() == 3
    assert shown.shown == b"both\r\napart\r\n"
    assert (workspace / "err.log").read_bytes() == b"err\n"
    shown = screen(["sh", "-c", '"$@" 2>err.log', "sh", *real.argv("run", "--", "touch", "/usr/x")])
    assert shown.end() == 1
    said = (workspace / "err.log").read_text()
    assert said.startswith("touch: ")
    assert "perhaps denied" in said


def test_a_shell_keeps_its_prompt_where_stderr_is_redirected(real, screen):
    shown = screen(["sh", "-c", '"$@" 2>/dev/null', "sh", *real.argv("shell")])
    shown.until(b"(sandbox)")
    shown.type(b"exit\r")
    assert shown.end() == 0


def test_a_resize_and_one_interrupt_in_a_terminal(real, screen):
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done"
    shown = screen(real.argv("run", "--", "sh", "-c", script))
    shown.until(b"ready")
    shown.until_raw()
    shown.resize(40, 111)
    shown.until(b"40 111")
    shown.type(b"\x03")
    assert shown.end() == -signal.SIGINT
    assert shown.mode() == shown.before


def test_a_second_interrupt_in_a_terminal_kills(real, screen):
    shown = screen(real.argv("run", "--", "sh", "-c", "trap '' INT; echo ready; sleep 7534"))
    shown.until(b"ready")
    shown.until_raw()
    shown.type(b"\x03")
    shown.until(b"^C")
    assert appeared("7534")
    shown.type(b"\x03")
    assert shown.end() == -signal.SIGINT
    assert shown.mode() == shown.before
    assert gone("7534")


def test_twenty_at_once_make_one_daemon(fresh):
    script = "echo done"
    processes = [fresh.start("run", "--", "sh", "-c", script) for _ in range(20)]
    results = [(p.communicate(timeout=60)[0], p.returncode) for p in processes]
    assert results == [(b"done\n", 0)] * 20
    listening = os.path.join(os.path.dirname(fresh.socket_path), "sandboxd.log")
    with open(listening) as file:
        assert file.read().count("listening") == 1


def test_a_socket_that_was_named_is_named_where_no_daemon_listens_on_it(fresh, tmp_path):
    nowhere = fresh.socket_path = f"{tmp_path}/nope.sock"
    for words in (["status"], ["ps"], ["sandbox list"], ["logs", "x"]):
        done = fresh(*words)
        said = (done.stdout + done.stderr).decode()
        assert nowhere in said
        assert "listens on" in said
        assert "by itself" not in said, "whether a start there works is not known"


def test_status_doctor_check_and_shutdown(fresh):
    none = fresh("status")
    assert (none.returncode, none.stderr) == (125, b"")
    assert b"none listens on this socket" in none.stdout
    assert fresh.socket_path.encode() in none.stdout
    assert "error" in json.loads(fresh("status", "--json").stdout)
    assert not _listens(fresh), "status starts none"
    assert fresh("run", "--", "true").returncode == 0
    status = json.loads(fresh("status", "--json").stdout)
    assert status["backend"] == "bubblewrap"
    done = fresh("doctor")
    assert done.returncode == 0
    assert b"ok   backend bubblewrap" in done.stdout
    checked = json.loads(fresh("check", "--json").stdout)
    assert str(fresh.workspace) in checked["plan"]["fs_write_allow"]
    pid = daemon_pid(fresh)
    assert fresh("shutdown").returncode == 0
    assert b"\nold log " in fresh("status").stdout
    assert not _listens(fresh)
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}")


def test_detached_executions_can_be_listed_waited_for_and_killed(real, client, workspace):
    options = {"preset": "workspace-write", "workspace": str(workspace)}
    short = client.start(["sh", "-c", "echo kept"], **options)
    assert client.wait(short.execution_id).stdout.data == "kept\n"
    long = client.start(["sleep", "7535"], **options)
    assert appeared("7535")
    client.close()
    assert long.execution_id in real("ps").stdout.decode()
    assert real("kill", long.execution_id).returncode == 0
    assert gone("7535")


def test_the_blocking_client(client, workspace):
    options = {"preset": "workspace-write", "workspace": str(workspace)}
    result = client.execute(["sh", "-c", r"printf '\377'; exit 3"], **options)
    assert (bytes_of(result.stdout), result.exit_code, result.backend) == (b"\xff", 3, "bubblewrap")
    with pytest.raises(ExecFailed):
        client.execute(["no-such-program-here"], **options)
    with pytest.raises(PathDenied):
        client.execute(["true"], manifest={"fs_read_allow": ["relative"]})
    with pytest.raises(NotFound):
        client.execution_cancel("no-such-one")
    with client.stream(["cat"], stdin_open=True, **options) as execution:
        execution.write("hello")
        execution.close_stdin()
        events = list(execution)
    assert [type(event) for event in events] == [Started, Output, Exited]
    with client.stream(["sleep", "7536"], **options) as execution:
        assert appeared("7536")
    assert execution.result.outcome == "cancelled"
    assert gone("7536")
    assert "execute" in {method["name"] for method in client.discover()["methods"]}
    assert client.initialize().protocol == 1


@pytest.mark.anyio
async def test_the_asynchronous_client(real, workspace, anyio_backend_name):
    import anyio

    options = {"preset": "workspace-write", "workspace": str(workspace)}
    assert real("run", "--", "true").returncode == 0
    outputs = {}
    async with AsyncClient(real.socket_path) as client:

        async def run(n):
            result = await client.execute(["sh", "-c", f"echo {n}"], **options)
            outputs[n] = result.stdout.data

        async with anyio.create_task_group() as group:
            for n in range(8):
                group.start_soon(run, n)
        with anyio.move_on_after(0.5):
            await client.execute(["sleep", "7537"], **options)
        async with client.stream(["seq", "1", "100000"], **options) as execution:
            parts = [bytes_of(e) async for e in execution if isinstance(e, Output)]
    assert outputs == {n: f"{n}\n" for n in range(8)}
    assert b"".join(parts) == "".join(f"{n}\n" for n in range(1, 100001)).encode()
    assert gone("7537")


@pytest.fixture
def anyio_backend():
    return "asyncio"


NEEDING = [
    name
    for name, command in COMMANDS.items()
    if any(flag.name == "--socket" for flag in command.flags)
    and name not in ("socket", "kept accept")  # which asks it once it knows what to accept
]


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_every_command_that_needs_the_daemon_says_that_it_is_inside(inside, backend):
    if inside("check", "--backend", backend).returncode:
        pytest.skip(f"{backend} does not work here")
    operands = {"sandbox forward": "x 1", "plan": "on", "sandbox run": "x true", "grants": "",
                "top": "--once", "approve": "--list", "dashboard": "--no-open"}  # fmt: skip
    ctl = f"{sys.executable} -m sandboxd_client.cli"
    lines = []
    for name in NEEDING:
        words = operands.get(name, "x" if COMMANDS[name].operand else "")
        lines.append(f"echo '== {name}'; {ctl} {name} {words}")
    flags = ("--backend", backend, "--read", str(ROOT), "--read", sys.base_prefix)
    flags += ("-e", f"PYTHONPATH={inside.env()['PYTHONPATH']}")
    done = inside("run", *flags, "-c", "exec 2>&1; " + "; ".join(lines))
    said = [part.splitlines() for part in done.stdout.decode().split("== ")[1:]]
    assert [lines[0] for lines in said] == NEEDING
    wrong = [lines for lines in said if "no daemon can be reached from there" not in str(lines[1:])]
    assert wrong == []
