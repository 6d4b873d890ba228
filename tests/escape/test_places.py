"""What a request may ask for: system folders, the whole machine, secrets that are made later."""

from __future__ import annotations

import os
import pwd
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box, Victim, freely, python, weakest
from support.backends import running_backend
from support.daemon import running_daemon
from support.rpc import RpcError
from support.runs import Runner
from support.users import unprivileged_user

pytestmark = pytest.mark.isolation

READ = python("worked() if open(args[0]).read() == args[1] else blocked('other content')")
WRITE = python("open(args[0], 'w').write('changed'); worked()")
SYSTEM = ["/sys", "/proc", "/dev", "/etc", "/usr", "/boot", "/var", "/home", "/run", "/var/lib"]


@pytest.mark.parametrize("path", [path for path in SYSTEM if os.path.isdir(path)])
def test_folder_of_the_system_is_no_workspace(box: Box, path: str) -> None:
    with pytest.raises(RpcError) as refusal:
        box.run("true", preset="workspace-write", workspace=path)
    assert (refusal.value.kind, refusal.value.field) == ("PathDenied", "workspace")
    with pytest.raises(RpcError) as refusal:
        box.run("true", manifest={"fs_write_allow": [path]})
    assert refusal.value.kind == "PathDenied"


@pytest.mark.requires("root")
def test_home_of_another_user_is_no_workspace(box: Box) -> None:
    home = unprivileged_user().pw_dir
    with pytest.raises(RpcError) as refusal:
        box.run("true", preset="workspace-write", workspace=home)
    assert refusal.value.kind == "PathDenied"


# the whole machine


@pytest.mark.requires("bubblewrap")
@pytest.mark.parametrize("base", ["minimal", "host"])
def test_whole_machine_is_shown_by_the_backend_that_was_announced(base: str, late: Path) -> None:
    """A manifest never moves a command to another backend. Secrets in the home stay masked."""
    late.write_text(Victim.ORIGINAL)
    manifest = {"base": base, "fs_read_allow": ["/"]}
    with running_daemon() as daemon:
        runner = Runner(daemon)
        announced = runner.check(manifest=manifest)["backend"]
        script = 'cat "$1"; ls -d "$2"; echo > /x; echo fine > /tmp/x && cat /tmp/x'
        ran = runner.shell(script, str(late), str(HOME), manifest=manifest)
        runner.close()
    assert (announced, ran.raw["backend"]) == ("bubblewrap", "bubblewrap")
    assert ran.stdout == f"{HOME}\nfine\n"
    assert not os.path.exists("/x")


@pytest.mark.requires("bubblewrap")
@pytest.mark.parametrize("base", ["minimal", "host"])
def test_wide_and_odd_grants_stay_on_bubblewrap(base: str, open_folder: Path) -> None:
    """Each of these once made bwrap fail, and the command ran behind a weaker wall."""
    paths = ["/var", "/usr", "/etc", "/sys", "/home", "/tmp", "/var/tmp", str(open_folder)]
    with running_daemon() as daemon:
        runner = Runner(daemon)
        for path in paths:
            for allowed in ([path], ["/", path], [path, "/usr/share"]):
                ran = runner.run("true", manifest={"base": base, "fs_read_allow": allowed})
                assert (ran.raw["backend"], ran.exit_code) == ("bubblewrap", 0), allowed
        runner.close()


def test_whole_machine_is_not_writable(box: Box) -> None:
    with pytest.raises(RpcError) as refusal:
        box.run("true", manifest={"fs_write_allow": ["/"]})
    assert refusal.value.kind == "PathDenied"


# secrets that come into being


HOME = Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()


@pytest.fixture
def late() -> Iterator[Path]:
    """A default mask that does not exist here."""
    path = HOME / ".esd_auth"
    assert not path.exists()
    yield path
    path.unlink(missing_ok=True)


def test_secret_that_is_made_while_a_command_runs_is_told(box: Box, late: Path) -> None:
    """Nothing can be mounted over what does not exist: the result says that it showed."""
    manifest = weakest(fs_read_allow=[str(late.parent)])
    assert box.run("true", manifest=manifest).raw["warnings"] == []
    params = {"argv": ["cat"], "stream": True, "stdin_open": True, "execution_id": "waits"}
    with box.daemon.connect() as other:
        request = other.start("execute", {**params, "manifest": manifest})
        other.notification("execution/started")
        late.write_text(Victim.ORIGINAL)
        other.call("execution/close_stdin", {"execution_id": "waits"})
        result = other.result(request)
    assert str(late) in str(result["warnings"])
    assert freely(READ, late, Victim.ORIGINAL).worked
    assert box.attack(READ, late, Victim.ORIGINAL, manifest=manifest).blocked
    assert box.run("true", manifest=manifest).raw["warnings"] == []


def test_secret_that_is_made_later_ends_a_persistent_sandbox(box: Box, late: Path) -> None:
    manifest = weakest(fs_read_allow=[str(late.parent)])
    sandbox = box.connection.call("sandbox/create", {"manifest": manifest})["sandbox"]
    assert box.run("true", sandbox=sandbox).exited(0)
    late.write_text(Victim.ORIGINAL)
    with pytest.raises(RpcError) as refusal:
        box.run(*READ, str(late), Victim.ORIGINAL, sandbox=sandbox)
    assert refusal.value.kind == "SandboxUnavailable"
    with pytest.raises(RpcError) as refusal:
        box.run("true", sandbox=sandbox)
    assert refusal.value.kind == "NotFound"


# groups


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """pytest's own folders are closed to other users."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


GROUPED = 'mount --bind "$1" /etc/group; shift; exec "$@"'


@pytest.mark.requires("root")
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("base", ["host", "minimal"])
def test_warm_sandbox_does_not_keep_groups_that_were_taken_away(
    backend: str, base: str, open_folder: Path
) -> None:
    """The accounts of the machine change while a sandbox waits for its command."""
    user = unprivileged_user()
    workspace, outside = open_folder / "workspace", open_folder / "outside"
    workspace.mkdir()
    outside.mkdir()
    os.chown(workspace, user.pw_uid, user.pw_gid)
    shared = Victim(outside / "shared")
    os.chown(shared.path, 0, 54321)
    shared.path.chmod(0o640)
    accounts = outside / "group"
    before = Path("/etc/group").read_text()
    accounts.write_text(f"{before}testers:x:54321:{user.pw_name}\n")
    manifest = weakest(workspace, fs_read_allow=[str(outside)], base=base)
    prefix = ["unshare", "--mount", "sh", "-c", GROUPED, "sh", str(accounts)]
    with running_backend(backend, prefix=prefix) as daemon:
        box = Box(backend, daemon)
        for _ in range(3):
            assert box.attack(READ, shared, Victim.ORIGINAL, manifest=manifest).worked
            time.sleep(0.1)  # a sandbox is made for the next one
        accounts.write_text(before)
        for _ in range(2):
            assert box.attack(READ, shared, Victim.ORIGINAL, manifest=manifest).blocked
        box.close()
