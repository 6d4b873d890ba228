"""What sandboxctl says about a command line that cannot do what it was meant to."""

from __future__ import annotations

import subprocess

import pytest


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--cwd", "/tmp/no such", "true"], 125, "--cwd: /tmp/no such does not exist"),
        ([""], 125, "the command is an empty word"),
        (["--processes", "99999999", "true"], 125, "--processes must be greater than zero and at "
         "most 4194304, and not 99999999\n  hint:  give a positive number, or leave --processes"),
        (["--deny", "/usr", "true"], 127, "--deny /usr hides /usr/bin/true"),
        (["--deny", "/", "true"], 127, "--deny / hides /usr/bin/true"),
        (["--deny", "/usr/lib", "/usr/bin/true"], 127, "--deny /usr/lib hides /lib"),
        (["--verbose", "true"], 125, "--verbose is an option of check"),
        (["-v", "true"], 125, "to show a folder add --read or --write"),
        (["--processes", "5", "bash", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 9 & done; wait"],
         137, "more processes than --processes allows, and was ended"),
    ],
)  # fmt: skip
def test_the_flag_and_the_cause_are_named(inside, words, code, said):
    done = inside("run", *words)
    assert said in done.stderr.decode()
    assert done.returncode == code


def test_a_local_clone_from_another_folder_is_told_of_no_local(inside, folder):
    source = folder / "source"
    git = ["git", "-c", "user.name=a", "-c", "user.email=b", "-C", str(source)]
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    clone = ("git", "clone", str(source))
    failed = inside("run", "--read", str(source), *clone, "--local", "one")
    assert failed.returncode == 128
    assert b"git clone --no-local copies instead" in failed.stderr
    done = inside("run", "--read", str(source), *clone, "--no-local", "two")
    assert (done.returncode, b"hint" in done.stderr) == (0, False)


@pytest.mark.parametrize("command", ["logs", "attach", "kill"])
def test_without_a_daemon_there_is_no_command_of_that_name(ctl, folder, command):
    ctl.socket_path = str(folder / "none.sock")
    done = ctl(command, "build")
    assert done.returncode == 125
    said = f"there is no execution 'build': no daemon listens on {ctl.socket_path}"
    assert said.encode() in done.stderr
    assert b"sandboxctl audit" in done.stderr


def test_what_is_piped_into_a_terminal_is_said_to_be_typed(inside):
    told = b"--pty types what is piped in"
    assert told in inside("run", "--pty", "--", "true", input=b"1\n").stderr
    assert told not in inside("run", "--pty", "--quiet", "--", "true", input=b"1\n").stderr
    assert told not in inside("run", "--pty", "--no-stdin", "--", "true", input=b"1\n").stderr
    assert told not in inside("run", "--", "true", input=b"1\n").stderr


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "--type", "nosuch"),
        ("kill", "--signal", "NOSUCH", "{}"),
        ("check", "--net", "host:port"),
        ("check", "--backend", "nosuch"),
        ("check", "--processes", "9" * 23),
        ("sandbox create", "--name", "sb-x"),
    ],
)
def test_a_wrong_value_that_only_the_daemon_knows_is_a_wrong_option(inside, words):
    if "{}" in words:
        started = inside("run", "--detach", "--", "sleep", "60").stdout.decode().strip()
        words = (*words[:-1], started)
    done = inside(*words)
    assert done.returncode == 2, done.stderr
    if words[0] == "kill":
        assert inside("kill", words[-1]).returncode == 0


@pytest.mark.parametrize(
    "words", [("kill", "nosuch"), ("check", "--read", "/nosuch"), ("attach", "nosuch")]
)
def test_what_does_not_exist_is_no_wrong_option(inside, words):
    assert inside(*words).returncode == 125
