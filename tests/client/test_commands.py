"""The other subcommands, the help, and the completion scripts."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sandboxd
import sandboxd_client
import sandboxd_proto
from sandboxd_client.cli import cache
from sandboxd_client.cli.parse import UsageError, no_command_error, parse
from sandboxd_client.cli.table import COMMANDS
from sandboxd_proto import cache_locks
from sandboxd_proto.messages.server import ResolvedManifest

UNAVAILABLE = {
    "use": "automatic","name": "bubblewrap", "available": False, "reason": "bwrap is not installed",
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
        "no   backend bubblewrap: bwrap is not installed\n     fix: apt install bubblewrap" in text
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


def test_doctor_advises_against_embedded_bare_repositories(ctl, fake, tmp_path):
    """What a workspace says itself does not count, and its programs do not run."""
    home, trap = tmp_path / "home", ctl.workspace
    home.mkdir()
    subprocess.run(["git", "init", "-q", "--bare", trap], check=True)
    (trap / "config").write_text("[safe]\n\tbareRepository = explicit\n")
    (trap / "git").write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\n")
    (trap / "git").chmod(0o755)
    env = {"HOME": str(home), "GIT_DIR": str(trap), "PATH": ".:/usr/local/bin:/usr/bin:/bin"}
    done = ctl("doctor", **env)
    assert done.returncode == 0
    assert b"warn git: safe.bareRepository: is not 'explicit'" in done.stdout
    assert b"fix: git config --global safe.bareRepository explicit" in done.stdout
    (home / ".gitconfig").write_text("[safe]\n\tbareRepository = explicit\n")
    assert b"ok   git: safe.bareRepository\n" in ctl("doctor", **env).stdout
    assert not (tmp_path / "pwned").exists()


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
    short = ctl("check", "--read", "/a").stdout.decode()
    assert "readable   /a\n" in short
    assert "network    none\n" in short
    assert "enforced   everything\n" in short
    assert "bwrap" not in short
    text = ctl("check", "--verbose", "--read", "/a").stdout.decode()
    assert "fs_read_allow     /a" in text
    assert "network           enforced" in text
    assert "bwrap --x 'a b'" in text
    assert "hush" not in short + text
    assert fake.seen[-1]["params"]["preset"] == "workspace-write"
    assert json.loads(ctl("check", "--json").stdout)["plan"]["base"] == "host"
    plan |= {"network": {"kind": "inherit", "hosts": []}, "syscall_policy": "inherit"}
    open_ = ctl("check").stdout.decode()
    assert "network    all hosts: it is not restricted\n" in open_
    assert "everything but network: not restricted, syscall_policy: not restricted\n" in open_


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
        (["run"], 125, "run needs COMMAND"),
        (["run", "--memory", "5M"], 125, "see sandboxctl help run"),
        (["run", "--timeout", "ls", "-la"], 125, "write --timeout 5m ls -la"),
        (["run", "--timeout", "abc", "ls"], 125, "--timeout cannot be 'abc'"),
        (["run", "--memory", "--cpu", "5s", "ls"], 125, "--memory needs a value, and --cpu is an"),
        (["run", "--read", "ls", "-la"], 125, "'ls' was taken as the value of --read"),
        (["run", "--net", "ls"], 125, "write --net HOST ls …"),
        (["run", "-c", "ls", "-la"], 125, "a line of shell is one word: -c 'ls -la'"),
        (["sandbox", "run", "w", "-c", "a", "-b", "it's"], 125, "-c 'a -b it'\\''s'"),
        (["run", "--mode", "yolo", "true"], 125, "that mode is force here"),
        (["explain", "--write", "ls"], 125, "'ls' was taken as the value of --write"),
        (["status", "--what"], 2, "status has no option --what"),
        (["completion", "tcsh"], 2, "it is one of bash, zsh, fish"),
        (["sandbox"], 0, ""),
        (["sandbox", "--help"], 0, ""),
        (["sandbox", "creat"], 2, "did you mean sandbox create?"),
        (["exec", "ls"], 2, "did you mean run?"),
        (["forward", "dev", "80"], 2, "did you mean sandbox forward?"),
        (["diff", "a", "b"], 2, "sandboxctl run -- diff"),
        (["sandbox", "ls"], 2, "did you mean sandbox list?"),
        (["run", "--network", "x", "true"], 125, "did you mean --net?"),
        (["run", "--net-all", "true"], 125, "did you mean --net all?"),
        (["run", "--no-net", "true"], 125, "did you mean --net none? It is the default"),
        (["shell", "--no-network"], 125, "did you mean --net none?"),
        (["run", "--no-timeout", "true"], 125, "did you mean --timeout none?"),
        (["sandbox", "run", "sb-1", "--no-net", "ls"], 125, "sandbox create --net none"),
        (["run", "--read-only", "true"], 125, "did you mean --preset read-only?"),
        (["run", "-v", "true"], 125, "sandboxctl explain -- COMMAND"),
        (["run", "--verbose", "true"], 125, "--verbose is an option of check"),
        (["help", "rum"], 2, "did you mean run?"),
        (["help", "nosuch"], 2, "sandboxctl help lists the commands"),
        (["--verison"], 2, "did you mean --version?"),
        (["--socket", "x", "status"], 2, "options come after the command's name"),
        (["kill", "-9", "x"], 2, "did you mean --signal 9?"),
        (["kept", "accept", "-a"], 2, "did you mean --all?"),
        (["kept", "drop", "-a"], 2, "did you mean --all?"),
        (["status", "-w", "."], 2, "-w is an option of"),
        (["run", "-p", "80:80", "true"], 125, "sandboxctl sandbox forward"),
        (["run", "--cpus", "2", "true"], 125, "--cpu is CPU time"),
        (["sandbox", "create", "--cpus=2"], 2, "--cpu is CPU time"),
        (["run", "--net", "*", "--workspace", "/tmp", "true"], 125, "every host: --net all"),
        (["run", "--name", "x", "--workspace", "/tmp", "true"], 125, "add --detach"),
        (["sandbox create"], 2, "there is no command 'sandbox create'"),
        (["sandbox", "run", "sb-1", "--"], 125, "sandbox run needs a command"),
        (["sandbox", "run", "sb-1", "--net", "all", "ls"], 125, "sandbox create --net …"),
        (["sandbox", "destroy"], 2, "sandbox destroy needs ID…"),
        (["run", "--sandbox", "sb-1", "--net", "deny", "true"], 125, "--net cannot be changed"),
        (["shell", "--sandbox", "sb-1", "--read", "/", "true"], 125, "--read cannot be changed"),
        (["run", "--ssh-agent", "--workspace", "/tmp", "true"], 125, "SSH_AUTH_SOCK is not set"),
    ],
)
def test_usage(ctl, arguments, code, said):
    done = subprocess.run([sys.executable, "-m", "sandboxd_client.cli", *arguments],
                          capture_output=True, env=ctl.env(), timeout=60)  # fmt: skip
    assert done.returncode == code
    assert said in done.stderr.decode()


@pytest.mark.parametrize(
    ("command", "flag"),
    [(c, f) for c in COMMANDS.values() if c.greedy for f in c.flags if f.value],
    ids=lambda one: one.name,
)
def test_a_flag_without_its_value_is_named_when_the_command_follows(command, flag):
    try:
        told = no_command_error(command, parse(command, [flag.name, "ls"], needs_operand=False))
    except UsageError as error:
        told = error
    assert flag.name in told.message + told.hint


def test_the_version_is_the_packages():
    assert sandboxd_client.__version__ == sandboxd.__version__ == sandboxd_proto.__version__
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    assert "\nversion = " not in project.read_text()


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
                          cwd=ctl.workspace, capture_output=True, timeout=60,
                          env=ctl.env(HOME=f"{ctl.workspace}-home"))  # fmt: skip
    code, _, modules = done.stderr.decode().partition(" ")
    assert code == "0"
    heavy = {"msgspec", "anyio", "asyncio", "argparse", "json", "re", "enum", "typing",
             "dataclasses", "subprocess", "socket", "signal", "importlib.metadata"}  # fmt: skip
    imported = set(ast.literal_eval(modules))
    assert not heavy & imported
    late = {"outcome", "terminal", "screen", "input", "raw_mode", "advice", "denial_lines"}
    assert not {f"sandboxd_client.cli.{name}" for name in late} & imported
    own = [name for name in imported if name.startswith("sandboxd_")]
    assert len(own) <= 19, sorted(own)  # each costs as much as 150 lines of another


def test_the_socket_is_printed(ctl):
    assert ctl("socket").stdout.decode().strip() == ctl.socket_path


def test_config_is_shown_and_checked(ctl, folder):
    path = folder / "config.toml"
    path.write_text('[ceiling]\nmax_memory_bytes = "4G"\n')
    changed = {"SANDBOXD_CONFIG": str(path), "SANDBOXD_MAX_EXECUTIONS": "5"}
    shown = [line.split() for line in ctl("config show", **changed).stdout.decode().splitlines()]
    assert ["*", "ceiling.max_memory_bytes", "4294967296", "#", "the", "file"] in shown
    assert ["*", "max_executions", "5", "#", "SANDBOXD_MAX_EXECUTIONS"] in shown
    assert ctl("config check", SANDBOXD_CONFIG=str(path)).returncode == 0
    path.write_text('backnd = 1\nmax_executions = -1\npool = 7\n[masks]\nadd = ["x"]\n')
    wrong = ctl("config check", SANDBOXD_CONFIG=str(path), SANDBOXD_NO="1", SANDBOXD_BACKEND="nope")
    told = [line.rpartition(": error: ")[2] for line in wrong.stderr.decode().splitlines()]
    assert len(told) == len({*told}) == 6
    for word in ("SANDBOXD_NO ", "backnd", "max_executions", "pool", "masks.add", "'nope'"):
        assert any(word in line for line in told), word
    path.write_text("[ceiling]\nmax_procesess = 3\n")
    wrong = ctl("config check", SANDBOXD_CONFIG=str(path))
    assert wrong.returncode == 2
    assert b"did you mean max_processes?" in wrong.stderr
    path.write_text('backend = "bubblewarp"\n')
    wrong = ctl("config check", SANDBOXD_CONFIG=str(path))
    assert wrong.returncode == 2
    assert f"{path}: backend: there is no backend 'bubblewarp'".encode() in wrong.stderr
    assert b"did you mean 'bubblewrap'?" in wrong.stderr
    wrong = ctl("config check", SANDBOXD_LOG="loud")
    assert b"SANDBOXD_LOG is 'loud'; it is one of debug, info" in wrong.stderr
    wrong = ctl("config check", SANDBOXD_BACKEND="zzz")
    assert b"SANDBOXD_BACKEND: backend: there is no backend 'zzz'; the backends are" in wrong.stderr


def test_caches_are_listed_and_those_of_gone_workspaces_removed(ctl, folder, monkeypatch, capfd):
    monkeypatch.setattr(cache, "caches_root", lambda *given: str(folder / "caches"))
    for name, workspace in (("here-1", folder), ("gone-2", "/no/such/workspace")):
        (folder / "caches" / name).mkdir(parents=True)
        (folder / "caches" / name / "file").write_bytes(b"x" * 2048)
        (folder / "caches" / ".workspaces").mkdir(exist_ok=True)
        (folder / "caches" / ".workspaces" / name).write_text(f"1\n{workspace}")
    assert [(item.is_gone, item.size) for item in cache.caches()] == [(True, 2048), (False, 2048)]
    (folder / "caches" / "gone-2" / "file").write_bytes(b"xy")
    used = cache_locks.hold(str(folder / "caches" / "gone-2"))
    for words in ([], ["--json"]):
        cache.prune(parse(COMMANDS["cache prune"], words))
    told = capfd.readouterr()
    assert "gone-2 stays: a command or a sandbox uses it" in told.err
    assert json.loads(told.out)["removed"] == []
    os.close(used)
    cache.prune(parse(COMMANDS["cache prune"], []))
    assert "removed 1 cache, 2B" in capfd.readouterr().err
    assert [item.workspace for item in cache.caches()] == [str(folder)]


def test_status_fits_80_columns(ctl, fake):
    fake.status["warnings"] = ["word " * 40]
    fake.status["backends"][0]["layers"] = ["a layer of the sandbox"] * 12
    shown = ctl("status").stdout.decode()
    rows = [line for line in shown.splitlines() if not line.startswith("socket")]
    assert max(map(len, rows)) <= 80


def test_doctor_shows_only_what_matters_here(ctl, fake):
    other = {"available": False, "reason": "r", "remedy": "m", "layers": []}
    uses = {"bubblewrap": "automatic", "sandbox-exec": "elsewhere", "docker": "named"}
    fake.status["backends"] += [{**other, "name": n, "use": use} for n, use in uses.items()]
    shown = ctl("doctor").stdout.decode()
    assert [name for name in uses if f"backend {name}" in shown] == ["bubblewrap"]
    fake.status["backend"] = None
    shown = ctl("doctor").stdout.decode()
    assert [name for name in uses if f"backend {name}" in shown] == ["bubblewrap", "docker"]
