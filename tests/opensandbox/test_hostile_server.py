"""A server that wants to harm: archives that lead elsewhere, endless answers, the key in its words.

Each has a control: what an honest server sends in the same place works.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon
from support.fake_opensandbox import KEY, FakeServer
from support.rpc import RpcError
from support.runs import Ran, Runner

INHERIT = {"network": "inherit"}
INIT = b'{"type": "init", "text": "c1"}\n\n'
Member = tuple[str, bytes, Any]  # name, type, content or target


@pytest.fixture
def workspace(tmp_path: Path, fake: FakeServer) -> Path:
    fake.files = True
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a").write_text("of the host\n")
    return folder


def run_with(runner: Runner, workspace: Path, *argv: str) -> Ran:
    manifest = {**INHERIT, "fs_write_allow": [str(workspace)]}
    return runner.run(*(argv or ("true",)), manifest=manifest)


def archive(workspace: Path, *more: Member) -> bytes:
    out = io.BytesIO()
    inside = str(workspace).lstrip("/")
    members: list[Member] = [
        (inside, tarfile.DIRTYPE, b""), (f"{inside}/a", tarfile.REGTYPE, b"of the host\n"),
        *((name.replace("W", inside), kind, what) for name, kind, what in more),
    ]  # fmt: skip
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind, what in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o644 if kind != tarfile.DIRTYPE else 0o755
            if isinstance(what, bytes):
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what))
            else:
                info.linkname = what.replace("W", inside)
                tar.addfile(info)
    return out.getvalue()


def serve(fake: FakeServer, data: bytes) -> None:
    def step(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    fake.faults["download"] = step


def test_an_honest_archive_in_the_same_place_is_used(
    runner: Runner, workspace: Path, fake: FakeServer
) -> None:
    serve(fake, archive(workspace, ("W/new", tarfile.REGTYPE, b"new")))
    assert run_with(runner, workspace).exited(0)
    assert (workspace / "new").read_text() == "new"


FILE, LINK, HARD, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


@pytest.mark.parametrize(
    "members",
    [
        [("W/../outside", FILE, b"x")],
        [("../../../W-outside", FILE, b"x")],
        [("etc/planted", FILE, b"x")],
        [("W/sub/../../outside", FILE, b"x")],
        [("W/l", LINK, "/etc"), ("W/l/planted", FILE, b"x")],
        [("W/l", LINK, ".."), ("W/l/outside", FILE, b"x")],
        [("W/h", HARD, "etc/passwd")],
        [("W/h", HARD, "W/../../etc/passwd")],
        [("W/a", FILE, b"twice")],
        [("W/missing/f", FILE, b"x")],
        [("W", LINK, "/etc")],
        [("W/new", b"S", b"x")],
    ],
    ids=str,
)
def test_an_archive_that_leads_elsewhere_is_not_used_at_all(
    runner: Runner, workspace: Path, fake: FakeServer, members: list[Member]
) -> None:
    serve(fake, archive(workspace, ("W/first", FILE, b"x"), *members))
    with pytest.raises(RpcError, match="was not brought back"):
        run_with(runner, workspace)
    assert os.listdir(workspace) == ["a"]
    assert os.listdir(workspace.parent) == ["work"]
    assert not os.path.exists("/etc/planted")


def test_a_cut_archive_removes_nothing(runner: Runner, workspace: Path, fake: FakeServer) -> None:
    """Every length of it: what is missing in an archive counts as removed."""
    whole = archive(workspace)
    for length in (0, 1, 512, 1024, 1536, 2048, len(whole) - 10240 + 2000):
        serve(fake, whole[:length])
        with pytest.raises(RpcError):
            run_with(runner, workspace)
        assert (workspace / "a").read_text() == "of the host\n"


def test_devices_are_not_made(runner: Runner, workspace: Path, fake: FakeServer) -> None:
    serve(fake, archive(workspace, ("W/d", tarfile.CHRTYPE, b""), ("W/f", tarfile.FIFOTYPE, b"")))
    ran = run_with(runner, workspace)
    assert os.listdir(workspace) == ["a"]
    assert len(ran.raw["warnings"]) == 2


def endless(handler: Any) -> None:
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(bytes(1 << 16))


def endless_json(handler: Any) -> None:
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        handler.wfile.write(b"[")
        while True:
            handler.wfile.write(b"[" * 65536)


@pytest.mark.parametrize("step", ["version", "create", "get", "endpoint", "list"])
def test_an_endless_answer_is_cut_off(
    runner: Runner, fake: FakeServer, daemon: Daemon, step: str
) -> None:
    fake.faults[step] = endless_json
    if step in ("version", "list"):
        (found,) = [
            one for one in runner.connection.call("status")["backends"]
            if one["name"] == "opensandbox"
        ]  # fmt: skip
        assert "more than" in found["reason"]
    else:
        with pytest.raises(RpcError, match="more than"):
            runner.run("true", manifest=INHERIT)
    assert _memory(daemon) < 400 << 20


def test_an_endless_archive_is_cut_off(
    own_fake: FakeServer, daemon_on: Callable[..., Any], workspace: Path
) -> None:
    own_fake.files = True
    own_fake.faults["download"] = endless
    with daemon_on(own_fake.url, copy_max_bytes="1000000", copy_max_files="100") as daemon:
        runner = Runner(daemon)
        with pytest.raises(RpcError, match="more than"):
            run_with(runner, workspace)
        runner.close()
    assert os.listdir(workspace) == ["a"]


def test_an_endless_stream_of_a_command_of_ours_is_cut_off(
    runner: Runner, workspace: Path, fake: FakeServer
) -> None:
    line = b'{"type": "stdout", "text": "' + b"x" * 60000 + b'"}\n\n'
    fake.faults["command"] = [INIT, *[line] * 20, None]
    with pytest.raises(RpcError, match="could not be unpacked"):
        run_with(runner, workspace)


def test_an_endless_event_is_cut_off(runner: Runner, fake: FakeServer) -> None:
    fake.faults["command"] = [INIT, b'{"type": "stdout", "text": "', *[b"x" * (1 << 20)] * 9]
    with pytest.raises(RpcError, match="result of the command is unknown"):
        runner.run("true", manifest=INHERIT)


def test_a_key_that_the_server_repeats_is_shown_nowhere(
    runner: Runner, fake: FakeServer, daemon: Daemon
) -> None:
    def repeat(status: int) -> Callable[[Any], None]:
        def step(handler: Any) -> None:
            said = f"no {handler.headers['OPEN-SANDBOX-API-KEY']}\n\x1b[31m for you"
            handler.answer(status, {"code": KEY, "message": said})

        return step

    told = []
    for step in ("create", "get", "endpoint"):
        for status in (401, 500, 422):
            fake.faults[step] = repeat(status)
            with pytest.raises(RpcError) as refused:
                runner.run("true", manifest=INHERIT)
            told.append(f"{refused.value} {refused.value.data}")
            assert "for you" in told[-1], "the server's words are there, without the key"
            assert "\x1b" not in told[-1]
        fake.faults.clear()
    fake.faults["create"] = f"http://127.0.0.1:9/{KEY}"
    with pytest.raises(RpcError, match=r"redirects to .*\*\*\*"):
        runner.run("true", manifest=INHERIT)
    fake.faults["get"] = lambda handler: handler.answer(
        200, {"id": "x", "status": {"state": "Failed", "message": f"key {KEY}"}}
    )
    del fake.faults["create"]
    with pytest.raises(RpcError) as refused:
        runner.run("true", manifest=INHERIT)
    told += [f"{refused.value} {refused.value.data}", str(runner.connection.call("status"))]
    fake.faults.clear()
    no_start = {"type": "error", "error": {"evalue": f"no program {KEY}"}}
    fake.faults["command"] = [INIT, json.dumps(no_start).encode() + b"\n\n"]
    with pytest.raises(RpcError, match="no program") as refused:
        runner.run("true", manifest=INHERIT)
    told.append(f"{refused.value} {refused.value.data}")
    audit = runner.connection.call("audit/query", {})
    assert audit["records"]
    assert KEY not in "".join([*told, str(audit), daemon.log])


@pytest.mark.parametrize("step", ["create", "get", "endpoint", "ping", "command"])
def test_a_server_that_never_answers_does_not_stop_the_daemon(
    own_fake: FakeServer, daemon_on: Callable[..., Any], step: str
) -> None:
    """The request waits; the daemon serves others meanwhile, and cancelling ends the wait."""
    own_fake.faults[step] = [None] if step == "command" else None
    with daemon_on(own_fake.url) as daemon, daemon.connect() as waiting:
        params = {"argv": ["true"], "manifest": INHERIT, "execution_id": "hangs"}
        call = waiting.start("execute", params)
        _until(lambda: any(_is(step, path) for _, path, _ in own_fake.requests))
        with daemon.connect(timeout_s=5) as other:
            assert other.call("execution/list") == {"executions": []}
        assert waiting.call("execution/list")["executions"]
        waiting.call("execution/cancel", {"execution_id": "hangs"})
        assert waiting.result(call)["outcome"] == "cancelled"
        own_fake.released.set()


def _is(step: str, path: str) -> bool:
    return {"create": path.endswith("/sandboxes"), "get": path.count("/") == 3}.get(
        step, step in path
    )


def _memory(daemon: Daemon) -> int:
    for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmHWM")


def _until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.02)
