"""Backend `none` end to end on a Windows Python: streams, input, endings, quoting, environment."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import list2cmdline
from typing import Any

import pytest
from wine.conftest import BOTH_KEYS, ELEVATED, WindowsDaemon, start

from sandboxd.platform.regular_file import read_regular
from sandboxd.platform.windows.commands import MAX_UNITS
from sandboxd.windows.processes.exits import KILLED
from sandboxd_client.client import Client
from sandboxd_proto.errors import ExecFailed, InvalidParams, PathDenied
from sandboxd_proto.messages.execute import ExecuteResult

ARGUMENTS = [
    "",
    "a b",
    'say "hi"',
    "back\\slash",
    "end\\",
    '\\"',
    "tab\there",
    "%PATH%",
    "a&b",
    "ü€",
]


@pytest.fixture
def client(unsandboxed: WindowsDaemon) -> Iterator[Client]:
    with Client(unsandboxed.pipe) as found:
        yield found


def python(
    client: Client, daemon: WindowsDaemon, program: str, *arguments: str, **more: Any
) -> ExecuteResult:
    manifest = {"env": {**daemon.env, **more.pop("env", {})}, **more.pop("manifest", {})}
    return client.execute([sys.executable, "-c", program, *arguments], manifest=manifest, **more)


def test_output_of_both_streams_and_the_exit_code(
    client: Client, unsandboxed: WindowsDaemon
) -> None:
    program = "import sys; sys.stdout.write('out'); sys.stderr.write('err'); sys.exit(7)"
    result = python(client, unsandboxed, program)
    assert (result.outcome, result.exit_code, result.signal) == ("exited", 7, None)
    assert (result.stdout.data, result.stderr.data) == ("out", "err")
    assert result.backend == "none"


def test_an_exit_code_is_unsigned(client: Client, unsandboxed: WindowsDaemon) -> None:
    program = "import ctypes; ctypes.windll.kernel32.ExitProcess(0xC0000005)"
    assert python(client, unsandboxed, program).exit_code == 0xC0000005


def test_input_larger_than_the_pipe_arrives_whole(
    client: Client, unsandboxed: WindowsDaemon
) -> None:
    program = "import sys; sys.stdout.write(str(len(sys.stdin.buffer.read())))"
    result = python(client, unsandboxed, program, stdin="x" * 300_000)
    assert result.stdout.data == "300000"


def test_no_input_reads_as_the_end(client: Client, unsandboxed: WindowsDaemon) -> None:
    result = python(client, unsandboxed, "import sys; sys.stdout.write(repr(sys.stdin.read()))")
    assert result.stdout.data == "''"


def test_three_megabytes_arrive_whole(client: Client, unsandboxed: WindowsDaemon) -> None:
    result = python(client, unsandboxed, "import sys; sys.stdout.write('x' * 3_000_000)")
    assert (result.exit_code, result.stdout.bytes) == (0, 3_000_000)
    assert result.stdout.data == "x" * 3_000_000


def test_a_timeout_ends_the_command(client: Client, unsandboxed: WindowsDaemon) -> None:
    began = time.monotonic()
    result = python(
        client, unsandboxed, "import time; print('here', flush=True); time.sleep(100)",
        manifest={"timeout": 3},
    )  # fmt: skip
    assert (result.outcome, result.exit_code) == ("timeout", None)
    assert time.monotonic() - began < 60
    assert result.stdout.data.strip() == "here"


def test_what_a_command_leaves_behind_ends_with_it(
    client: Client, unsandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    note = tmp_path / "beats"
    child = "import sys, time\nwhile True:\n    open(sys.argv[1], 'a').write('.'); time.sleep(0.1)"
    program = (
        "import os, subprocess, sys, time\n"
        "flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP\n"
        "subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]], creationflags=flags)\n"
        "while not os.path.exists(sys.argv[2]): time.sleep(0.05)\n"
    )
    result = python(client, unsandboxed, program, child, str(note), manifest={"timeout": 60})
    assert (result.outcome, result.exit_code) == ("exited", 0)
    size = note.stat().st_size
    time.sleep(1.0)
    assert note.stat().st_size == size


def test_arguments_arrive_unchanged(client: Client, unsandboxed: WindowsDaemon) -> None:
    program = "import json, sys; sys.stdout.write(json.dumps(sys.argv[1:]))"
    result = python(client, unsandboxed, program, *ARGUMENTS)
    assert json.loads(result.stdout.data) == ARGUMENTS


def test_the_environment_is_the_manifests_and_what_no_program_starts_without(
    client: Client, unsandboxed: WindowsDaemon
) -> None:
    program = "import json, os, sys; sys.stdout.write(json.dumps(dict(os.environ)))"
    result = python(client, unsandboxed, program, env={"MARK": "ü", "SANDBOXD_SECRET": "1"})
    found = json.loads(result.stdout.data)
    assert found["MARK"] == "ü"
    added = {name for name in found if not name.startswith("WINE")}
    assert added == {
        "PATH", "MARK", "SANDBOXD_SECRET", "SYSTEMROOT", "SYSTEMDRIVE", "TEMP", "TMP"
    }  # fmt: skip


def test_the_current_folder_is_the_one_that_was_named(
    client: Client, unsandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    program = "import os, sys; sys.stdout.write(os.getcwd())"
    allowed = {"fs_read_allow": [str(tmp_path)]}
    result = python(client, unsandboxed, program, cwd=str(tmp_path), manifest=allowed)
    assert Path(result.stdout.data) == tmp_path


def test_a_missing_program_is_named(client: Client, unsandboxed: WindowsDaemon) -> None:
    with pytest.raises(ExecFailed, match="no-such-program"):
        client.execute(["no-such-program"], manifest={"env": unsandboxed.env})


def test_a_batch_file_gets_plain_arguments_and_no_syntax(
    client: Client, unsandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    batch = tmp_path / "say.bat"
    batch.write_text("@echo %1\r\n")
    manifest = {"env": unsandboxed.env}
    result = client.execute([str(batch), "plain"], manifest=manifest)
    assert result.stdout.data.strip().strip('"') == "plain"
    for hostile in ('x" & echo broken', "%PATH%", "a|b", "a^b", "!x!"):
        with pytest.raises(ExecFailed, match="syntax"):
            client.execute([str(batch), hostile], manifest=manifest)


def test_events_come_while_the_command_runs(client: Client, unsandboxed: WindowsDaemon) -> None:
    program = "import time\nfor i in range(3): print('line', i, flush=True); time.sleep(0.2)"
    argv = [sys.executable, "-c", program]
    with client.stream(argv, manifest={"env": unsandboxed.env}) as run:
        events = list(run)
    names = [type(event).__name__ for event in events]
    assert (names[0], names[-1]) == ("Started", "Exited")
    text = "".join(getattr(event, "data", "") for event in events)
    assert text.split() == ["line", "0", "line", "1", "line", "2"]


def test_cancelling_ends_the_command(client: Client, unsandboxed: WindowsDaemon) -> None:
    argv = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(100)"]
    with client.stream(argv, manifest={"env": unsandboxed.env}) as run:
        for event in run:
            if getattr(event, "data", ""):
                run.cancel()
        assert run.result.outcome == "cancelled"


def test_signals_that_windows_does_not_have_are_refused(
    client: Client, unsandboxed: WindowsDaemon
) -> None:
    argv = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(100)"]
    with client.stream(argv, manifest={"env": unsandboxed.env}) as run:
        for event in run:
            if getattr(event, "data", ""):
                for unknown in ("HUP", "SIGUSR1", 1, 64):
                    with pytest.raises(InvalidParams, match="there is no signal"):
                        run.signal(unknown)
                run.signal("TERM")
        assert (run.result.outcome, run.result.exit_code) == ("exited", KILLED)


def test_a_line_that_is_too_long_is_refused_before_anything_starts(
    client: Client, unsandboxed: WindowsDaemon
) -> None:
    manifest = {"env": unsandboxed.env}
    program = "import sys; sys.stdout.write(str(len(sys.argv[1])))"
    start = [sys.executable, "-c", program]
    spare = MAX_UNITS - len(list2cmdline([*start, ""]))
    result = client.execute([*start, "x" * spare], manifest=manifest)
    assert result.stdout.data == str(spare)
    with pytest.raises(InvalidParams, match=str(MAX_UNITS)):
        client.execute([*start, "x" * (MAX_UNITS + 1)], manifest=manifest)


def test_answers_have_native_paths(client: Client, tmp_path: Path) -> None:
    check = client.check(workspace=str(tmp_path), preset="workspace-write")
    assert str(tmp_path) in check.plan.fs_write_allow
    assert not any(path.startswith("/") for path in check.plan.fs_deny)
    windows = os.environ["SYSTEMROOT"]
    with pytest.raises(PathDenied) as refused:
        client.check(manifest={"fs_write_allow": [windows]})
    assert windows.lower() in refused.value.message.lower()


def test_a_protected_path_is_moved_aside_while_the_command_runs(
    client: Client, unsandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    program = (
        "import os, sys, time\n"
        "os.mkdir('.vscode'); open('.vscode/tasks.json', 'w').close()\n"
        "end = time.monotonic() + 30\n"
        "while os.path.exists('.vscode/tasks.json') and time.monotonic() < end: time.sleep(0.05)\n"
        "print('gone' if not os.path.exists('.vscode/tasks.json') else 'there')\n"
    )
    result = python(
        client, unsandboxed, program, workspace=str(tmp_path), cwd=str(tmp_path),
        preset="workspace-write",
    )  # fmt: skip
    assert result.stdout.data.strip() == "gone", result
    assert not (tmp_path / ".vscode" / "tasks.json").exists()


def test_what_git_would_run_at_once_ends_the_command(
    client: Client, unsandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    git = tmp_path / ".git"
    for folder in (git, git / "objects", git / "refs"):
        folder.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text("[core]\n")
    program = (
        "import os, sys, time\n"
        "open('.git/COMMIT_EDITMSG', 'w').close(); print('worked', flush=True)\n"
        "os.mkdir('.git/hooks'); time.sleep(60); print('went on')\n"
    )
    result = python(
        client, unsandboxed, program, workspace=str(tmp_path), cwd=str(tmp_path),
        preset="workspace-write", manifest={"timeout": 50},
    )  # fmt: skip
    assert result.stdout.data.strip() == "worked", result
    assert (result.outcome, result.exit_code) == ("exited", KILLED)
    assert not (git / "hooks").exists()
    assert (git / "COMMIT_EDITMSG").exists()


def test_what_git_acts_upon_is_put_back_and_no_folder_becomes_a_repository(
    client: Client, unsandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    git, inner = tmp_path / ".git", tmp_path / "sub"
    for folder in (git, git / "objects", git / "refs", inner):
        folder.mkdir()
    (git / "HEAD").write_bytes(b"ref: refs/heads/main\n")
    (git / "config").write_bytes(b"[core]\n")
    program = (
        "import os\n"
        "open('.git/HEAD', 'wb').write(b'nonsense')\n"
        "os.makedirs('sub/.git/objects'); os.mkdir('sub/.git/refs')\n"
        "open('sub/.git/HEAD', 'wb').write(b'ref: refs/heads/x')\n"
        "open('sub/.git/config', 'w').write('[core]\\n\\tfsmonitor = evil')\n"
        "print('done')\n"
    )
    result = python(
        client, unsandboxed, program, workspace=str(tmp_path), cwd=str(tmp_path),
        preset="workspace-write",
    )  # fmt: skip
    assert result.stdout.data.strip() == "done", result
    assert (git / "HEAD").read_bytes() == b"ref: refs/heads/main\n"
    assert not (inner / ".git").exists()
    kept = [path.name for path in (tmp_path / ".sandboxd-kept").rglob("*-*")]
    assert sorted(name.partition("-")[2] for name in kept) == ["%2Egit%2FHEAD", "sub%2F%2Egit"]


def test_files_are_read_as_they_are(tmp_path: Path) -> None:
    """The attack: what follows a Ctrl-Z in git's config is not seen by the policy, but by git."""
    data = b"[core]\r\n\x1a\r\n\tfsmonitor = evil\n"
    (tmp_path / "config").write_bytes(data)
    assert read_regular(str(tmp_path / "config"), 1000) == data


def test_a_timeout_in_a_repository_ends_like_any_other(
    client: Client, unsandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    result = python(
        client, unsandboxed, "import time; time.sleep(100)", workspace=str(tmp_path),
        preset="workspace-write", manifest={"timeout": 2},
    )  # fmt: skip
    assert result.outcome == "timeout"


# What the backend appcontainer says, with a backend that runs commands here.
_WARNS = """
import sys
from msgspec.structs import replace
from sandboxd.backends.appcontainer.backend import AppContainer
from sandboxd.backends.unsandboxed.windows import UnsandboxedWindows
from sandboxd.cli import main

said = AppContainer.capabilities.inherit_warning
UnsandboxedWindows.capabilities = replace(UnsandboxedWindows.capabilities, inherit_warning=said)
sys.exit(main())
"""


def test_an_inherited_network_comes_with_a_warning_about_the_loopback(tmp_path: Path) -> None:
    pipe = rf"\\.\pipe\sandboxd-warns-{os.getpid()}"
    daemon = start(pipe, tmp_path, BOTH_KEYS, *ELEVATED, program=("-c", _WARNS))
    try:
        with Client(pipe) as client:
            for network, warned in (("inherit", True), ("deny", False)):
                result = client.execute(
                    ["cmd.exe", "/c", "exit"], manifest={"env": daemon.env, "network": network}
                )
                assert any("loopback" in text for text in result.warnings) is warned, result
    finally:
        daemon.kill()
