"""Folders that are copied to a sandbox and back, through a daemon and the fake lifecycle server.

Its sandboxes have a /tmp of their own (bubblewrap), where the tests' folders are copied to.
"""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon
from support.fake_opensandbox import FakeServer
from support.rpc import RpcError
from support.runs import Ran, Runner

INHERIT = {"network": "inherit"}
OTHER = 65534
Shell = Callable[..., Ran]


@pytest.fixture
def workspace(tmp_path: Path, fake: FakeServer) -> Path:
    fake.files = True
    folder = tmp_path / "work"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("a of the host\n")
    (folder / "sub" / "b").write_text("b of the host\n")
    (folder / "link").symlink_to("a")
    return folder


@pytest.fixture
def shell(runner: Runner, workspace: Path) -> Shell:
    """shell(script): with the workspace writable."""

    def run(script: str, **params: Any) -> Ran:
        manifest = {**INHERIT, "fs_write_allow": [str(workspace)], **params.pop("manifest", {})}
        return runner.shell(script, manifest=manifest, cwd=str(workspace), **params)

    return run


def test_a_command_sees_the_folder_and_its_changes_come_back(
    shell: Shell, workspace: Path, fake: FakeServer
) -> None:
    (workspace / "run").write_text("#!/bin/sh\n")
    (workspace / "run").chmod(0o750)
    ran = shell(
        "cat a sub/b link && stat -c %a run && echo new >sub/new && echo more >>a && rm sub/b && "
        "mkdir -p x/y && ln -s nowhere x/y/l && chmod 700 run"
    )
    assert ran.exited(0), ran.story
    assert ran.stdout == "a of the host\nb of the host\na of the host\n750\n"
    assert (workspace / "a").read_text() == "a of the host\nmore\n"
    assert (workspace / "sub" / "new").read_text() == "new\n"
    assert not (workspace / "sub" / "b").exists()
    assert os.readlink(workspace / "x/y/l") == "nowhere"
    assert stat.S_IMODE((workspace / "run").stat().st_mode) == 0o700
    assert ran.raw["warnings"] == []
    assert sorted(os.listdir(workspace)) == ["a", "link", "run", "sub", "x"]
    assert not fake.sandboxes
    assert "volumes" not in fake.created[0]


def test_a_file_that_may_be_written_is_written_in_place(
    runner: Runner, workspace: Path, fake: FakeServer
) -> None:
    file = workspace / "a"
    inode = file.stat().st_ino
    manifest = {**INHERIT, "fs_write_allow": [str(file)]}
    assert runner.shell(f"echo b >{file}; echo x >{workspace}/x", manifest=manifest).exited(0)
    assert (file.read_text(), file.stat().st_ino) == ("b\n", inode)
    assert sorted(os.listdir(workspace)) == ["a", "link", "sub"]
    _when_downloading(fake, lambda: file.write_text("by the user") and None)
    ran = runner.shell(f"echo c >{file}", manifest=manifest)
    assert file.read_text() == "by the user"
    assert ran.raw["warnings"][0].startswith(f"conflict: {file} ")


def test_the_copy_is_a_copy(shell: Shell, workspace: Path, fake: FakeServer) -> None:
    """The control: what is not brought back has not happened on this machine."""
    fake.faults["download"] = 500
    with pytest.raises(RpcError, match="not brought back"):
        shell("echo changed >a; rm -r sub")
    assert (workspace / "a").read_text() == "a of the host\n"
    assert (workspace / "sub" / "b").exists()
    assert not fake.sandboxes


def test_a_folder_that_may_be_read_stays_as_it_is(
    runner: Runner, workspace: Path, fake: FakeServer
) -> None:
    manifest = {**INHERIT, "fs_read_allow": [str(workspace)]}
    ran = runner.shell("cat a && echo x >a", manifest=manifest, cwd=str(workspace))
    assert ran.stdout == "a of the host\n"
    assert (workspace / "a").read_text() == "a of the host\n"
    assert not [path for _, path, _ in fake.requests if "download" in path]


def test_hidden_paths_are_not_sent_and_do_not_come_back(shell: Shell, workspace: Path) -> None:
    (workspace / "secret").write_text("hidden")
    ran = shell(
        "! cat secret && echo planted >secret", manifest={"fs_deny": [str(workspace / "secret")]}
    )
    assert ran.exited(0), ran.story
    assert (workspace / "secret").read_text() == "hidden"
    assert any("hidden on this machine" in line for line in ran.raw["warnings"])


def test_a_changed_file_of_the_host_is_a_conflict_and_stays(
    shell: Shell, workspace: Path, fake: FakeServer
) -> None:
    for name in ("edited", "removed", "made", "gone"):
        if name != "made":
            (workspace / name).write_text("before\n")

    def meanwhile() -> None:
        (workspace / "edited").write_text("by the user\n")
        (workspace / "made").write_text("by the user\n")
        (workspace / "removed").write_text("by the user\n")
        (workspace / "gone").unlink()

    _when_downloading(fake, meanwhile)
    ran = shell("echo by the sandbox | tee edited made gone; rm removed; echo fine >a")
    assert ran.exited(0), ran.story
    for name in ("edited", "made", "removed"):
        assert (workspace / name).read_text() == "by the user\n"
    assert not (workspace / "gone").exists()
    assert (workspace / "a").read_text() == "fine\n"
    lines = [line for line in ran.raw["warnings"] if line.startswith("conflict: ")]
    assert {line.split()[1] for line in lines} == {
        str(workspace / name) for name in ("edited", "made", "removed", "gone")
    }
    (kept,) = [line.rsplit(" ", 1)[1] for line in lines if f"{workspace}/edited " in line]
    assert Path(kept).read_text() == "by the sandbox\n"


def test_of_two_commands_the_second_has_the_conflict(
    daemon: Daemon, shell: Shell, workspace: Path, fake: FakeServer
) -> None:
    other = Runner(daemon)
    manifest = {**INHERIT, "fs_write_allow": [str(workspace)]}

    def run_second() -> None:
        ran = other.shell("echo second >a; echo second >b", manifest=manifest, cwd=str(workspace))
        assert ran.exited(0), ran.story

    _when_downloading(fake, run_second)
    ran = shell("echo first >a; echo first >c")
    other.close()
    assert [(workspace / name).read_text() for name in "abc"] == ["second\n", "second\n", "first\n"]
    assert [line.split()[1] for line in ran.raw["warnings"]] == [str(workspace / "a")]


def test_set_id_bits_and_special_files_do_not_come_back(shell: Shell, workspace: Path) -> None:
    ran = shell("cp /bin/true t && chmod 6755 t && mkfifo f && ln a hard && echo via >>hard")
    assert ran.exited(0), ran.story
    assert stat.S_IMODE((workspace / "t").stat().st_mode) == 0o755
    assert not (workspace / "f").exists()
    assert (workspace / "hard").read_text() == (workspace / "a").read_text()
    assert (workspace / "a").read_text() == "a of the host\nvia\n"
    said = "\n".join(ran.raw["warnings"])
    assert f"{workspace}/t lost its set-uid" in said
    assert f"{workspace}/f was not brought back" in said


def test_nothing_is_written_through_a_link(shell: Shell, workspace: Path, tmp_path: Path) -> None:
    """A folder that became a link on the host meanwhile, and one that the sandbox made."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b").write_text("outside\n")
    ran = shell(f"rm -r sub; ln -s {outside} sub; echo x >>link")
    assert ran.exited(0), ran.story
    assert os.readlink(workspace / "sub") == str(outside)
    ran = shell("echo planted >sub/b; echo planted >sub/c")
    assert (outside / "b").read_text() == "outside\n"
    assert not (outside / "c").exists()


def test_protected_files_stay_and_are_reported(
    runner: Runner, workspace: Path, fake: FakeServer
) -> None:
    subprocess.run(["git", "init", "-q", workspace], check=True)
    config = (workspace / ".git" / "config").read_text()
    ran = runner.shell(
        "echo '[core] fsmonitor = evil' >>.git/config; echo evil >.git/hooks/pre-commit; "
        "mkdir .vscode; echo evil >.vscode/tasks.json; echo evil >.envrc; echo fine >made",
        preset="workspace-write", workspace=str(workspace), manifest=INHERIT,
    )  # fmt: skip
    assert ran.exited(0), ran.story
    assert (workspace / ".git" / "config").read_text() == config
    assert not (workspace / ".git" / "hooks" / "pre-commit").exists()
    assert not (workspace / ".vscode").exists()
    assert not (workspace / ".envrc").exists()
    assert (workspace / "made").read_text() == "fine\n"
    told = {one["target"] for one in ran.denials if one["kind"] == "protected_path"}
    assert {f"{workspace}/{name}" for name in (".git/config", ".envrc")} <= told


def test_git_works_and_its_folder_is_judged(runner: Runner, workspace: Path) -> None:
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        _git(workspace, *words)
    script = (
        "git config --get core.bare; echo x >>a && git -c user.name=n -c user.email=e commit -qam "
        "second && mkdir .git/evil && echo run >.git/rebase-merge-exec"
    )
    options = {"preset": "workspace-write", "workspace": str(workspace), "manifest": INHERIT}
    env = [["GIT_CONFIG_COUNT", "1"], ["GIT_CONFIG_KEY_0", "safe.directory"],
           ["GIT_CONFIG_VALUE_0", "*"], ["PATH", os.environ["PATH"]]]  # fmt: skip
    options["manifest"] = {**INHERIT, "env": env}
    ran = runner.shell(script, **options)
    assert ran.exited(0), ran.story
    assert _git(workspace, "log", "--format=%s") == "second\nfirst\n"
    assert _git(workspace, "status", "--porcelain", "--", "a", "sub") == ""
    assert not (workspace / ".git" / "rebase-merge-exec").exists()
    assert [one for one in ran.denials if one["kind"] == "protected_path"], ran.story


def _git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=e", "-C", str(folder))
    return subprocess.run(
        ["git", *who, *words], check=True, capture_output=True, text=True
    ).stdout  # fmt: skip


def test_a_persistent_sandbox_is_kept_up_to_date(
    runner: Runner, workspace: Path, fake: FakeServer
) -> None:
    manifest = {**INHERIT, "fs_write_allow": [str(workspace)]}
    made = runner.connection.call("sandbox/create", {"manifest": manifest})["sandbox"]

    def run(script: str) -> Ran:
        return runner.shell(f"cd {workspace} && {script}", sandbox=made)

    assert run("echo 1 >one; echo kept >/tmp/kept").exited(0)
    assert (workspace / "one").read_text() == "1\n"
    (workspace / "one").write_text("of the host\n")
    (workspace / "two").write_text("two\n")
    (workspace / "a").unlink()
    ran = run("cat one two /tmp/kept; ls; rm two")
    assert ran.stdout == "of the host\ntwo\nkept\nlink\none\nsub\ntwo\n", ran.story
    assert not (workspace / "two").exists()
    assert len(fake.created) == 1
    runner.connection.call("sandbox/destroy", {"sandbox": made})
    assert not fake.sandboxes


def test_an_older_copy_does_not_undo_a_newer_one(
    daemon: Daemon, runner: Runner, workspace: Path, fake: FakeServer
) -> None:
    """Two commands of one sandbox end; the first one's archive comes late."""
    manifest = {**INHERIT, "fs_write_allow": [str(workspace)]}
    made = runner.connection.call("sandbox/create", {"manifest": manifest})["sandbox"]
    second = Runner(daemon)
    running = []

    def step(handler: Any) -> None:
        del fake.faults["download"]
        held = io.BytesIO()
        out, handler.wfile = handler.wfile, held
        handler.download()
        handler.wfile = out
        script = f"echo second >{workspace}/a"
        later = threading.Thread(target=second.shell, args=(script,), kwargs={"sandbox": made})
        later.start()
        running.append(later)
        later.join(1)  # it would be through by now if it did not have to wait
        out.write(held.getvalue())

    fake.faults["download"] = step
    assert runner.shell(f"echo first >{workspace}/a", sandbox=made).exited(0)
    running[0].join(30)
    assert (workspace / "a").read_text() == "second\n"
    second.close()
    runner.connection.call("sandbox/destroy", {"sandbox": made})


def test_names_that_are_no_text_come_back_and_are_shown_harmless(
    shell: Shell, workspace: Path
) -> None:
    ran = shell('n=$(printf \'x\\377\\033[31m\'); cp /bin/true "$n" && chmod 4755 "$n"')
    assert ran.exited(0), ran.story
    assert b"x\xff\x1b[31m" in os.listdir(os.fsencode(workspace))
    (line,) = ran.raw["warnings"]
    assert "x\ufffd?[31m lost its set-uid" in line


def test_a_command_that_is_ended_leaves_what_it_wrote(shell: Shell, workspace: Path) -> None:
    ran = shell("echo begun >begun; exec sleep 60", manifest={"timeout": 1})
    assert ran.outcome == "timeout"
    assert (workspace / "begun").read_text() == "begun\n"


def test_progress_is_told(daemon: Daemon, workspace: Path) -> None:
    (workspace / "large").write_bytes(os.urandom(1 << 20))
    manifest = {**INHERIT, "fs_write_allow": [str(workspace)]}
    with daemon.connect() as connection:
        params = {"argv": ["true"], "manifest": manifest, "stream": True, "execution_id": "told"}
        connection.call("execute", params)
        told = [
            one["params"] for one in connection.notifications
            if one["method"] == "execution/progress"
        ]  # fmt: skip
    copied = [one for one in told if one["phase"] in ("upload", "download")]
    assert {one["phase"] for one in copied} == {"upload", "download"}
    assert all(one["done"] <= one["total"] and one["execution_id"] == "told" for one in copied)


@pytest.mark.parametrize("limit", ["copy_max_bytes", "copy_max_files"])
def test_too_much_is_refused_in_both_directions(
    own_fake: FakeServer, daemon_on: Callable[..., Any], tmp_path: Path, limit: str
) -> None:
    own_fake.files = True
    most = {"copy_max_bytes": "100000", "copy_max_files": "20"}[limit]
    folder = tmp_path / "work"
    folder.mkdir()
    manifest = {**INHERIT, "fs_write_allow": [str(folder)]}
    with daemon_on(own_fake.url, **{limit: most}) as daemon:
        runner = Runner(daemon)
        grow = "i=0; while [ $i -lt 30 ]; do head -c 9999 /dev/zero >$i; i=$((i+1)); done"
        with pytest.raises(RpcError, match="more than"):
            runner.shell(grow, manifest=manifest, cwd=str(folder))
        with pytest.raises(RpcError, match="more than"):
            runner.shell("truncate -s 1T sparse", manifest=manifest, cwd=str(folder))
        assert os.listdir(folder) == []
        for number in range(30):
            (folder / str(number)).write_bytes(bytes(9999))
        with pytest.raises(RpcError) as refused:
            runner.run("true", manifest=manifest)
        runner.close()
    assert (refused.value.kind, refused.value.field) == ("PolicyNotSupported", "fs_write_allow")
    assert not own_fake.sandboxes


@pytest.fixture
def foreign(fake: FakeServer) -> Iterator[Path]:
    """A workspace of another user, whom the daemon of root copies for."""
    if os.geteuid() != 0:
        pytest.skip("a daemon of root")
    fake.files = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "given").write_text("given\n")
        (folder / "of-root").write_text("of root\n")
        (folder / "of-root").chmod(0o600)
        (folder / "folder-of-root").mkdir(mode=0o755)
        for path in (folder, folder / "given"):
            os.chown(path, OTHER, OTHER)
        yield folder


def test_a_daemon_of_root_copies_as_the_owner_of_the_workspace(
    runner: Runner, foreign: Path
) -> None:
    """What the owner cannot read is not sent, and what comes back is the owner's own."""
    params = {"preset": "workspace-write", "workspace": str(foreign), "manifest": INHERIT}
    ran = runner.shell("ls; cat given; echo more >>given; mkdir made; echo x >made/x", **params)
    assert ran.exited(0), ran.story
    assert ran.stdout == "folder-of-root\ngiven\ngiven\n"
    assert ran.raw["warnings"] == [f"{foreign}/of-root cannot be read, and was not copied"]
    assert (foreign / "of-root").read_text() == "of root\n"
    assert (foreign / "given").read_text() == "given\nmore\n"
    for name in ("given", "made", "made/x"):
        assert (foreign / name).stat().st_uid == OTHER
    with pytest.raises(RpcError, match="could not be written on this machine"):
        runner.shell("echo x >folder-of-root/x", **params)
    assert os.listdir(foreign / "folder-of-root") == []
    assert os.geteuid() == 0


def _when_downloading(fake: FakeServer, act: Callable[[], None]) -> None:
    """Once, after the command has ended and before its changes are there."""

    def step(handler: Any) -> None:
        del fake.faults["download"]
        worker = threading.Thread(target=act)
        worker.start()
        worker.join(30)
        handler.download()

    fake.faults["download"] = step
