"""`sandboxctl run` behaves like the command itself: streams, exit code, stdin, signals."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time

import pytest

from sandboxd_client.cli.relay import TERM_GRACE_S


def test_streams_and_exit_code_are_the_commands_own(ctl):
    done = ctl("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 7)


def test_bytes_that_are_not_text_arrive_unchanged_both_ways(ctl):
    data = bytes(range(256)) * 4000
    done = ctl("run", "--", "cat", input=data)
    assert done.stdout == data
    assert done.returncode == 0


def test_options_after_the_command_belong_to_the_command(ctl):
    assert ctl("run", "echo", "--json", "-x").stdout == b"--json -x\n"


def test_signal_is_128_plus_n(ctl):
    assert ctl("run", "--", "sh", "-c", "kill -9 $$").returncode == 137


@pytest.mark.parametrize(
    ("name", "said"),
    [("SEGV", b"11 (SIGSEGV)"), ("KILL", b"9 (SIGKILL)"), ("TERM", None), ("HUP", None),
     ("INT", None), ("PIPE", None)],
)  # fmt: skip
def test_a_command_that_crashed_is_said_to_have_in_one_line(ctl, name, said):
    line = ("--", "sh", "-c", f"kill -{name} $$")
    told = b"" if said is None else b"sandboxctl: it was ended by signal " + said + b"\n"
    assert ctl("run", *line).stderr == told
    assert ctl("run", "--quiet", *line).stderr == b""
    shown = ctl("run", "--json", *line)
    assert (shown.stderr, json.loads(shown.stdout).get("warnings")) == (b"", None)


def test_not_found_is_127_and_not_executable_126(ctl, workspace):
    (workspace / "plain").write_text("x")
    missing = ctl("run", "--", "no-such-program-here")
    assert missing.returncode == 127
    assert missing.stderr.startswith(b"sandboxctl: error: no-such-program-here cannot be executed")
    assert ctl("run", "--", "./plain").returncode == 126


def test_a_program_that_the_daemon_found_beside_is_the_hint(ctl, fake, refuse):
    def unfound(connection, params, id):
        raise refuse(-32007, "good.py cannot be executed: not found in PATH", kind="ExecFailed",
                     field="argv[0]", remedy="did you mean ./good.py?", errno=2)  # fmt: skip

    fake.handlers["execute"] = unfound
    done = ctl("run", "good.py")
    assert done.returncode == 127
    assert done.stderr.endswith(b"not found in PATH\n  hint:  did you mean ./good.py?\n")


def test_a_path_behind_a_host_is_said_to_be_ignored(ctl):
    whole = ("--net", "https://b.example,https://c.example/")
    path = ("--net", "https://me:secret@a.example/simple?token=1")
    line = b"sandboxctl: --net allows all of a.example: the path of a URL is ignored\n"
    assert ctl("run", *path, *whole, "--", "true").stderr == line
    assert ctl("run", *whole, "--", "true").stderr == b""
    assert ctl("run", "--quiet", *path, "--", "true").stderr == b""
    assert ctl("run", "--json", *path, "--", "true").stderr == b""


def test_refusal_is_125_with_error_cause_and_hint(ctl, fake, refuse):
    def denied(connection, params, id):
        raise refuse(-32003, "no such path", kind="PathDenied", field="fs_read_allow[0]",
                     remedy="name one that exists")  # fmt: skip

    fake.handlers["execute"] = denied
    done = ctl("run", "--", "true")
    assert done.returncode == 125
    assert done.stdout == b""
    assert done.stderr == (
        b"sandboxctl: error: no such path\n"
        b"  cause: the field is fs_read_allow[0]\n  hint:  name one that exists\n"
    )
    shown = ctl("run", "--json", "--", "true")
    assert shown.returncode == 125
    assert json.loads(shown.stdout)["error"]["data"]["kind"] == "PathDenied"


def test_denials_are_told_one_line_each_with_the_flags_that_allow_them(ctl, fake):
    run = fake.handlers["execute"]
    denials = [
        {"kind": "filesystem_write", "operation": "open", "target": "/etc/x y", "layer": "mount",
         "evidence": "policy", "confidence": "high", "message": "one",
         "remedy": {"fs_write_allow": ["/etc/x y"]}},
        {"kind": "network", "operation": "connect", "target": "example.com:443", "layer": "gate",
         "evidence": "gate", "confidence": "high", "message": "two",
         "remedy": {"network": {"kind": "allow_hosts", "hosts": ["example.com"]}}},
    ]  # fmt: skip
    fake.handlers["execute"] = lambda c, p, i: {**run(c, p, i), "denials": denials}
    done = ctl("run", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    assert done.stderr == (
        b"sandboxctl: denied: one\nsandboxctl: denied: two\n"
        b"sandboxctl: to allow it add: --write '/etc/x y' --net example.com\n"
    )
    assert ctl("run", "--quiet", "--", "true").stderr == b""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["ls | head"], "sandboxctl run -- sh -c 'ls | head'"),
        (["no-such-program-here"], "no folder of your PATH has it either"),
        (["--read", "/no/such", "true"], "error: --read: /no/such does not exist"),
        (["--read", "/usr,/bin", "true"], "write --read once for each"),
        (["--sandbox", "sb-no", "true"], "sandboxctl sandbox list shows those that exist"),
        (["--memory", "50", "true"], "write --memory 50M"),
        (["--memory", "50K", "true"], "error: --memory is 50K, too little for any program"),
        (["--read", "--", "true"], "error: --read needs a value"),
        (["--preset", "read-onyl", "true"], "did you mean read-only?"),
        (["--backend", "dokcer", "true"], "did you mean docker?"),
        (["--manifest", "no.toml", "true"], "--manifest no.toml cannot be read: No such file"),
        (["--detach", "--name", "a b", "true"], "--name 'a b': a name has no blanks"),
        (["--cwd", "/no/such", "true"], "--cwd: /no/such does not exist"),
    ],
)
def test_an_error_speaks_of_what_was_typed(inside, arguments, told):
    done = inside("run", *arguments)
    assert done.returncode in (125, 127)
    assert told in done.stderr.decode()
    assert "the field is" not in done.stderr.decode()


def test_a_script_without_its_interpreter_is_told_so(inside):
    script = inside.workspace / "script"
    script.write_text("#!/no/such/interpreter -x\n")
    script.chmod(0o755)
    done = inside("run", "--", "./script")
    assert done.returncode == 127
    assert b"its first line names /no/such/interpreter, which does not exist" in done.stderr


def test_an_error_about_a_manifest_names_its_file(inside, folder):
    path = folder / "wrong.toml"
    for line, told in (
        ("max_memory_bytes = 10", f"{path}: max_memory_bytes is 10 bytes"),
        ('fs_read_allow = ["no-such"]', f"{path}: fs_read_allow: {folder}/no-such does not exist"),
        ("timeout = -1", f"{path}: timeout must be"),
    ):
        path.write_text(f"[sandbox]\n{line}\n")
        done = inside("run", "--manifest", str(path), "--", "true")
        assert (done.returncode, told in done.stderr.decode()) == (125, True), done.stderr


def test_sudo_in_a_sandbox_is_explained(inside):
    """Whether the machine has sudo (it then exits with 1) or not (127)."""
    done = inside("run", "sudo", "ls")
    said = done.stderr.decode()
    assert done.returncode in (1, 127)
    assert "nothing in it can become another" in said or "nothing in a sandbox can become" in said


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        ({"outcome": "timeout", "signal": 15}, 124),
        ({"outcome": "memory", "signal": 9}, 137),
        ({"outcome": "output_limit", "signal": None}, 125),
        ({"outcome": "isolation_lost", "signal": 9}, 137),
    ],
)
def test_an_outcome_other_than_exit_is_said_and_has_its_code(ctl, fake, ended, code):
    run = fake.handlers["execute"]
    fake.handlers["execute"] = lambda c, p, i: {**run(c, p, i), "exit_code": None, **ended}
    done = ctl("run", "--", "true")
    assert done.returncode == code
    assert done.stderr.startswith(b"sandboxctl: the command was ended: ")
    assert done.stderr.count(b"\n") == 1


def test_json_prints_one_object_with_the_captured_output(ctl):
    done = ctl("run", "--json", "--", "sh", "-c", "cat; exit 4", input=b"typed")
    result = json.loads(done.stdout)
    assert (result["stdout"]["data"], result["exit_code"]) == ("typed", 4)
    assert (done.returncode, done.stderr) == (4, b"")


def test_stdin_of_dev_null_is_not_kept_open(ctl, fake):
    process = ctl.start("run", "--", "cat")
    assert process.wait(timeout=30) == 0
    process.communicate()
    (execute,) = [m for m in fake.seen if m["method"] == "execute"]
    assert "stdin_open" not in execute["params"]
    assert "execution/write" not in fake.methods()


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-"])
def test_a_closed_standard_descriptor_is_no_reason_to_fail(ctl, closed):
    line = " ".join(
        f"'{word}'"
        for word in ctl.argv("run", "--", "sh", "-c", "cat; echo out; echo err >&2; exit 5")
    )
    done = subprocess.run(["sh", "-c", f"{line} {closed}"], stdin=subprocess.DEVNULL,
                          cwd=ctl.workspace, env=ctl.env(), timeout=60)  # fmt: skip
    assert done.returncode == 5


@pytest.mark.parametrize(
    ("words", "code", "is_said"),
    [
        (("sh", "-c", "echo out"), 1, True),
        (("sh", "-c", "echo out; exit 5"), 5, True),
        (("sh", "-c", "echo err >&2"), 0, False),
        (("true",), 0, False),
    ],
)
def test_output_to_a_closed_stdout_is_an_error_and_no_output_is_none(inside, words, code, is_said):
    for flags in ([], ["-q"]):
        line = shlex.join(inside.argv("run", *flags, "--", *words))
        done = subprocess.run(["sh", "-c", f"{line} >&-"], stderr=subprocess.PIPE,
                              cwd=inside.workspace, env=inside.env(), timeout=60)  # fmt: skip
        assert done.returncode == code
        said = b"sandboxctl: error: the output could not be written: stdout is closed\n"
        assert (said in done.stderr) == is_said
        assert is_said or b"sandboxctl" not in done.stderr


@pytest.mark.parametrize(("flag", "code"), [("--json", 125), ("--detach", 0)])
def test_what_sandboxctl_itself_prints_to_a_closed_stdout_is_told(inside, flag, code):
    line = shlex.join(inside.argv("run", flag, "--", "true"))
    done = subprocess.run(["sh", "-c", f"{line} >&-"], stderr=subprocess.PIPE,
                          cwd=inside.workspace, env=inside.env(), timeout=60)  # fmt: skip
    assert done.returncode == code
    assert b"stdout is closed" in done.stderr


def test_stdin_is_read_no_further_than_the_daemon_has_taken_it(ctl, fake):
    """The daemon answers a write when there is room; until then the rest stays where it is."""
    fake.handlers["execution/write"] = lambda connection, params, id: None  # no answer
    with open("/dev/zero", "rb") as endless:
        process = ctl.start("run", "--", "sleep", "60", stdin=endless)
        while "execution/write" not in fake.methods():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    (write,) = [m for m in fake.seen if m["method"] == "execution/write"]
    assert len(write["params"]["base64"]) * 3 // 4 == 64 * 1024 + 2
    assert process.returncode == 143


@pytest.mark.parametrize("command", [("true",), ("sleep", "60")])
def test_a_file_that_the_command_does_not_read_is_left_to_the_next_reader(ctl, folder, command):
    source = folder / "source"
    source.write_bytes(b"0123456789" * 100_000)
    with source.open("rb") as file:
        file.seek(7)
        process = ctl.start("run", "--", *command, stdin=file)
        if command[0] == "sleep":
            while file.tell() == 7:  # the offset is shared with the child
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert file.tell() == 7


def test_first_interrupt_is_forwarded_and_the_command_decides(ctl):
    script = "trap 'echo got; exit 9' INT; echo up; while :; do sleep 0.1; done"
    process = ctl.start("run", "--", "sh", "-c", script)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == (b"got\n", b"")
    assert process.returncode == 9


def test_it_dies_of_an_interrupt_that_the_command_died_of(ctl):
    """A shell sees 130, and ends its loop."""
    process = ctl.start("run", "--", "sh", "-c", "echo up; exec sleep 60")
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT


def test_any_other_signal_that_ended_the_command_is_an_exit_code(ctl):
    for name, code in (("SEGV", 139), ("INT", 130), ("TERM", 143), ("KILL", 137)):
        assert ctl("run", "--", "sh", "-c", f"kill -{name} $$").returncode == code


def test_second_interrupt_kills(ctl, fake):
    process = ctl.start("run", "--", "sh", "-c", "trap '' INT; echo up; while :; do sleep 1; done")
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    while "execution/signal" not in fake.methods():
        pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert "execution/cancel" in fake.methods()
    assert not fake.commands


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_being_told_to_end_lets_the_command_clean_up(ctl, fake, number, code):
    script = "trap 'echo cleaned; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    process = ctl.start("run", "--", "sh", "-c", script)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert process.communicate(timeout=30)[0] == b"cleaned\n"
    assert process.returncode == code
    assert "execution/cancel" not in fake.methods()


@pytest.mark.parametrize("times", [1, 2])
def test_a_command_that_ignores_being_told_to_end_is_cancelled(ctl, fake, times):
    """After a while, or at once when told again."""
    script = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    process = ctl.start("run", "--", "sh", "-c", script)
    assert process.stdout.readline() == b"up\n"
    began = time.monotonic()
    process.send_signal(signal.SIGHUP)
    while "execution/signal" not in fake.methods():
        assert process.poll() is None
    if times == 2:
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == (129 if times == 1 else 143)
    assert (time.monotonic() - began >= TERM_GRACE_S) == (times == 1)
    assert "execution/cancel" in fake.methods()
    assert not fake.commands


def test_stop_and_continue_reach_the_command(ctl, fake):
    process = ctl.start("run", "--", "sh", "-c", "echo up; sleep 60")
    process.stdout.readline()
    process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    sent = [m["params"]["signal"] for m in fake.seen if m["method"] == "execution/signal"]
    assert sent == ["STOP", "CONT", signal.SIGTERM]


def test_a_reader_that_leaves_ends_the_command_like_sigpipe(ctl, fake):
    process = ctl.start("run", "--", "sh", "-c", "while :; do echo line; done")
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.wait(timeout=30) == 141
    assert process.stderr.read() == b""
    process.stderr.close()
    assert fake.closed.wait(10)


def test_a_reader_that_waits_slows_the_command_and_loses_nothing(ctl):
    process = ctl.start("run", "--", "sh", "-c", "seq 1 400000; echo end >&2")
    head = process.stdout.read(100)
    out, err = process.communicate(timeout=60)
    assert head + out == "".join(f"{n}\n" for n in range(1, 400001)).encode()
    assert err == b"end\n"


def test_both_streams_into_one_pipe_keep_their_order(ctl):
    process = ctl.start("run", "--", "sh", "-c", "for i in 1 2 3 4 5; do echo o$i; sleep 0.05; "
                        "echo e$i >&2; sleep 0.05; done", stderr=subprocess.STDOUT)  # fmt: skip
    out, _ = process.communicate(timeout=30)
    assert out.split() == [b"o1", b"e1", b"o2", b"e2", b"o3", b"e3", b"o4", b"e4", b"o5", b"e5"]


def test_a_daemon_that_vanishes_is_125_and_says_so(ctl, fake):
    process = ctl.start("run", "--", "sh", "-c", "echo up; sleep 60")
    process.stdout.readline()
    fake.close()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 125
    assert err.startswith(b"sandboxctl: error: the daemon closed the connection\n")


def test_an_argument_that_is_not_utf8_is_refused_with_a_sentence(ctl):
    done = subprocess.run([*map(os.fsencode, ctl.argv("run", "--", "echo")), b"\xff"],
                          cwd=ctl.workspace, capture_output=True, timeout=60,
                          env=ctl.env())  # fmt: skip
    assert done.returncode == 125
    assert b"error: '\\xff' is not UTF-8" in done.stderr
    assert b"hint: a shell inside can find the file" in done.stderr


def test_no_daemon_and_no_autostart_is_125(ctl):
    ctl.socket_path += ".gone"
    done = ctl("run", "--", "true")
    assert done.returncode == 125
    assert b"sandboxctl: error: no sandboxd listens on" in done.stderr
    assert b"hint:" in done.stderr
