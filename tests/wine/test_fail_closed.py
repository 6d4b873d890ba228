"""Where Windows' isolation is missing the product refuses by its own checks, one by one.

These run where there is no AppContainer, where a job does not say back its limits, where integrity
levels and foreign access-control entries are not kept. On a real Windows `tests/windows` has the
enforcement suite instead.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from wine.conftest import ELEVATED, Ctl, WindowsDaemon, start

from sandboxd.backends.appcontainer.sandbox import AppContainerSandbox, AppIdentity
from sandboxd.backends.windows_context import WindowsSupport
from sandboxd.platform.windows.loop import new_event_loop
from sandboxd.platform.windows.paths import internal
from sandboxd.policy.plan import Limits, Protected
from sandboxd.types import Command, PtyRequest, Stdio
from sandboxd.windows import ends
from sandboxd.windows.access_lists import acls
from sandboxd.windows.access_lists.acl_plan import INHERITED, WRITE, AclEntry, AclPlan
from sandboxd.windows.access_lists.acls import AclStore
from sandboxd.windows.access_lists.granting import GrantError, apply
from sandboxd.windows.access_lists.journal import Journal, Owner, read
from sandboxd.windows.access_lists.owners import current_owner, is_alive
from sandboxd.windows.access_lists.pinned_parents import pinned
from sandboxd.windows.app_containers.capabilities import SecurityCapabilities
from sandboxd.windows.app_containers.inspector import LiveProcess
from sandboxd.windows.app_containers.packages import capability_sid, package_sid, profile_name
from sandboxd.windows.app_containers.profiles import ProfileError, create_profile
from sandboxd.windows.app_containers.verification import (
    Expected,
    NotVerifiedError,
    missing,
    resume_verified,
)
from sandboxd.windows.folders.change_records import ADDED
from sandboxd.windows.folders.directory_changes import Changes, DirectoryChanges
from sandboxd.windows.job_objects.job_limits import sandbox_limits
from sandboxd.windows.job_objects.jobs import Job, JobPort
from sandboxd.windows.processes import exits
from sandboxd.windows.processes.program import program_for
from sandboxd.windows.processes.spawn import Suspended, spawn
from sandboxd.windows.structures import PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES
from sandboxd.windows.tokens import current_user
from sandboxd.workspace_guard.by_name.directory_watch import DirectoryWatch
from sandboxd.workspace_guard.by_name.quarantine import PathQuarantine
from sandboxd_client.client import Client
from sandboxd_proto.errors import ExecFailed, PolicyNotSupported, SandboxUnavailable

PACKAGE = package_sid("sandboxd.test")


def run(work: Callable[[], Awaitable[None]]) -> None:
    anyio.run(work, backend_options={"loop_factory": new_event_loop})


def test_execute_is_refused_and_nothing_runs(sandboxing: WindowsDaemon, tmp_path: Path) -> None:
    made = tmp_path / "made"
    program = f"open({str(made)!r}, 'w')"
    with Client(sandboxing.pipe) as client, pytest.raises(SandboxUnavailable, match="AppContainer"):
        client.execute([sys.executable, "-c", program], manifest={"env": sandboxing.env})
    assert not made.exists()


def test_what_a_refused_command_left_in_the_journal_does_not_keep_the_next_daemon_from_starting(
    tmp_path: Path,
) -> None:
    """A profile is announced before it is made, and the daemon is killed."""
    pipe = rf"\\.\pipe\sandboxd-again-{os.getpid()}"
    journals = tmp_path / "sandboxd" / "journals"
    journal = Journal(str(journals), Owner(999_998, 1))
    journal.announce("profile", profile_name("1" * 32))
    journal.announce("acl", internal(str(tmp_path / "gone")), sid="S-1-15-3-1", file_id="1:2")
    os.close(journal._fd)
    (journals / "7-7.journal").write_bytes(b"\x00 no journal\n")
    daemon = start(pipe, tmp_path, {"SANDBOXD_BACKEND": "auto"}, *ELEVATED)
    try:
        with Client(pipe) as client, pytest.raises(SandboxUnavailable, match="AppContainer"):
            client.execute(["cmd.exe"], manifest={"env": daemon.env})
        left = {path.name for path in journals.iterdir()}
        assert os.path.basename(journal.path) not in left
        assert "7-7.journal.unreadable" in left
    finally:
        daemon.kill()


def test_status_says_why(sandboxing: WindowsDaemon) -> None:
    with Client(sandboxing.pipe) as client:
        found = {backend.name: backend for backend in client.status().backends}
    assert not found["appcontainer"].available
    assert "AppContainer" in (found["appcontainer"].reason or "")


def test_an_elevated_daemon_refuses_unless_its_config_permits_it(cautious: WindowsDaemon) -> None:
    if not ctypes.windll.shell32.IsUserAnAdmin():
        pytest.skip("these tests have no administrator's rights")
    with Client(cautious.pipe) as client, pytest.raises(SandboxUnavailable, match="administrator"):
        client.execute([sys.executable, "-c", ""], manifest={"env": cautious.env})


def test_no_profile_is_made() -> None:
    with pytest.raises(ProfileError, match="no AppContainer"):
        create_profile(profile_name("0" * 32))


def test_an_entry_that_is_not_said_back_is_refused_and_journalled(tmp_path: Path) -> None:
    target = tmp_path / "workspace"
    target.mkdir()
    journal = Journal(str(tmp_path / "journals"), Owner(1, 2))
    entry = AclEntry(
        internal(str(target)), capability_sid("sandboxd.write.x"), "allow", WRITE, INHERITED
    )
    with pytest.raises(GrantError):
        apply(AclPlan((entry,), frozenset({entry.sid})), AclStore(), journal)
    _, changes = read(journal.path)
    assert [change.path for change in changes] == [entry.path]
    journal.undo_all(AclStore())
    journal.close()
    assert not os.path.exists(journal.path)


def made(job: Job, more: list[tuple[int, object]] | None = None) -> tuple[Suspended, list[int]]:
    """A suspended process without an AppContainer, in its job."""
    command = Command(
        argv=(sys.executable, "-c", "import sys; sys.exit(9)"),
        env=(("PATH", os.environ["PATH"]),), cwd=internal(os.getcwd()), limits=Limits(),
        syscall_policy="inherit",
    )  # fmt: skip
    program = program_for(command, os.environ["TEMP"], os.path.isfile)
    pipes = [*ends.input_pipe(), *ends.output_pipe()]
    try:
        return spawn(program, Stdio(pipes[1], pipes[3], pipes[3]), job, more or []), pipes
    except BaseException:
        for handle in pipes:
            ends.close(handle)
        raise


def test_a_process_outside_an_appcontainer_is_never_resumed() -> None:
    async def work() -> None:
        job = Job(sandbox_limits(Limits(), 19045))
        process, pipes = made(job)
        inside = LiveProcess(process, job)
        found = missing(inside, Expected(current_user(), PACKAGE))
        assert "it is in no AppContainer" in found
        assert "its AppContainer is another one" in found
        assert "its integrity level is not Low" in found
        assert "the job does not say back its limits" in found
        assert inside.in_job()
        assert inside.user() == current_user()
        with pytest.raises(NotVerifiedError):
            resume_verified(inside, Expected(current_user(), PACKAGE))
        assert process.process == 0
        job.close()
        for handle in pipes:
            ends.close(handle)

    run(work)


def test_the_appcontainer_attribute_is_refused_by_the_system() -> None:
    async def work() -> None:
        job = Job(sandbox_limits(Limits(), 19045))
        held = SecurityCapabilities(PACKAGE, [capability_sid("sandboxd.read.x")])
        with pytest.raises(OSError, match=r".") as refused:
            made(job, [(PROC_THREAD_ATTRIBUTE_SECURITY_CAPABILITIES, held.value)])
        assert refused.value.winerror is not None
        held.close()
        job.close()

    run(work)


def test_a_journals_owner_is_known_by_its_creation_time() -> None:
    mine = current_owner()
    assert is_alive(mine)
    assert not is_alive(Owner(mine.pid, mine.created + 1))
    assert not is_alive(Owner(999_999, mine.created))


def test_a_terminated_job_has_the_daemons_code() -> None:
    async def work() -> None:
        job = Job(sandbox_limits(Limits(), 19045))
        process, pipes = made(job)
        job.terminate(exits.KILLED)
        process.close_thread()
        process.close()
        job.close()
        for handle in pipes:
            ends.close(handle)

    run(work)


def test_one_daemon_at_a_time_changes_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = internal(str(tmp_path))
    monkeypatch.setattr(acls, "LOCK_S", 0.2)
    busy: list[str] = []

    def other() -> None:
        try:
            with AclStore().locked(path.upper()):
                busy.append("entered")
        except OSError as error:
            busy.append(error.strerror or "")

    with AclStore().locked(path):
        with AclStore().locked(internal(str(tmp_path / "x"))):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(20)
    assert busy == ["another daemon changes its access list"]
    other()
    assert busy[1:] == ["entered"]


def test_changes_below_a_folder_are_told(tmp_path: Path) -> None:
    async def work() -> None:
        seen: list[tuple[int, str]] = []
        arrived = anyio.Event()

        def told(changes: Changes | None) -> None:
            seen.extend(changes or ())
            arrived.set()

        # Wine tells nothing of folders below the first that existed before.
        watch = DirectoryChanges(str(tmp_path), told)
        await anyio.to_thread.run_sync((tmp_path / "a").mkdir)
        with anyio.fail_after(30):
            await arrived.wait()
        assert seen == [(ADDED, "a")]
        assert watch.failed is None
        watch.close()
        with pytest.raises(OSError, match=r"."):
            DirectoryChanges(str(tmp_path / "missing"), told)

    run(work)


def test_a_path_that_is_there_for_a_moment_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        root = internal(str(tmp_path))
        watch = DirectoryWatch([Protected(f"{root}/.envrc", root, present=False)])
        arrived = anyio.Event()
        watch.on_change(arrived.set)

        def flash() -> None:
            (tmp_path / "other").touch()
            (tmp_path / ".ENVRC").touch()
            (tmp_path / ".ENVRC").unlink()

        await anyio.to_thread.run_sync(flash)
        with anyio.fail_after(30):
            await arrived.wait()
        assert watch.appeared() == [f"{root}/.envrc"]
        watch.close()

    run(work)


def test_a_root_that_cannot_be_watched_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        root = internal(str(tmp_path / "missing"))
        with pytest.raises(SandboxUnavailable, match="watched"):
            DirectoryWatch([Protected(f"{root}/x", root, present=False)])

    run(work)


def test_no_pseudo_console_is_taken_for_a_terminal(unsandboxed: WindowsDaemon) -> None:
    with Client(unsandboxed.pipe) as client, pytest.raises(PolicyNotSupported) as refused:
        client.execute(["cmd.exe"], pty={"rows": 9, "cols": 9}, manifest={"env": unsandboxed.env})
    assert refused.value.field == "pty"


def test_no_appcontainer_is_made_with_a_console_either(
    tmp_path: Path, child_env: tuple[tuple[str, str], ...]
) -> None:
    async def work() -> None:
        support = WindowsSupport(str(tmp_path), terminals=True)
        support.port = JobPort()
        sandbox = AppContainerSandbox(support, AppIdentity(PACKAGE, frozenset()), str(tmp_path))
        program = f"open({str(tmp_path / 'ran')!r}, 'w')"
        command = Command(
            argv=(sys.executable, "-c", program), env=child_env, cwd=internal("C:\\"),
            limits=Limits(), syscall_policy="inherit", pty=PtyRequest(24, 80),
        )  # fmt: skip
        try:
            with pytest.raises((SandboxUnavailable, ExecFailed)):
                await sandbox.spawn(command, None)
        finally:
            support.port.close()
        assert ends.terminals == {}

    run(work)
    assert not (tmp_path / "ran").exists()


def test_doctor_names_what_an_administrator_has_to_prepare(
    sandboxing: WindowsDaemon, ctl: Ctl
) -> None:
    told = ctl(sandboxing, "doctor")
    assert told.returncode == 1
    said = " ".join(told.stdout.split())  # long lines are broken
    assert "AppContainers may not look at C:\\" in said
    assert "icacls C:\\ /grant" in said
    assert "AppContainers may not open NUL" in said


def test_a_folder_above_stays_while_an_entry_is_moved(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("x")
    with pinned(str(tmp_path / "a")) as is_link:
        assert not is_link
        with pytest.raises(OSError, match=r"."):
            (tmp_path / "a").rename(tmp_path / "c")
    moved, to = PathQuarantine(str(tmp_path), pinned).take(["a", "b"])
    assert moved == ["a", "b"]
    assert os.listdir(tmp_path / "a") == []
    assert (tmp_path.joinpath(*to)).read_text() == "x"
