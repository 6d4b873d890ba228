"""`run --detach`, `ps`, `logs`, `attach`, `kill` by the beginning of an ID, `restart`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from support.requirements import require

from sandboxd.policy.mounts.cache_notes import cache_name
from sandboxd_client import Client
from sandboxd_client.cli.parse import UsageError
from sandboxd_client.cli.prefix import unique
from sandboxd_proto.errors import NotFound


@pytest.fixture
def own(ctl, start_daemon):
    """sandboxctl with a daemon that no other test uses."""
    ctl.socket_path = start_daemon().socket
    return ctl


def test_a_detached_command_is_found_read_and_waited_for(own):
    script = "echo one; echo two >&2; exit 4"
    done = own("run", "--detach", "--name", "build", "-c", script)
    assert (done.stdout, done.returncode) == (b"build\n", 0)
    attached = own("attach", "build")
    assert (attached.stdout, attached.returncode) == (b"one\n", 4), attached.stderr
    assert b"two\n" in attached.stderr
    logs = own("logs", "build")
    assert (logs.stdout, logs.returncode) == (b"one\n", 0)


def test_ps_shows_what_every_client_runs_and_kill_takes_a_beginning(own):
    with Client(own.socket_path) as other, other.stream(["sleep", "600"], timeout="none"):
        made = own("run", "--detach", "sleep", "601").stdout.decode().strip()
        shown = own("ps").stdout.decode()
        assert "sleep 600" in shown
        assert f"{made} detached" in shown
        assert own("kill", made[:12]).returncode == 0
        left = json.loads(own("ps", "--json").stdout)["executions"]
        assert [item["argv"] for item in left] == [["sleep", "600"]]


def test_ps_all_lists_what_has_ended_and_its_beginning_is_enough(own):
    made = own("run", "--detach", "-c", "echo said; exit 3").stdout.decode().strip()
    own("logs", "--follow", made)
    for name, words in (
        ("killed", ["-c", "kill -9 $$"]),
        ("late", ["--timeout", "1", "sleep", "9"]),
    ):
        own("run", "--detach", "--name", name, *words)
        own("logs", "--follow", name)
    assert b"nothing runs; --all lists what has ended" in own("ps").stderr
    shown = own("ps", "--all").stdout.decode().splitlines()
    assert [line.split()[:2] for line in shown[1:]] == [
        [made, "exit"], ["killed", "signal"], ["late", "timeout"],
    ]  # fmt: skip
    assert " exit 3 " in shown[1]
    assert own("logs", made[:12]).stdout == b"said\n"
    assert b"has ended already" in own("kill", made[:12]).stderr
    with Client(own.socket_path) as client:
        assert client.execution_list().executions == []
        found = client.execution_list(ended=True).executions
    assert [(item.state, item.outcome, item.exit_code) for item in found] == [
        ("ended", "exited", 3), ("ended", "signaled", None), ("ended", "timeout", None),
    ]  # fmt: skip


def test_a_name_is_typed_whole(own):
    for name in ("job", "job-2"):
        own("run", "--detach", "--name", name, "sleep", "600")
    done = own("kill", "jo")
    assert (done.returncode, b"did you mean job or job-2?" in done.stderr) == (125, True)
    assert own("kill", "job").stderr == b"sandboxctl: ended job\n"
    again = own("kill", "job")
    assert (again.returncode, b"has ended already" in again.stderr) == (125, True)
    assert b"did you mean job-2?" in own("kill", "job-").stderr
    assert b"job-2" in own("ps").stdout
    assert own("kill", "--quiet", "job-2").stderr == b""


def test_a_sandboxs_name_is_typed_whole(own):
    made = own("sandbox create", "--name", "web").stdout.decode().strip()
    for words in (["sandbox destroy", "we"], ["sandbox run", "we", "true"]):
        done = own(*words)
        assert (done.returncode, b"did you mean web?" in done.stderr) == (125, True)
    assert own("sandbox destroy", made[3:7]).returncode == 0


@pytest.mark.parametrize("typed", ["3f2a", "ex-3f2a", "ctl-7-ab0", "7-ab"])
def test_the_beginning_of_a_generated_id_is_enough(typed):
    known = ["ex-3f2a" + 28 * "0", "ctl-7-ab0123456789", "server-a", "3f"]
    assert unique(typed, known) in known[:2]


def test_a_beginning_of_two_ids_is_refused():
    with pytest.raises(UsageError, match="the beginning of 2 IDs"):
        unique("3f2a", [f"ex-3f2a{28 * digit}" for digit in "01"])
    with pytest.raises(NotFound, match="nothing is called 'ex-3f'"):
        unique("ex-3f", [f"ex-3f2a{28 * digit}" for digit in "01"])


def test_the_same_name_twice_is_refused(own):
    own("run", "--detach", "--name", "one", "sleep", "600")
    again = own("run", "--detach", "--name", "one", "true")
    assert again.returncode == 125
    assert b"is running" in again.stderr


def test_leaving_does_not_end_it(own):
    own("run", "--detach", "--name", "stays", "-c", "echo up; sleep 600")
    with own.start("attach", "stays") as attached:
        assert attached.stdout.readline() == b"up\n"
        attached.send_signal(2)
        _, said = attached.communicate(timeout=60)
    assert b"it goes on" in said
    assert "stays" in own("ps").stdout.decode()


def test_restart_asks_before_it_ends_anything(ctl, folder):
    ctl.socket_path, ctl.extra = str(folder / "run" / "d.sock"), []
    try:
        started = b"no daemon listened on %s; started one there" % ctl.socket_path.encode()
        done = ctl("run", "--", "true")
        assert started in done.stderr, "a mistyped --socket is noticed"
        assert ctl("status").stderr == b""
        ctl("run", "--detach", "--name", "busy", "sleep", "600")
        before = json.loads(ctl("status", "--json").stdout)["pid"]
        refused = ctl("restart")
        assert refused.returncode == 125
        assert b"1 command would end with the daemon" in refused.stderr
        broken = folder / "broken.toml"
        broken.write_text('backend = "bublewrap"\n')
        refused = ctl("restart", "--force", SANDBOXD_CONFIG=str(broken))
        assert b"a new daemon would not start" in refused.stderr
        assert json.loads(ctl("status", "--json").stdout)["pid"] == before, "the old one is there"
        assert ctl("restart", "--force").returncode == 0
        assert json.loads(ctl("status", "--json").stdout)["pid"] != before
    finally:
        ctl("shutdown", "--force")


def test_without_a_flag_the_longest_timeout_of_the_config_is_asked_for(ctl, start_daemon):
    ctl.socket_path = start_daemon(config="[ceiling]\nmax_timeout_secs = 600\n").socket
    done = ctl("run", "-c", "cat", input=b"typed")
    assert (done.stdout, done.returncode) == (b"typed", 0), done.stderr
    assert ctl("run", "--detach", "--name", "d", "true").stdout == b"d\n"
    assert b"600" in ctl("check", "--json").stdout
    assert b"refused" not in ctl("audit").stdout, "the trail has what the user caused"
    refused = ctl("run", "--timeout", "1h", "true")
    assert (refused.returncode, b"max_timeout_secs" in refused.stderr) == (125, True)


def test_a_line_of_shell_and_short_flags(inside):
    done = inside("run", "-q", "-e", "WORD=x", "-c", "echo $WORD $1 | tr a-z A-Z", "sh", "arg")
    assert done.stdout == b"X ARG\n"


def test_variables_of_the_caller_are_passed_on_demand(inside):
    env = {"PLAIN": "p", "MY_TOKEN": "secret", "AWS_X": "a"}
    everything = inside("run", "--env-all", "--", "env", **env).stdout.decode()
    assert "PLAIN=p\n" in everything
    assert "secret" not in everything
    some = inside("run", "--env-pass", "AWS_*,MY_TOKEN", "--", "env", **env).stdout.decode()
    assert "AWS_X=a\n" in some
    assert "MY_TOKEN=secret\n" in some
    assert "PLAIN" not in some


def test_ctrl_z_stops_and_fg_continues(inside, screen):
    shown = screen(["bash", "--norc", "-i"])
    line = " ".join(inside.argv("run", "--", "sh", "-c", "'echo ready; cat'"))
    shown.type(f"{line}\n".encode())
    shown.until(b"ready\r\n")
    shown.until_raw()
    shown.type(b"\x1a")
    shown.until(b"Stopped")
    shown.type(b"fg\n")
    shown.until_raw()
    shown.type(b"again\n")
    shown.until(b"again\r\nagain")


def test_a_job_that_fg_brings_to_the_foreground_reads_what_is_typed(inside, screen):
    """The shell sends no signal to one that was running, from the start or after Ctrl-Z and bg."""
    shown = screen(["bash", "--norc", "-i"])
    line = " ".join(inside.argv("run", "--", "sh", "-c", "'echo ready; cat'"))
    shown.type(f"{line} &\n".encode())
    shown.until(b"ready\r")
    for typed in (b"first", b"second"):
        shown.type(b"fg\n")
        shown.until_raw()
        shown.type(typed + b"\n")
        shown.until(typed + b"\r\n" + typed)
        shown.type(b"\x1a")
        shown.until(b"Stopped")
        shown.shown = b""
        shown.type(b"bg; echo in''side\n")
        shown.until(b"inside\r\n")


def test_ctrl_z_among_other_keys_stops_it(inside, screen):
    shown = screen(["bash", "--norc", "-i"])
    line = " ".join(inside.argv("run", "--", "sh", "-c", "'echo ready; cat'"))
    shown.type(f"{line}\n".encode())
    shown.until(b"ready\r\n")
    shown.until_raw()
    shown.type(b"a\r\x1a")
    shown.until(b"Stopped")


def test_a_background_job_that_takes_the_screen_is_stopped(inside, screen):
    require("vim")
    (inside.workspace / "note").write_text("written\n" * 99)
    shown = screen(["bash", "--norc", "-i"])
    line = " ".join(inside.argv("run", "--", "vim", "-u", "NONE", "-n", "note"))
    shown.type(f"set -b; {line} &\n".encode())
    shown.until(b"Stopped")
    shown.type(b"bg\n")
    shown.until(b"Stopped", count=2)
    assert b"\x1b[?1049h" not in shown.shown
    shown.type(b"fg\n")
    shown.until(b"written")
    shown.until_raw()
    shown.shown = b""
    shown.type(b":q\n")
    shown.until(b"\x1b[?1049l")


@pytest.mark.parametrize("shell", ["bash --norc -i", "sh -i", "sh -c 'bash --norc -i; true'"])
def test_ctrl_z_stops_the_job_of_a_shell_and_not_sandboxctl(inside, screen, shell):
    """Also where another program has started the shell, and at the shell's prompt."""
    shown = screen(["bash", "--norc", "-i"])
    shown.type(f"{' '.join(inside.argv('run', '--', shell))}\n".encode())
    shown.type(b"echo in''side\n")
    shown.until(b"inside\r\n")
    shown.type(b"sh -c \"echo star''ted; exec sleep 600\"\n")
    shown.until(b"started\r\n")
    shown.type(b"\x1a")
    shown.until(b"Stopped")
    shown.type(b"\x1a")
    shown.type(b"echo sti''ll here\n")
    shown.until(b"still here\r\n")
    assert b"sandboxd_client" not in shown.shown.partition(b"inside\r\n")[2], "the outer shell's"


@pytest.mark.parametrize("program", ["vim -u NONE -n note", "less note"])
def test_ctrl_z_stops_what_has_the_whole_screen_and_fg_shows_it_again(inside, screen, program):
    """Such a program stops itself, which the kernel ignores inside."""
    require(program.split()[0])
    (inside.workspace / "note").write_text("written\n" * 99)
    shown = screen(["bash", "--norc", "-i"])
    shown.type(" ".join(inside.argv("run", "--", *program.split())).encode() + b"\n")
    shown.until(b"written")
    shown.until_raw()
    shown.type(b"\x1a")
    shown.until(b"Stopped")
    assert shown.shown.count(b"\x1b[?1049l") == shown.shown.count(b"\x1b[?1049h")
    shown.shown = b""
    shown.type(b"fg\n")
    shown.until(b"written")
    assert b"\x1b[?1049h" in shown.shown
    shown.shown = b""
    shown.type(b":q\n" if program.startswith("vim") else b"q")
    shown.until(b"\x1b[?1049l")
    shown.until(b"$ " if os.getuid() else b"# ")
    shown.type(b"exit 7\n")
    assert shown.end() == 7


def test_ctrl_z_is_left_to_a_shell_inside(inside, screen):
    require("less")
    (inside.workspace / "note").write_text("written\n" * 99)
    shown = screen(inside.argv("run", "--", "bash", "--norc", "-i"))
    shown.until(b"$ " if os.getuid() else b"# ")
    shown.type(b"less note\n")
    shown.until(b"written")
    shown.type(b"\x1a")
    shown.until(b"Stopped")
    shown.shown = b""
    shown.type(b"fg\n")
    shown.until(b"written")
    shown.type(b"qexit 7\n")
    assert shown.end() == 7


def test_a_config_that_changed_is_said(ctl, start_daemon):
    daemon = start_daemon(config="max_executions = 100\n")
    ctl.socket_path = daemon.socket
    assert ctl("run", "--", "true").stderr == b""
    (daemon.home / ".config" / "sandboxd" / "config.toml").write_text("max_executions = 50\n")
    deadline = time.monotonic() + 20
    while b"changed after the daemon had read it" not in ctl("run", "--", "true").stderr:
        assert time.monotonic() < deadline
    assert b"sandboxctl restart" in ctl("status").stdout
    assert ctl("run", "--quiet", "--", "true").stderr == b""


def test_check_makes_no_folder(ctl, start_daemon, folder):
    daemon = start_daemon(env={"XDG_CACHE_HOME": str(folder / "cache")})
    ctl.socket_path = daemon.socket
    root = Path("/var/cache/sandboxd") if os.getuid() == 0 else folder / "cache" / "sandboxd"
    cache = root / cache_name(str(ctl.workspace))
    assert ctl("check").returncode == 0
    assert not cache.exists()
    assert b"XDG_CACHE_HOME" in ctl("run", "--", "env").stdout
    assert cache.is_dir()


def test_a_daemon_on_a_named_socket_is_not_started_in_silence(ctl, folder):
    ctl.socket_path, ctl.extra = str(folder / "mistyped" / "d.sock"), []
    try:
        done = ctl("run", "--", "true")
        assert done.stderr.startswith(b"sandboxctl: no daemon listened on ")
        assert ctl("run", "--", "true").stderr == b""
    finally:
        ctl("shutdown", "--force")


def test_a_wrong_config_is_one_sentence(ctl, folder):
    ctl.socket_path, ctl.extra = str(folder / "run" / "d.sock"), []
    (folder / "config.toml").write_text("[ceiling]\nmax_procesess = 3\n")
    done = ctl("run", "--", "true", SANDBOXD_CONFIG=str(folder / "config.toml"))
    assert done.returncode == 125
    first, hint = done.stderr.decode().splitlines()
    assert first.startswith("sandboxctl: error: the daemon does not start: ")
    assert "did you mean max_processes?" in first
    assert "sandboxctl config check" in hint


def test_logs_say_how_it_ended(own):
    own("run", "--detach", "--name", "fails", "-c", "echo out; exit 3")
    followed = own("logs", "--follow", "fails")
    assert (followed.stdout, followed.returncode) == (b"out\n", 3)
    assert b"it ended with exit code 3" in followed.stderr
    again = own("logs", "fails")
    assert (again.stdout, again.returncode) == (b"out\n", 0)
    assert b"it ended with exit code 3" in again.stderr
    own("run", "--detach", "--name", "slow", "sleep", "600")
    assert b"still running" in own("logs", "slow").stderr
    own("kill", "slow")
    assert b"it was cancelled" in own("logs", "slow").stderr


def test_a_command_in_the_foreground_that_is_killed_elsewhere_says_so(own):
    running = own.start("run", "-c", "echo up; sleep 600")
    assert running.stdout.readline() == b"up\n"
    (one,) = json.loads(own("ps", "--json").stdout)["executions"]
    own("kill", one["execution_id"])
    _, said = running.communicate(timeout=60)
    assert running.returncode == 137
    assert b"sandboxctl: the command was cancelled from elsewhere: by sandboxctl kill" in said


@pytest.mark.parametrize("command", [["logs"], ["logs", "--follow"], ["attach"]])
def test_a_detached_command_that_could_not_start_says_why(own, command):
    made = own("run", "--detach", "--name", "never", "no-such-program")
    assert (made.stdout, made.returncode) == (b"", 127)
    done = own(command[0], *command[1:], "never")
    assert done.returncode == 127
    assert b"no-such-program" in done.stderr


def test_input_that_a_detached_command_does_not_get_is_warned_about(own, tmp_path):
    text = b"--detach gives the command no input"
    for data, flags, warned in (
        (b"hello\n", (), True),
        (b"hello\n", ("-n",), False),
        (b"", (), False),
    ):
        read, write = os.pipe()
        os.write(write, data)
        started = own.start("run", "--detach", *flags, "wc", "-c", stdin=read)
        assert (text in started.communicate()[1]) == warned, (data, flags)
        os.close(read)
        os.close(write)
    (tmp_path / "list").write_bytes(b"a\nb\n")
    with (tmp_path / "list").open("rb") as file:
        started = own.start("run", "--detach", "true", stdin=file)
        assert text in started.communicate()[1]
        assert file.read() == b"a\nb\n"


def test_a_sandbox_is_not_a_command_and_a_command_no_sandbox(own):
    own("sandbox create", "--name", "dev")
    own("run", "--detach", "--name", "d1", "sleep", "600")
    for command in ("kill", "logs"):
        done = own(command, "dev")
        assert done.returncode == 125
        assert b"'dev' is a sandbox, and no command" in done.stderr
    done = own("sandbox destroy", "d1")
    assert done.returncode == 125
    assert b"'d1' is a command, and no sandbox" in done.stderr
    assert b"sandboxctl kill d1" in done.stderr
    assert b"there is no sandbox" in own("sandbox destroy", "neither").stderr
    own("kill", "d1")
    done = own("sandbox destroy", "d1")
    assert b"there is no sandbox 'd1'; the command of that name has ended" in done.stderr
    assert b"sandboxctl kill" not in done.stderr
