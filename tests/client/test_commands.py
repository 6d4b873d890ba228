"""The other subcommands, the help, and the completion scripts."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import sandboxd_client
from sandboxd_client.cli.table import COMMANDS
from sandboxd_proto.messages.server import ResolvedManifest

UNAVAILABLE = {"name": "bubblewrap", "available": False, "reason": "bwrap is not installed",
               "remedy": "apt install bubblewrap", "layers": []}  # fmt: skip


def test_status_for_people_and_programs(ctl, fake):
    fake.status["warnings"] = ["running as root"]
    shown = ctl("status").stdout.decode()
    assert "backend    fake" in shown
    assert "warning    running as root" in shown
    assert json.loads(ctl("status", "--json").stdout)["backend"] == "fake"


def test_doctor_names_the_reason_and_the_fix(ctl, fake):
    fake.status["backends"].append(UNAVAILABLE)
    done = ctl("doctor")
    assert done.returncode == 0
    text = done.stdout.decode()
    assert (
        "no   backend bubblewrap: bwrap is not installed\n       fix: apt install bubblewrap"
        in text
    )
    assert "ok   commands run with fake" in text


def test_doctor_fails_when_nothing_works(ctl, fake):
    fake.status.update(backend=None, backends=[UNAVAILABLE])
    assert ctl("doctor").returncode == 1
    shown = ctl("doctor", "--json")
    assert shown.returncode == 1
    assert json.loads(shown.stdout)["ok"] is False


def test_doctor_sees_another_version_and_no_daemon(ctl, fake):
    fake.status["version"] = "9.9"
    assert b"this sandboxctl has version" in ctl("doctor").stdout
    fake.close()
    done = ctl("doctor")
    assert done.returncode == 1
    assert b"FAIL daemon: no sandboxd listens" in done.stdout


def test_check_shows_plan_enforcement_and_command_line(ctl, fake):
    plan = {
        **dict.fromkeys(ResolvedManifest.__struct_fields__), "fs_read_allow": ["/a"],
        "fs_write_allow": [], "fs_deny": [], "protected": [], "base": "host", "cwd": "/a",
        "network": {"kind": "deny", "hosts": []}, "syscall_policy": "baseline",
        "env": [["TOKEN", "hush"]],
    }  # fmt: skip
    fake.handlers["manifest/check"] = lambda c, p, i: {
        "backend": "fake", "plan": plan, "enforcement": {"network": "enforced"},
        "command_line": ["bwrap", "--x", "a b"],
    }  # fmt: skip
    text = ctl("check", "--read", "/a").stdout.decode()
    assert "fs_read_allow     /a" in text
    assert "network           enforced" in text
    assert "bwrap --x 'a b'" in text
    assert "hush" not in text
    assert fake.seen[-1]["params"]["preset"] == "workspace-write"
    assert json.loads(ctl("check", "--json").stdout)["plan"]["base"] == "host"


def test_ps_and_kill(ctl, fake):
    with sandboxd_client.Client(fake.path) as client, client.stream(["sleep", "60"]) as execution:
        listed = ctl("ps").stdout.decode()
        assert execution.execution_id in listed
        assert "sleep 60" in listed
        assert ctl("kill", execution.execution_id, "--signal", "sigterm").returncode == 0
        assert execution.wait().signal == 15
    with sandboxd_client.Client(fake.path) as client, client.stream(["sleep", "60"]) as execution:
        assert ctl("kill", execution.execution_id).returncode == 0
        assert execution.wait().outcome == "cancelled"
    del fake.handlers["execution/cancel"]
    assert ctl("kill", "no-such-one").returncode == 125


def test_ps_without_a_daemon_lists_nothing(ctl, fake):
    fake.close()
    done = ctl("ps", "--json")
    assert (json.loads(done.stdout), done.returncode) == ({"executions": []}, 0)


def test_shutdown_waits_until_nobody_listens(ctl, fake):
    def shutdown(connection, params, id):
        fake.stop_listening()
        return {}

    fake.handlers["shutdown"] = shutdown
    assert ctl("shutdown").returncode == 0
    again = ctl("shutdown")
    assert again.returncode == 0
    assert b"no daemon listens" in again.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(ctl, name):
    done = subprocess.run([sys.executable, "-m", "sandboxd_client.cli", *name.split(), "--help"],
                          capture_output=True, env=ctl.env(), timeout=60)  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.decode().startswith(COMMANDS[name].summary)
    for flag in COMMANDS[name].flags:
        assert flag.name.encode() in done.stdout


def test_the_help_of_run_has_the_table_of_exit_codes(ctl):
    text = ctl("run", "--help").stdout
    for code in (b"124", b"125", b"126", b"127", b"128+n", b"141"):
        assert code in text


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--version"], 0, ""),
        (["--help"], 0, ""),
        ([], 2, ""),
        (["stauts"], 2, "did you mean status?"),
        (["make"], 2, "sandboxctl run -- make"),
        (["run"], 125, "run needs [--] COMMAND"),
        (["status", "--what"], 2, "status has no option --what"),
        (["completion", "tcsh"], 2, "it is one of bash, zsh, fish"),
        (["sandbox"], 0, ""),
        (["sandbox", "--help"], 0, ""),
        (["sandbox", "creat"], 2, "did you mean sandbox create?"),
        (["sandbox create"], 2, "there is no command 'sandbox create'"),
        (["sandbox", "run", "sb-1", "--"], 125, "sandbox run needs a command"),
        (["sandbox", "destroy"], 2, "sandbox destroy needs ID…"),
        (["run", "--sandbox", "sb-1", "--net", "deny", "true"], 125, "--net cannot be changed"),
        (["shell", "--sandbox", "sb-1", "--read", "/", "true"], 2, "--read cannot be changed"),
        (["run", "--ssh-agent", "--workspace", "/tmp", "true"], 125, "SSH_AUTH_SOCK is not set"),
    ],
)
def test_usage(ctl, arguments, code, said):
    done = subprocess.run([sys.executable, "-m", "sandboxd_client.cli", *arguments],
                          capture_output=True, env=ctl.env(), timeout=60)  # fmt: skip
    assert done.returncode == code
    assert said in done.stderr.decode()


def test_the_version_is_the_packages():
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    assert f'\nversion = "{sandboxd_client.__version__}"\n' in project.read_text()


def test_everything_that_is_promised_can_be_imported():
    for name in sandboxd_client.__all__:
        assert getattr(sandboxd_client, name) is not None
    with pytest.raises(AttributeError):
        _ = sandboxd_client.nothing


def test_run_imports_nothing_heavy(ctl):
    """What makes `sandboxctl run` start as fast as Python itself."""
    script = ("import sys; from sandboxd_client.cli import main; code = main(sys.argv[1:]);"
              "print(code, sorted(sys.modules), file=sys.stderr)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script, *ctl.argv("run", "--", "true")[3:]],
                          cwd=ctl.workspace, capture_output=True, env=ctl.env(),
                          timeout=60)  # fmt: skip
    code, _, modules = done.stderr.decode().partition(" ")
    assert code == "0"
    heavy = {"msgspec", "anyio", "asyncio", "argparse", "json", "re", "enum", "typing",
             "dataclasses", "subprocess", "socket", "signal", "importlib.metadata"}  # fmt: skip
    assert not heavy & set(ast.literal_eval(modules))


# completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_flag(ctl, shell):
    script = ctl("completion", shell).stdout.decode()
    for command in COMMANDS.values():
        for word in command.name.split():
            assert word in script
        for flag in command.flags:
            assert (flag.name if shell != "fish" else f"-l {flag.name[2:]} ") in script


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sandboxctl", "st"], ["status"]),
        (["sandboxctl", "run", "--pre"], ["--preset"]),
        (["sandboxctl", "run", "--preset", "read"], ["read-only"]),
        (["sandboxctl", "run", "--preset", "read-only", "--mem"], ["--memory"]),
        (["sandboxctl", "completion", "z"], ["zsh"]),
        (["sandboxctl", "run", "--", "/bin/sh", "--pre"], []),
        (["sandboxctl", "sand"], ["sandbox"]),
        (["sandboxctl", "sandbox", "cr"], ["create"]),
        (["sandboxctl", "sandbox", "create", "--id"], ["--idle"]),
        (["sandboxctl", "sandbox", "run", "--no-a"], ["--no-autostart"]),
        (["sandboxctl", "sandbox", "run", "sb-1", "/usr/bin/sha256s"], ["/usr/bin/sha256sum"]),
        (["sandboxctl", "shell", "--sand"], ["--sandbox"]),
    ],
)
def test_bash_completes(ctl, words, expected):
    script = ctl("completion", "bash").stdout.decode()
    quoted = " ".join(f"'{word}'" for word in words)
    probe = (f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _sandboxctl\n"
             'printf "%s\\n" "${COMPREPLY[@]}"')  # fmt: skip
    done = subprocess.run(["bash", "--norc", "-c", probe], capture_output=True, timeout=60)
    assert done.stderr == b""
    assert done.stdout.decode().split() == expected
