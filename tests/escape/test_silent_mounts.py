"""A file system whose server does not answer (a dead NFS or sshfs) makes its own requests fail, and
no others wait."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.attacks import Box
from support.silent_fuse import silent_fuse

pytestmark = [pytest.mark.requires("root", "fuse")]


@pytest.fixture
def mount_point(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "silent"
    folder.mkdir()
    return folder


def hangs(path: Path) -> bool:
    """The control: whether a plain look at the path waits."""
    plain = subprocess.Popen(["stat", str(path)], stdout=subprocess.DEVNULL)
    try:
        plain.wait(0.5)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        plain.kill()
        # It can wait for a lock that another look holds, which no signal ends.
        threading.Thread(target=plain.wait, daemon=True).start()


def assert_refused_alone(box: Box, requests: list[tuple[str, dict[str, Any]]]) -> None:
    """Each is refused with a reason, and another client is served while they wait."""
    with ExitStack() as open_:
        asked = []
        for method, params in requests:
            client = open_.enter_context(box.daemon.connect(timeout_s=30))
            asked.append((client, client.start(method, {**params, "backend": box.backend})))
        # Less than the daemon waits for the mount.
        with box.daemon.connect(timeout_s=2.5) as other:
            assert other.call("execute", {"argv": ["true"]})["exit_code"] == 0
        answers = [client.answer(number) for client, number in asked]
    for (_, params), answer in zip(requests, answers, strict=True):
        assert "error" in answer, (params, answer)
        assert answer["error"]["data"]["kind"] == "Busy", (params, answer)
        assert "does not answer" in answer["error"]["message"], (params, answer)


NAMED: tuple[dict[str, Any], ...] = (
    {"preset": "workspace-write", "workspace": "{silent}"},
    {"preset": "workspace-write", "workspace": "{silent}/project"},
    {"preset": "workspace-write", "workspace": "{above}"},
    {"manifest": {"fs_read_allow": ["{silent}/a/b"]}},
    {"manifest": {"fs_write_allow": ["{link}"]}},
    {"manifest": {"fs_read_allow": ["{above}/up/../link/x"]}},
    {"manifest": {"fs_read_allow": ["/usr"], "fs_deny": ["{silent}/secret"]}},
    {"manifest": {"fs_read_allow": ["/usr"]}, "cwd": "{silent}"},
)  # fmt: skip


def filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        return value.format(**names)
    if isinstance(value, list):
        return [filled(one, names) for one in value]
    return {key: filled(one, names) for key, one in value.items()}


def test_paths_on_a_mount_that_never_answers(box: Box, mount_point: Path) -> None:
    link = mount_point.parent / "link"
    link.symlink_to(mount_point.name)
    (mount_point.parent / "up").mkdir()
    names = {"silent": str(mount_point), "above": str(mount_point.parent), "link": str(link)}
    requests = [("execute", {"argv": ["true"], **filled(named, names)}) for named in NAMED]
    with silent_fuse(mount_point):
        assert hangs(mount_point / "x")
        assert_refused_alone(box, requests)


def test_other_methods_that_plan(box: Box, mount_point: Path) -> None:
    params = {"preset": "workspace-write", "workspace": str(mount_point)}
    with silent_fuse(mount_point):
        assert hangs(mount_point / "x")
        assert_refused_alone(box, [("manifest/check", params), ("sandbox/create", params)])


def test_many_requests_at_once(box: Box, mount_point: Path) -> None:
    """More than there are threads; the path of each is another."""
    with silent_fuse(mount_point), box.daemon.connect(timeout_s=60) as client:
        asked = []
        for number in range(60):
            manifest = {"fs_read_allow": [f"{mount_point}/{number}"]}
            params = {"argv": ["true"], "manifest": manifest, "backend": box.backend}
            asked.append(client.start("execute", params))
        with box.daemon.connect(timeout_s=2.5) as other:
            assert other.call("execute", {"argv": ["true"]})["exit_code"] == 0
        kinds = {client.answer(one)["error"]["data"]["kind"] for one in asked}
    assert kinds == {"Busy"}
    with box.daemon.connect(timeout_s=10) as other:
        assert other.call("execute", {"argv": ["true"]})["exit_code"] == 0


def test_what_a_command_prints_is_not_looked_at_there(box: Box, mount_point: Path) -> None:
    """The classifier looks at the paths that stderr names."""
    secret = mount_point / "secret"
    lines = f"echo 'cat: {secret}: Permission denied' >&2; exit 1"
    with silent_fuse(mount_point):
        assert hangs(secret)
        with box.daemon.connect(timeout_s=10) as client:
            ran = client.call("execute", {"argv": ["sh", "-c", lines], "backend": box.backend})
            assert ran["exit_code"] == 1
            assert client.call("execute", {"argv": ["true"]})["exit_code"] == 0


def test_what_a_command_tries_is_not_looked_at_there(box: Box, mount_point: Path) -> None:
    """With `explain` the daemon looks whether the host has what the command did not find."""
    if box.backend == "landlock":
        pytest.skip("the mount is not hidden, and the command itself waits for it")
    path = mount_point / "secret"
    with silent_fuse(mount_point):
        assert hangs(path)
        with box.daemon.connect(timeout_s=10) as client:
            request = {"argv": ["cat", str(path)], "explain": True, "backend": box.backend}
            assert client.call("execute", request)["exit_code"] == 1
            assert client.call("execute", {"argv": ["true"]})["exit_code"] == 0


def test_a_mount_that_falls_silent_while_a_command_runs(box: Box, mount_point: Path) -> None:
    """Its workspace cannot be judged, so that there is no result; others are served."""
    marker = mount_point.parent / "go"
    marker.mkdir()
    with silent_fuse(mount_point, answers=True) as mount:
        params = {
            "argv": ["sh", "-c", f"echo up; while [ ! -e {marker}/on ]; do sleep 0.05; done"],
            "manifest": {"fs_read_allow": [str(marker)], "fs_write_allow": [str(mount_point)]},
            "preset": "workspace-write", "workspace": str(mount_point), "cwd": "/",
            "backend": box.backend, "stream": True,
        }  # fmt: skip
        with box.daemon.connect(timeout_s=30) as client:
            asked = client.start("execute", params)
            assert client.notification("execution/output")["data"] == "up\n"
            # The pool makes the next sandbox. SECURITY.md names a mount that falls silent in these
            # milliseconds, when a thread has tried it already.
            time.sleep(3)
            mount.fall_silent()
            assert hangs(mount_point / "x")
            (marker / "on").touch()
            with box.daemon.connect(timeout_s=2.5) as other:
                assert other.call("execute", {"argv": ["true"]})["exit_code"] == 0
            answer = client.answer(asked)
        assert answer["error"]["data"]["kind"] == "Busy", answer
        with box.daemon.connect(timeout_s=10) as other:
            assert other.call("execute", {"argv": ["true"]})["exit_code"] == 0


def test_a_mount_that_falls_silent_right_after_its_plan(box: Box, mount_point: Path) -> None:
    """A plan that was made a moment ago is not a reason to look without a thread."""
    params = {"manifest": {"fs_read_allow": [str(mount_point)]}}
    with silent_fuse(mount_point, answers=True) as mount:
        with box.daemon.connect(timeout_s=30) as client:
            for _ in range(2):
                client.call("manifest/check", {**params, "backend": box.backend})
        mount.fall_silent()
        assert hangs(mount_point / "x")
        assert_refused_alone(box, [("manifest/check", params)])


def test_a_mount_that_answers_is_used(box: Box, mount_point: Path) -> None:
    with silent_fuse(mount_point, answers=True), box.daemon.connect(timeout_s=30) as client:
        manifest = {"fs_read_allow": [str(mount_point)]}
        params = {"argv": ["ls", "-a", str(mount_point)], "manifest": manifest}
        for _ in range(3):
            ran = client.call("execute", {**params, "backend": box.backend})
            assert ran["exit_code"] == 0, ran
    assert os.path.isdir(mount_point)


@pytest.mark.parametrize("kind", ["files", "folders"])
def test_a_folder_that_lists_names_for_ever(box: Box, mount_point: Path, kind: str) -> None:
    """The server of the file system is not the user's. Others are served, memory is bounded."""
    with silent_fuse(mount_point, answers=True, endless=kind):
        plain = subprocess.Popen(["ls", "-f", str(mount_point)], stdout=subprocess.PIPE)
        assert plain.stdout is not None
        assert len([plain.stdout.readline() for _ in range(200_000)]) == 200_000  # the control
        plain.kill()
        plain.communicate()
        params = {"preset": "workspace-write", "workspace": str(mount_point.parent)}
        with box.daemon.connect(timeout_s=120) as client:
            asked = client.start("execute", {"argv": ["true"], "backend": box.backend, **params})
            with box.daemon.connect(timeout_s=60) as other:
                assert other.call("execute", {"argv": ["true"]})["exit_code"] == 0
            answer = client.answer(asked)
            if "error" in answer:
                assert answer["error"]["data"]["kind"] in ("Busy", "PathDenied"), answer
            else:
                # The thread's CPU time decides whether it is searched as a distant folder.
                told = ("too many entries", "not every folder")
                assert any(text in one for text in told for one in answer["result"]["warnings"])
    status = Path(f"/proc/{box.daemon.pid}/status").read_text()
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident) < 600_000
