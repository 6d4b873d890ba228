"""The daemon driven by the unmodified vscode-jsonrpc from npm, over the Unix socket.

Editors speak JSON-RPC through this library; what `vscode/drive.js` sees is what they would see.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon
from support.requirements import require

SCRIPTS = Path(__file__).parent / "vscode"
Seen = dict[str, Any]

pytestmark = pytest.mark.requires("bubblewrap")


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vscode-jsonrpc, in exactly the version of the lock file."""
    require("node")
    require("npm")
    folder = tmp_path_factory.mktemp("vscode")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SCRIPTS / name, folder)
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    done = subprocess.run(
        ["npm", "ci", *quiet], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "node_modules"


@pytest.fixture(scope="module")
def seen(node_modules: Path, shared_daemon: Daemon) -> Seen:
    """All that the script saw in one connection."""
    done = subprocess.run(
        ["node", SCRIPTS / "drive.js", shared_daemon.socket],
        env={**os.environ, "NODE_PATH": str(node_modules)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr + shared_daemon.log
    seen: Seen = json.loads(done.stdout)
    return seen


def text(events: list[Seen], stream: str) -> str:
    return "".join(e["data"] for e in events if e["name"] == "output" and e["stream"] == stream)


def test_it_introduces_itself(seen: Seen) -> None:
    assert seen["initialize"]["server"]["name"] == "sandboxd"
    assert seen["initialize"]["protocol"] == 1
    assert seen["initialize"]["backend"] == "bubblewrap"


def test_status_without_params_is_answered(seen: Seen) -> None:
    assert seen["status"]["backend"] == "bubblewrap"
    assert seen["status"]["clients"] >= 1


def test_output_is_streamed_whole_and_in_order(seen: Seen) -> None:
    events = seen["streaming"]["events"]
    expected = "".join(f"{n}\n" for n in range(1, 20001)) + "Grüße"
    assert text(events, "stdout") == expected
    assert text(events, "stderr") == "to stderr\n"
    for stream in ("stdout", "stderr"):
        numbers = [e["seq"] for e in events if e["name"] == "output" and e["stream"] == stream]
        assert numbers == sorted(set(numbers))


def test_notifications_come_in_the_order_of_the_protocol(seen: Seen) -> None:
    names = [e["name"] for e in seen["streaming"]["events"]]
    assert names[0] == "started"
    assert names[-2:] == ["exited", "answer"]
    assert set(names[1:-2]) == {"output"}


def test_a_streamed_result_counts_and_does_not_repeat_the_output(seen: Seen) -> None:
    result = seen["streaming"]["result"]
    assert (result["outcome"], result["exit_code"]) == ("exited", 0)
    assert result["stdout"]["data"] == ""
    assert result["stdout"]["bytes"] == len(text(seen["streaming"]["events"], "stdout").encode())


def test_a_cancellation_token_ends_the_command(seen: Seen) -> None:
    assert seen["cancelling"]["result"]["outcome"] == "cancelled"
    assert seen["cancelling"]["result"]["exit_code"] is None
    assert seen["cancelling"]["events"][-1]["name"] == "exited"
    assert seen["cancelling"]["events"][-1]["outcome"] == "cancelled"


def test_stdin_may_be_written_right_after_execute(seen: Seen) -> None:
    assert seen["interactive"]["stdout"]["data"] == "typed\n"


def test_a_quick_request_overtakes_a_slow_one(seen: Seen) -> None:
    assert seen["overtaking"] == ["quick", "slow"]


@pytest.mark.parametrize(
    ("asked", "code", "kind", "field"),
    [
        ("exec", -32004, "ExecFailed", None),
        ("path", -32003, "PathDenied", "fs_read_allow[0]"),
        ("field", -32602, "ManifestInvalid", "netwrk"),
        ("id", -32005, "NotFound", "execution_id"),
        ("method", -32601, "MethodNotFound", None),
        ("positional", -32602, "InvalidParams", None),
    ],
)
def test_errors_arrive_with_their_data(
    seen: Seen, asked: str, code: int, kind: str, field: str | None
) -> None:
    error = seen["errors"][asked]
    assert error["code"] == code
    assert error["data"]["kind"] == kind
    assert error["message"]
    if field is not None:
        assert error["data"]["field"] == field


def test_the_connection_is_usable_after_all_that(seen: Seen) -> None:
    assert seen["after"]["stdout"]["data"] == "still here\n"
