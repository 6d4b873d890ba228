"""The landlock backend through a real daemon: what holds without namespaces, and how it says so."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backends import running_backend
from support.daemon import Daemon
from support.processes import processes_below, survivors
from support.rpc import RpcError
from support.runs import Runner
from support.users import unprivileged_user

pytestmark = [pytest.mark.isolation, pytest.mark.requires("landlock", "seccomp")]
ROOT = os.geteuid() == 0
LOOSE = {"fs_read_allow", "fs_write_allow", "fs_deny", "base"}


@pytest.fixture(scope="module")
def backend() -> Iterator[Daemon]:
    with running_backend("landlock") as daemon:
        yield daemon


@pytest.fixture
def runner(backend: Daemon) -> Iterator[Runner]:
    runner = Runner(backend)
    yield runner
    runner.close()


def repository(folder: Path) -> None:
    for words in (["init", "-q"], ["config", "user.email", "a@b"], ["config", "user.name", "n"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def kill_everybody(runner: Runner, script: str) -> None:
    """A command that takes its init along is lost, or (with its reaper not heard yet) refused."""
    try:
        assert runner.shell(script).outcome == "isolation_lost"
    except RpcError as error:
        assert error.kind == "SandboxUnavailable", error  # noqa: PT017


# files


def test_temporary_files_go_to_a_folder_that_is_gone_afterwards(runner: Runner):
    ran = runner.shell('echo x > "$TMPDIR/x" && mkdir -m 0 "$TMPDIR/d" && printf %s "$TMPDIR"')
    assert ran.exited(0), ran.stderr
    folder = Path(ran.stdout)
    deadline = time.monotonic() + 30
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not folder.exists()


def test_the_hosts_tmp_is_closed(runner: Runner, tmp_path: Path):
    (tmp_path / "file").write_text("secret")
    ran = runner.shell('cat "$1/file"; : > "$1/new"', str(tmp_path))
    assert ran.stdout == ""
    assert not (tmp_path / "new").exists()


def test_a_home_in_tmp_leads_to_the_private_folder(runner: Runner):
    manifest = {"env": [["HOME", "/tmp"]]}
    ran = runner.shell('echo x > "$HOME/x" && test "$HOME" = "$TMPDIR"', manifest=manifest)
    assert ran.exited(0), ran.stderr


def test_another_sandboxs_folder_is_closed(runner: Runner, backend: Daemon):
    with backend.connect() as other:
        script = 'echo x > "$TMPDIR/x"; printf %s "$TMPDIR"; sleep 1000'
        params = {"argv": ["sh", "-c", script], "stream": True, "execution_id": "first"}
        waiting = other.start("execute", params)
        path = other.notification("execution/output", execution_id="first")["data"]
        ran = runner.shell('cat "$1/x"', path)
        assert (ran.stdout, ran.exit_code) == ("", 1)
        other.call("execution/cancel", {"execution_id": "first"})
        other.answer(waiting)


def test_a_denied_path_is_closed_and_its_siblings_are_not(runner: Runner, workspace: Path):
    for name in ("secret", "open"):
        (workspace / name).mkdir()
        (workspace / name / "file").write_text(name)
    manifest = {"fs_write_allow": [str(workspace)], "fs_deny": [str(workspace / "secret")]}
    script = "cat secret/file; ls secret; mv secret moved; ln secret/file open/link; cat open/file"
    ran = runner.shell(f"{script}; echo new > open/new", cwd=str(workspace), manifest=manifest)
    assert ran.stdout == "open"
    assert (workspace / "open" / "new").read_text() == "new\n"
    assert sorted(p.name for p in workspace.rglob("*")) == ["file", "file", "new", "open", "secret"]
    assert ran.enforcement == {"fs_write_allow": "best_effort", "fs_deny": "best_effort"}


def test_a_deny_that_needs_too_many_rules_is_refused(runner: Runner, workspace: Path):
    for number in range(4200):
        (workspace / f"n{number}").touch()
    manifest = {"fs_read_allow": [str(workspace)], "fs_deny": [str(workspace / "n7")]}
    with pytest.raises(RpcError) as refused:
        runner.run("true", manifest=manifest)
    assert (refused.value.kind, refused.value.field) == ("PolicyNotSupported", "fs_deny")


@pytest.mark.requires("git")
def test_a_protected_file_is_put_back_and_reported(runner: Runner, workspace: Path):
    repository(workspace)
    config = workspace / ".git" / "config"
    before = config.read_text()
    door = ".git/hooks/pre-commit"
    script = f"git config core.pager evil; mv .git/hooks .git/x; mkdir .git/hooks; echo x > {door}"
    preset = {"preset": "workspace-write", "workspace": str(workspace)}
    ran = runner.shell(script, manifest={"env": [["HOME", "/"]]}, **preset)
    assert config.read_text() == before
    assert not (workspace / ".git" / "hooks" / "pre-commit").exists()
    told = {d["target"] for d in ran.denials if d["kind"] == "protected_path"}
    assert {str(config), str(config.with_name("hooks"))} <= told


@pytest.mark.requires("git")
def test_git_works_in_a_workspace(runner: Runner, workspace: Path):
    repository(workspace)
    script = "date > a && git add a && git commit -qm a && git branch b && git log --format=%s"
    preset = {"preset": "workspace-write", "workspace": str(workspace)}
    ran = runner.shell(script, **preset)
    assert (ran.stdout, ran.exit_code) == ("a\n", 0), ran.stderr
    assert not [d for d in ran.denials if d["kind"] == "protected_path"]
    assert {ran.enforcement[f] for f in ran.enforcement if f in LOOSE} == {"best_effort"}
    # Without a cgroup the kernel counts all processes of the user, not the sandbox's alone.
    firm = set(ran.enforcement) - LOOSE - {"max_processes"}
    assert {ran.enforcement[f] for f in firm} == {"enforced"}


# the user's other things


def test_the_users_terminals_are_closed(runner: Runner):
    master, slave = pty.openpty()
    try:
        attack = ("sh", "-c", 'echo typed > "$1"', "sh", os.ttyname(slave))
        assert subprocess.run(attack, check=False).returncode == 0  # the control
        ran = runner.run(*attack)
        assert ran.exit_code != 0
        with_pty = runner.run(*attack, pty={"rows": 10, "cols": 20})
        assert with_pty.exit_code != 0
    finally:
        os.close(master)
        os.close(slave)


def test_a_command_has_a_terminal_of_its_own(runner: Runner):
    script = "tty > /dev/null && stty size && echo again > /dev/tty && echo err > /dev/stderr"
    ran = runner.shell(script, pty={"rows": 10, "cols": 20})
    assert ran.stdout == "10 20\r\nagain\r\nerr\r\n"


def test_signals_do_not_leave_the_sandbox(runner: Runner, backend: Daemon):
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        pids = [str(bystander.pid), str(backend.process.pid)]
        assert not runner.shell('kill -9 "$@"', *pids).exited(0)
        kill_everybody(runner, "kill -9 -1")
        assert bystander.poll() is None
        assert backend.process.poll() is None
        assert runner.run("true").exited(0)
    finally:
        bystander.kill()
        bystander.wait()


def test_nothing_survives_a_command_that_kills_everybody_it_can(runner: Runner, backend: Daemon):
    """Its init and its reaper go with it; what it started first must go all the same."""
    kill_everybody(runner, "setsid sleep 997 & kill -9 -1")
    left = [p for p in processes_below(backend.process.pid) if p.name == "sleep"]
    assert not survivors(left)
    everywhere = subprocess.run(["pgrep", "-fx", "sleep 997"], capture_output=True, check=False)
    assert everywhere.stdout == b""


def test_sockets_of_the_host_are_out_of_reach(runner: Runner, tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as listener:
        path = f"/tmp/sbx-test-{os.getpid()}.sock"
        listener.bind(path)
        try:
            listener.listen()
            attack = f"import socket; socket.socket(socket.AF_UNIX).connect({path!r})"
            argv = ("/usr/bin/python3", "-c", attack)
            assert subprocess.run(argv, check=False).returncode == 0  # the control
            for network in ("inherit", "deny"):
                assert not runner.run(*argv, manifest={"network": network}).exited(0)
        finally:
            os.unlink(path)


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_network_deny_makes_no_socket(runner: Runner, kind: str):
    make = f"import socket; socket.socket(socket.AF_INET, socket.{kind})"
    argv = ("/usr/bin/python3", "-c", make)
    assert runner.run(*argv).exited(0)  # the control
    ran = runner.run(*argv, manifest={"network": "deny"})
    assert not ran.exited(0)
    assert ran.enforcement == {"network": "enforced"}


def test_allow_hosts_is_refused(runner: Runner):
    manifest = {"network": {"kind": "allow_hosts", "hosts": ["example.org"]}}
    with pytest.raises(RpcError) as refused:
        runner.run("true", manifest=manifest)
    assert (refused.value.kind, refused.value.field) == ("PolicyNotSupported", "network")


# identity


@pytest.mark.requires("root")
def test_root_has_no_capabilities_and_cannot_get_any(runner: Runner):
    ran = runner.shell("grep -h Cap /proc/self/status", manifest={"base": "host"})
    assert {line.split()[1] for line in ran.stdout.splitlines()} == {"0" * 16}
    for path in ("/etc/shadow", "/proc/sys/kernel/core_pattern"):
        opened = runner.shell(f": >> {path}", manifest={"base": "host"})
        assert opened.exit_code != 0, path


@pytest.mark.requires("root")
def test_root_runs_a_command_as_the_owner_of_the_workspace(runner: Runner, workspace: Path):
    owner = unprivileged_user()
    for folder in (workspace, *workspace.parents[:3]):
        os.chmod(folder, 0o755)
    os.chown(workspace, owner.pw_uid, owner.pw_gid)
    preset = {"preset": "workspace-write", "workspace": str(workspace)}
    ran = runner.shell('id -u; echo x > made; echo x > "$TMPDIR/made"; tty < /dev/tty', **preset)
    assert ran.stdout.split()[0] == str(owner.pw_uid)
    assert (workspace / "made").stat().st_uid == owner.pw_uid


# what people see


def test_manifest_check_previews_the_rules(runner: Runner, workspace: Path):
    checked = runner.check(manifest={"fs_write_allow": [str(workspace)]})
    assert checked["backend"] == "landlock"
    words = checked["command_line"]
    assert words[words.index(str(workspace)) - 1] == "--write"
    assert words[words.index("/usr") - 1] == "--read"


def test_a_persistent_sandbox_shares_its_folder(runner: Runner):
    sandbox = runner.connection.call("sandbox/create", {"manifest": {}})["sandbox"]
    assert runner.shell('echo kept > "$TMPDIR/x"', sandbox=sandbox).exited(0)
    assert runner.shell('cat "$TMPDIR/x"', sandbox=sandbox).stdout == "kept\n"
    runner.connection.call("sandbox/destroy", {"sandbox": sandbox})


def test_denials_know_that_nothing_is_mounted(runner: Runner, workspace: Path):
    """/tmp is closed here, and a masked file is refused instead of reading as empty."""
    (denial,) = runner.run("touch", "/tmp/sbx-new").denials
    assert (denial["kind"], denial["target"]) == ("filesystem_write", "/tmp/sbx-new")
    secret = workspace / "secret"
    secret.write_text("x")
    manifest = {"fs_read_allow": [str(workspace)], "fs_deny": [str(secret)]}
    (denial,) = runner.run("cat", str(secret), manifest=manifest).denials
    assert (denial["kind"], denial["target"]) == ("filesystem_read", str(secret))


@pytest.mark.parametrize("field", ["tmp_bytes", "shm_bytes"])
def test_a_size_that_nothing_holds_is_refused_and_not_shown(runner: Runner, field: str) -> None:
    with pytest.raises(RpcError) as refusal:
        runner.connection.call("execute", {"argv": ["true"], "manifest": {field: 1 << 20}})
    assert refusal.value.data["field"] == field
    assert "bubblewrap" in refusal.value.data["remedy"]
    plan = runner.connection.call("manifest/check", {"manifest": {}})["plan"]
    assert plan[field] is None
