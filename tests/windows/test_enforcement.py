"""What an AppContainer denies, on a real Windows. Each attack has a control without the sandbox.

Collected on Windows only, and only where SANDBOXD_TEST_ENFORCEMENT is set: a machine that cannot
make an AppContainer fails here, and does not skip.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from wine.conftest import BOTH_KEYS, ELEVATED, WindowsDaemon, start

from sandboxd_client.client import Client
from sandboxd_proto.messages.execute import ExecuteResult

pytestmark = pytest.mark.skipif(
    not os.environ.get("SANDBOXD_TEST_ENFORCEMENT"), reason="set SANDBOXD_TEST_ENFORCEMENT"
)


@pytest.fixture(scope="module")
def sandboxed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WindowsDaemon]:
    folder = tmp_path_factory.mktemp("enforced")
    keys = {"SANDBOXD_BACKEND": "appcontainer"}
    found = start(rf"\\.\pipe\sandboxd-enforce-{os.getpid()}", folder, keys, *ELEVATED)
    yield found
    found.kill()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WindowsDaemon]:
    folder = tmp_path_factory.mktemp("bare")
    found = start(rf"\\.\pipe\sandboxd-control-{os.getpid()}", folder, BOTH_KEYS, *ELEVATED)
    yield found
    found.kill()


def attack(
    daemon: WindowsDaemon, program: str, *arguments: str, **manifest: object
) -> ExecuteResult:
    reads = [sys.base_prefix, *map(str, manifest.pop("fs_read_allow", []))]  # type: ignore[call-overload]
    with Client(daemon.pipe) as client:
        return client.execute(
            [sys.executable, "-c", program, *arguments],
            manifest={"env": daemon.env, "fs_read_allow": reads, "timeout": 60, **manifest},
        )


READ = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
WRITE = "import sys; open(sys.argv[1], 'w').write('written')"


def test_a_file_that_is_not_granted_cannot_be_read(
    sandboxed: WindowsDaemon, bare: WindowsDaemon, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    assert attack(bare, READ, str(secret)).stdout.data == "hidden"
    found = attack(sandboxed, READ, str(secret))
    assert found.exit_code != 0
    assert "hidden" not in found.stdout.data
    assert attack(sandboxed, READ, str(secret), fs_read_allow=[secret]).stdout.data == "hidden"


def test_a_read_grant_does_not_let_it_be_written(
    sandboxed: WindowsDaemon, bare: WindowsDaemon, tmp_path: Path
) -> None:
    target = tmp_path / "file"
    target.write_text("before")
    assert attack(sandboxed, WRITE, str(target), fs_read_allow=[target]).exit_code != 0
    assert target.read_text() == "before"
    assert attack(bare, WRITE, str(target)).exit_code == 0
    assert target.read_text() == "written"


def test_a_protected_path_cannot_be_written_or_moved_away(
    sandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    hooks = tmp_path / "repo" / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks.parent / "HEAD").write_text("ref: refs/heads/main\n")
    (hooks.parent / "objects").mkdir()
    (hooks.parent / "refs").mkdir()
    workspace = str(tmp_path / "repo")
    program = (
        "import os, sys\n"
        "for act in (lambda: open(sys.argv[1] + '/hooks/pre-commit', 'w'),\n"
        "            lambda: os.rename(sys.argv[1], sys.argv[1] + '-moved')):\n"
        "    try: act()\n"
        "    except OSError: pass\n"
    )
    with Client(sandboxed.pipe) as client:
        client.execute(
            [sys.executable, "-c", program, str(hooks.parent)],
            preset="workspace-write", workspace=workspace,
            manifest={"env": sandboxed.env, "fs_read_allow": [sys.base_prefix]},
        )  # fmt: skip
    assert hooks.is_dir()
    assert list(hooks.iterdir()) == []


def test_a_masked_file_in_a_granted_folder_is_denied_to_its_capability(
    sandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    shown = {"fs_read_allow": [tmp_path]}
    assert attack(sandboxed, READ, str(secret), **shown).stdout.data == "hidden"
    found = attack(sandboxed, READ, str(secret), **shown, fs_deny=[str(secret)])
    assert "hidden" not in found.stdout.data


def test_what_git_would_run_is_told_below_folders_that_exist(
    sandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    git = tmp_path / ".git"
    for folder in (git, git / "objects", git / "refs"):
        folder.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    program = "import os, time; os.mkdir('.git/hooks'); time.sleep(50); print('went on')"
    with Client(sandboxed.pipe) as client:
        found = client.execute(
            [sys.executable, "-c", program], preset="workspace-write", workspace=str(tmp_path),
            cwd=str(tmp_path),
            manifest={"env": sandboxed.env, "fs_read_allow": [sys.base_prefix]},
        )  # fmt: skip
    assert "went on" not in found.stdout.data
    assert not (git / "hooks").exists()
    assert "protected_path" in [denial.kind for denial in found.denials]


def test_a_junction_in_the_place_of_a_protected_folder_is_not_followed(
    sandboxed: WindowsDaemon, tmp_path: Path
) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    (outside / "mise.toml").write_text("the user's own")
    program = "import _winapi, sys; _winapi.CreateJunction(sys.argv[1], sys.argv[2])"
    with Client(sandboxed.pipe) as client:
        client.execute(
            [sys.executable, "-c", program, str(outside), str(workspace / ".config")],
            preset="workspace-write", workspace=str(workspace),
            manifest={"env": sandboxed.env, "fs_read_allow": [sys.base_prefix]},
        )  # fmt: skip
    assert [path.name for path in outside.iterdir()] == ["mise.toml"]


def test_the_network_is_closed(sandboxed: WindowsDaemon, bare: WindowsDaemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        program = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"
        assert attack(bare, program, port).exit_code == 0
        assert attack(sandboxed, program, port).exit_code != 0


def test_the_daemons_pipe_cannot_be_opened_from_inside(
    sandboxed: WindowsDaemon, bare: WindowsDaemon
) -> None:
    program = "import sys; open(sys.argv[1], 'r+b', buffering=0).write(b'{}\\n')"
    assert attack(sandboxed, program, sandboxed.pipe).exit_code != 0
    assert attack(bare, program, sandboxed.pipe).exit_code == 0


def test_memory_and_processes_are_limited(sandboxed: WindowsDaemon) -> None:
    hog = attack(sandboxed, "x = bytearray(512 << 20)", max_memory_bytes=128 << 20)
    assert hog.outcome == "memory" or hog.exit_code != 0
    fork = (
        "import subprocess, sys\n"
        "for _ in range(8): subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(9)'])"
    )
    bomb = attack(sandboxed, fork, max_processes=3)
    assert bomb.outcome == "processes" or bomb.exit_code != 0


def test_other_processes_cannot_be_opened(sandboxed: WindowsDaemon, bare: WindowsDaemon) -> None:
    program = (
        "import ctypes, sys\n"
        "sys.exit(0 if ctypes.windll.kernel32.OpenProcess(0x10, 0, int(sys.argv[1])) else 1)"
    )
    assert attack(bare, program, str(os.getpid())).exit_code == 0
    assert attack(sandboxed, program, str(os.getpid())).exit_code == 1
