"""Which of sandboxctl's own descriptors go to the command, and which are relayed."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys

import pytest
from ctl import environment


def asked(ctl, fake, *arguments, script="true", **streams):
    """What `execute` was asked for by a run with these streams."""
    process = ctl.start("run", *arguments, "--", "sh", "-c", script,
                        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
                           "stderr": subprocess.DEVNULL, **streams})  # fmt: skip
    process.communicate(timeout=60)
    assert process.returncode == 0
    return next(m["params"] for m in fake.seen if m["method"] == "execute")


def test_pipes_are_passed_on_and_stderr_is_not(ctl, fake):
    every = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    params = asked(ctl, fake, **every)
    assert params["fds"] == {"stdin": 0, "stdout": 1}
    assert "stdin_open" not in params


def test_one_pipe_for_both_is_passed_on_for_both(ctl, fake):
    params = asked(ctl, fake, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert params["fds"] == {"stdout": 0, "stderr": 0}


@pytest.mark.parametrize(
    ("user", "params"),
    [("", "{'fds': {'stdout': 0, 'stderr': 0}}"), ("lambda: 54321", "{'stderr': 'stdout'}")],
)
def test_one_pipe_of_another_user_is_relayed_in_order(user, params):
    """The daemon cannot open it anew, so it would read no denials there."""
    code = (
        "import os\nfrom sandboxd_client.cli import streams\n"
        f"os.geteuid = {user or 'os.geteuid'}\n"
        "print(streams.Streams(pty=False, input=False, output=True).params())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=environment(), text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == params


@pytest.mark.parametrize(
    ("flags", "merges"),
    [((), True), (("--sandbox", f"sb-{'0' * 32}"), True), (("--json",), False)],
)
def test_one_file_for_both_is_one_stream(ctl, fake, folder, flags, merges):
    """In the result of --json the streams are apart."""
    with open(folder / "log", "w") as log:
        params = asked(ctl, fake, *flags, stdout=log, stderr=log)
    assert (params.get("stderr") == "stdout") is merges


def test_two_files_stay_apart(ctl, fake, folder):
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        params = asked(ctl, fake, script="echo o; echo e >&2", stdout=out, stderr=err)
    assert "stderr" not in params
    assert (folder / "err").read_text() == "e\n"


def test_a_file_is_relayed_and_as_input_through_a_pipe_of_ours(ctl, fake, folder):
    (folder / "in").write_text("typed")
    with open(folder / "in") as source, open(folder / "out", "w") as target:
        params = asked(ctl, fake, script="cat", stdin=source, stdout=target)
    assert params["fds"] == {"stdin": 0}
    assert "stdin_open" not in params
    assert (folder / "out").read_text() == "typed"


def test_a_terminal_is_not_passed_on(ctl, fake, screen):
    shown = screen(ctl.argv("run", "--no-pty", "--", "echo", "shown"))
    shown.until(b"shown")
    assert shown.end() == 0
    assert "fds" not in fake.seen[-1]["params"]


def test_captured_output_is_not_passed_on(ctl, fake):
    params = asked(ctl, fake, "--json", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert params["fds"] == {"stdin": 0}


def test_no_output_is_passed_into_a_sandbox_that_lives_on(ctl, fake):
    """What a command leaves running there must not hold the caller's pipes. Its input ends with
    the command."""
    every, sandbox = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE), f"sb-{'0' * 32}"
    params = asked(ctl, fake, "--sandbox", sandbox, **every)
    assert params["fds"] == {"stdin": 0}
    assert params["sandbox"] == sandbox
    assert not {"manifest", "preset", "workspace", "backend"} & set(params)


@pytest.mark.parametrize(("family", "kind", "passed"), [
    (socket.AF_UNIX, socket.SOCK_STREAM, True),
    (socket.AF_UNIX, socket.SOCK_DGRAM, False),
    (socket.AF_INET, socket.SOCK_STREAM, False),
])  # fmt: skip
def test_a_socket_is_passed_on_only_if_it_cannot_be_connected_anew(ctl, fake, family, kind, passed):
    if family == socket.AF_UNIX:
        ours, theirs = socket.socketpair(family, kind)
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
    with ours, theirs:
        params = asked(ctl, fake, script="echo said", stdout=theirs)
        assert ours.recv(100) == b"said\n"
    assert ("fds" in params) is passed


def test_other_refusals_are_not_tried_again(ctl, fake, refuse):
    def refusing(connection, params, id):
        raise refuse(-32002, "no", kind="PolicyNotSupported", field="network")

    fake.handlers["execute"] = refusing
    assert ctl("run", "--", "true").returncode == 125
    assert fake.methods().count("execute") == 1


@pytest.mark.parametrize(("flags", "inside"), [((), "pipe"), (("--pty",), "terminal")])
def test_where_a_terminal_takes_stderr_too_what_is_redirected_goes_first(
    ctl, fake, refuse, screen, workspace, flags, inside
):
    def refusing(connection, params, id):
        if params.get("pty", {}).get("stderr") == "pipe":
            raise refuse(-32002, "no", kind="PolicyNotSupported", field="pty.stderr")
        return fake.execute(connection, params, id)

    fake.handlers["execute"] = refusing
    script = "echo err >&2; test -t 1 && echo terminal || echo pipe"
    words = ctl.argv("run", *flags, "--", "sh", "-c", script)
    shown = screen(["sh", "-c", '"$@" 2>err.log', "sh", *words])
    assert shown.end() == 0
    said = (workspace / "err.log").read_bytes()
    assert inside.encode() in shown.shown
    assert (b"err\n" in said) is (inside == "pipe")
    assert b"your redirected stderr" in said


def test_an_interrupt_is_the_commands_though_nobody_said_that_it_was_started(ctl, fake):
    """Its output goes past us, so the caller may react to it before we hear of its start."""
    fake.handlers["execute"] = lambda c, p, i: fake.execute(c, {**p, "stream": False}, i)
    script = "trap 'echo got; exit 9' INT; echo up; while :; do sleep 0.1; done"
    process = ctl.start("run", "--", "sh", "-c", script)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == b"got\n"
    assert process.returncode == 9


def test_a_descriptor_that_is_closed_does_not_cost_the_connection(fake):
    from sandboxd_client import Client

    # The last number: any lower one may be somebody's by then.
    nobodys = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1
    with Client(fake.path) as client:
        with pytest.raises(OSError, match="Bad file descriptor"):
            client.execute(["true"], fds={"stdout": nobodys})
        assert client.execute(["true"]).exit_code == 0
