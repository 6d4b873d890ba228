"""A command has the caller's own pipes: their ends, SIGPIPE and order are the kernel's."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time

import pytest
from ctl import environment

from sandboxd_client import AsyncClient, Client

pytestmark = [pytest.mark.requires("bubblewrap")]


def executions(ctl) -> int:
    return json.loads(ctl("status", "--json").stdout)["executions"]


def test_a_reader_that_leaves_is_sigpipe_in_the_command(inside):
    process = inside.start("run", "--", "yes")
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    with process.stderr:
        assert process.wait(timeout=30) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""


def test_a_log_file_has_the_lines_of_both_streams_in_order(inside, tmp_path):
    script = "for i in 1 2 3 4; do echo o$i; echo e$i >&2; done"
    with open(tmp_path / "log", "w") as log:
        process = inside.start("run", "--", "sh", "-c", script, stdout=log, stderr=log)
        assert process.wait(timeout=30) == 0
    assert (tmp_path / "log").read_text() == "".join(f"o{i}\ne{i}\n" for i in range(1, 5))


def test_a_command_that_takes_a_left_reader_as_an_error_ends_as_it_likes(inside):
    script = "trap '' PIPE; while echo line 2>/dev/null; do :; done; exit 9"
    process = inside.start("run", "--", "sh", "-c", script)
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    with process.stderr:
        assert process.wait(timeout=30) == 9


def test_a_command_that_closes_its_stdout_ends_the_stream_while_it_runs(inside):
    script = "echo last; exec >&-; read go; exit 4"
    process = inside.start("run", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    with process.stdout, process.stderr:
        assert process.stdout.read() == b"last\n"  # the end came: nobody holds the pipe any more
        assert process.poll() is None
        process.stdin.write(b"go\n")
        process.stdin.close()
        assert process.wait(timeout=30) == 4


def test_a_command_that_closes_its_stdin_breaks_the_writers_pipe_while_it_runs(inside):
    script = "exec <&-; echo closed; sleep 60"
    process = inside.start("run", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    with process.stdout, process.stderr:
        assert process.stdout.readline() == b"closed\n"
        with pytest.raises(BrokenPipeError):
            _keep_writing(process.stdin)
        process.terminate()
        assert process.wait(timeout=30) == 143
    process.stdin.close()


def _keep_writing(stream) -> None:
    """sandboxctl lets go of the pipe when it hears that the command was started."""
    for _ in range(1000):
        stream.write(b"x")
        time.sleep(0.01)


def test_input_that_the_command_does_not_read_is_left_to_the_next(inside):
    words = inside.argv("run", "--", "dd", "bs=1", "count=4", "status=none")
    done = subprocess.run(
        ["sh", "-c", '"$@"; echo; cat', "sh", *words], input=b"mineyours", capture_output=True,
        timeout=60, cwd=inside.workspace, env=inside.env(),
    )  # fmt: skip
    assert done.stdout == b"mine\nyours"


@pytest.mark.parametrize("command", [("run",), ("sandbox run", "loop")])
@pytest.mark.parametrize("from_file", [True, False])
def test_a_loop_that_reads_its_lines_from_stdin_sees_them_all(inside, folder, command, from_file):
    (folder / "list").write_text("a\nb\nc\n")
    if command[0] != "run":
        created = inside("sandbox create", "--name", "loop")
        assert created.returncode == 0, created.stderr
    words = inside.argv(*command, "--", "sh", "-c", "echo item $0")
    script = 'while read line; do "$@" $line; done'
    script = f'{script} < "$0"' if from_file else f'cat "$0" | {script}'
    try:
        done = subprocess.run(
            ["sh", "-c", script, str(folder / "list"), *words], capture_output=True, timeout=60,
            cwd=inside.workspace, env=inside.env(),
        )  # fmt: skip
    finally:
        if command[0] != "run":
            inside("sandbox destroy", "loop")
    assert done.stdout == b"item a\nitem b\nitem c\n", done.stderr


def test_of_a_file_the_command_takes_what_it_reads_and_with_n_nothing(inside, folder):
    source = folder / "list"
    source.write_bytes(bytes(range(256)) * 4096)
    with source.open("rb") as file:
        some = inside.start("run", "--", "head", "-c", "1000", stdin=file)
        assert len(some.communicate(timeout=60)[0]) == 1000
        assert file.tell() == 1000
        none = inside.start("run", "-n", "--", "cat", stdin=file)
        assert none.communicate(timeout=60)[0] == b""
        assert file.tell() == 1000
        rest = inside.start("run", "--", "cat", stdin=file)
        assert rest.communicate(timeout=60)[0] == source.read_bytes()[1000:]


def test_both_streams_into_one_pipe_keep_their_exact_order(inside):
    script = "i=0; while [ $i -lt 500 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done"
    process = inside.start("run", "--", "sh", "-c", script, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=60)
    assert out.decode().split() == [f"{name}{i}" for i in range(500) for name in "oe"]


@pytest.fixture
def readable(folder):
    """A folder of the caller's that a command may read, and not write."""
    path = folder / "readable"
    path.mkdir()
    return str(path)


def test_a_denial_is_told_when_only_stdout_is_passed_on(inside, readable):
    script = f"echo out; touch {readable}/denied"
    done = inside("run", "--read", readable, "--", "sh", "-c", script)
    assert (done.stdout, done.returncode) == (b"out\n", 1)
    assert b"sandboxctl: perhaps denied: the command says: " in done.stderr


def test_with_one_pipe_for_both_denials_are_known_too(inside, readable):
    failing = inside.start(
        "run", "--read", readable, "--", "touch", f"{readable}/denied", stderr=subprocess.STDOUT
    )
    told = f"{readable}/denied could not be written: it is not in --write".encode()
    assert told in failing.communicate(timeout=60)[0]
    quiet = inside.start("run", "--quiet", "--", "false", stderr=subprocess.STDOUT)
    assert quiet.communicate(timeout=60)[0] == b""
    working = inside.start("run", "--", "true", stderr=subprocess.STDOUT)
    assert working.communicate(timeout=60)[0] == b""


def test_a_limit_on_output_holds_for_a_pipe(ctl, start_daemon):
    ctl.socket_path = start_daemon(config="[ceiling]\nmax_output_bytes = 100000\n").socket
    assert ctl("run", "--", "echo", "few").stdout == b"few\n"
    # An end of its own: where the limit does not hold, the test fails and memory is not filled.
    done = ctl("run", "--", "head", "-c", "3000000", "/dev/zero")
    assert done.returncode != 0
    assert len(done.stdout) <= 200_000
    assert b"max_output_bytes" in done.stderr


def test_exit_codes_with_pipes(inside, workspace):
    (workspace / "plain").write_text("x")
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.STDOUT}
    expected = {
        ("no-such-program-here",): 127, ("./plain",): 126, ("sh", "-c", "exit 7"): 7,
        ("sh", "-c", "kill -11 $$"): 139,
    }  # fmt: skip
    for argv, code in expected.items():
        process = inside.start("run", "--", *argv, **pipes)
        process.communicate(timeout=60)
        assert process.returncode == code
    process = inside.start("run", "--timeout", "300ms", "--", "sleep", "61", **pipes)
    process.communicate(timeout=60)
    assert process.returncode == 124


def test_a_killed_sandboxctl_ends_the_stream(inside):
    """The reader of the output sees its end, so nothing of the command is left."""
    process = inside.start("run", "--", "sh", "-c", "echo up; sleep 60; echo late")
    with process.stdout, process.stderr:
        assert process.stdout.readline() == b"up\n"
        process.kill()
        assert process.stdout.read() == b""
        process.wait()


# the clients


def reading(fd: int) -> tuple[threading.Thread, list[bytes]]:
    got: list[bytes] = []

    def read() -> None:
        with os.fdopen(fd, "rb") as stream:
            got.append(stream.read())

    thread = threading.Thread(target=read)
    thread.start()
    return thread, got


def test_the_blocking_client_passes_pipes(shared_daemon):
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    thread, got = reading(out_read)
    with Client(shared_daemon.socket) as client, os.fdopen(in_read, "rb") as stdin:
        with os.fdopen(in_write, "wb") as typing:
            typing.write(b"typed\n")
        fds = {"stdin": stdin, "stdout": out_write, "stderr": out_write}
        result = client.execute(["sh", "-c", "cat; echo err >&2; seq 1 100000"], fds=fds)
        os.close(out_write)
        thread.join()
        assert got == [b"typed\nerr\n" + "".join(f"{n}\n" for n in range(1, 100001)).encode()]
        assert (result.exit_code, result.stdout.bytes, result.stdout.data) == (0, 0, "")


def test_a_streaming_execution_and_a_detached_one_pass_pipes(shared_daemon):
    with Client(shared_daemon.socket) as client:
        for detached in (False, True):
            read, write = os.pipe()
            thread, got = reading(read)
            if detached:
                client.wait(client.start(["echo", "x"], fds={"stdout": write}).execution_id)
                os.close(write)
            else:
                with client.stream(["echo", "x"], fds={"stdout": write}) as execution:
                    os.close(write)
                    assert execution.wait().exit_code == 0
            thread.join()
            assert got == [b"x\n"]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_asynchronous_client_passes_pipes(shared_daemon, anyio_backend):
    import anyio

    results: dict[int, bytes] = {}

    async def run(client, n):
        read, write = os.pipe()
        thread, got = reading(read)
        await client.execute(["sh", "-c", f"echo {n}"], fds={"stdout": write})
        os.close(write)
        await anyio.to_thread.run_sync(thread.join)
        results[n] = got[0]

    async with AsyncClient(shared_daemon.socket) as client:
        async with anyio.create_task_group() as group:
            for n in range(6):
                group.start_soon(run, client, n)
        read, write = os.pipe()
        thread, got = reading(read)
        async with client.stream(["echo", "s"], fds={"stdout": write}) as execution:
            os.close(write)
            await execution.wait()
        thread.join()
    assert results == {n: f"{n}\n".encode() for n in range(6)}
    assert got == [b"s\n"]


def test_output_that_cannot_be_written_is_an_error(inside):
    with open("/dev/full", "wb") as full:
        done = inside.start("run", "--", "echo", "x", stdout=full)
        said = done.communicate()[1]
    assert done.returncode == 1
    assert b"error: the output could not be written: No space left on device" in said


def test_json_says_that_its_output_is_cut_off(inside):
    done = inside("run", "--json", "--", "head", "-c", str(9 << 20), "/dev/zero")
    (said,) = json.loads(done.stdout)["warnings"]
    assert "stdout is cut off" in said


def test_what_a_long_run_was_denied_is_told_after_its_last_line(inside):
    """The gate reports a refused host at once. The order is tried where that was printed before."""
    script = "sleep 2.5; getent hosts other.test; echo its last line >&2; exit 1"
    done = inside("run", "--net", "example.org", "--", "sh", "-c", script)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert lines[0] == "its last line"
    assert lines[1].startswith("sandboxctl: denied: other.test could not be reached")


@pytest.mark.parametrize(
    ("allowed", "attempt", "target", "after_s"),
    [
        (["--net", "example.org"], "getent hosts other.test", "other.test", 0.5),
        ([], "import socket; socket.getaddrinfo('other.test', 80)", "other.test", 0.5),
        ([], "import socket; socket.socket().connect_ex(('192.0.2.1', 80))", "192.0.2.1:80", 0.5),
        (["--net", "example.org"], "getent hosts other.test", "other.test", 2.0),  # an earlier one
    ],
)
def test_a_long_run_is_told_its_denials_as_they_occur(inside, allowed, attempt, target, after_s):
    """What is long is shortened, in a program that is else sandboxctl."""
    program = (
        "import sys; from sandboxd_client.cli import execute, main; "
        f"execute.LIVE_AFTER_S = {after_s}; sys.exit(main(sys.argv[1:]))"
    )
    if attempt.startswith("import"):
        attempt = f"python3 -c {shlex.quote(attempt)} 2>&-"
    script = f"sleep 1; {attempt}; sleep 4; echo its last line >&2; exit 1"
    words = ["run", *allowed, "--", "sh", "-c", script]
    env = environment(SANDBOXD_SOCKET=str(inside.socket_path))
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=inside.workspace, env=env,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"sandboxctl: denied: {target} could not be reached")
    assert lines[1] == "its last line"
    assert f"{target} could not be reached" not in "\n".join(lines[1:])
