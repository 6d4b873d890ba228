"""What a Python user tries first: no set-up, no `with`, a Path, bytes, a timeout, variables."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from ctl import environment

from sandboxd_client import AsyncClient, Client, Output
from sandboxd_client.calls import MethodCall
from sandboxd_proto.errors import ManifestInvalid, PathDenied, SandboxdError


@pytest.fixture
def client(shared_daemon):
    with Client(shared_daemon.socket) as client:
        yield client


def test_a_client_without_arguments_starts_the_daemon(folder):
    socket = str(folder / "run" / "d.sock")
    code = "from sandboxd_client import Client\nprint(Client().execute(['echo', 'hi']).stdout.text)"
    env = environment(SANDBOXD_SOCKET=socket)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, timeout=60, check=False
        )
        assert (done.stdout, done.returncode) == (b"hi\n\n", 0), done.stderr
    finally:
        with Client(socket) as client:
            client.shutdown()


def test_events_come_with_and_without_with(client):
    def text(events):
        return "".join(event.text for event in events if isinstance(event, Output))

    assert text(client.stream(["echo", "plain"])) == "plain\n"
    with client.stream(["echo", "with"]) as execution:
        assert text(execution) == "with\n"
    execution = client.stream(["echo", "result"])
    assert execution.wait().exit_code == 0
    assert execution.result.outcome == "exited"


def test_a_forgotten_execution_is_ended(client):
    for _ in client.stream(["sleep", "600"], timeout="none"):
        break
    gc.collect()
    deadline = time.monotonic() + 20
    while client.execution_list().executions:
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.02)


async def _async_text(socket: str) -> str:
    async with AsyncClient(socket) as client:
        events = [event async for event in client.stream(["echo", "async"])]
    return "".join(event.text for event in events if isinstance(event, Output))


def test_the_asynchronous_client_iterates_without_with(shared_daemon):
    assert anyio.run(_async_text, shared_daemon.socket) == "async\n"


def test_the_callers_path_reaches_the_command_and_no_secret_does(client, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin:/opt/of-the-caller")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    out = client.execute(["env"]).stdout.text
    assert "PATH=/usr/bin:/bin:/opt/of-the-caller\n" in out
    assert "SECRET_TOKEN" not in out
    named = client.execute(["env"], manifest={"env": {"PATH": "/bin"}}).stdout.text
    assert "PATH=/bin\n" in named


def test_paths_bytes_timeout_and_env_do_what_they_say(client, tmp_path: Path):
    (tmp_path / "file").write_text("content")
    result = client.execute(
        [b"cat", tmp_path / "file"], workspace=tmp_path, preset="workspace-write", cwd=tmp_path
    )
    assert result.stdout.text == "content"
    assert client.execute(["sleep", "60"], timeout="200ms").outcome == "timeout"
    shown = client.execute(["sh", "-c", "echo $WORD $HOME"], env={"WORD": "x"}).stdout.text
    assert shown.startswith("x /")
    with pytest.raises(ManifestInvalid, match="timeout cannot be"):
        client.execute(["true"], timeout="soon")
    with pytest.raises(TypeError, match=r"argv\[1\] is 5"):
        client.execute(["echo", 5])
    with pytest.raises(ValueError, match=r"argv\[1\] is not UTF-8"):
        client.execute(["echo", b"\xff"])


def test_output_that_is_not_utf8_has_an_accessor(client):
    result = client.execute(["printf", r"a\377"])
    assert result.stdout.raw == b"a\xff"
    assert result.stdout.text == "a\N{REPLACEMENT CHARACTER}"


def test_an_error_as_text_has_the_remedy(client):
    with pytest.raises(PathDenied) as refused:
        client.execute(["true"], manifest={"fs_read_allow": ["/no/such"]})
    assert "create it first" in str(refused.value)
    assert str(SandboxdError("what", remedy="do this")) == "what (do this)"


@pytest.mark.parametrize("method", [Client.execute, Client.stream, AsyncClient.execute])
def test_help_shows_the_parameters(method):
    parameters = inspect.signature(method).parameters
    assert {"preset", "workspace", "manifest", "timeout", "env", "cwd"} <= set(parameters)
    assert parameters["workspace"].annotation == "PathLike | None"
    assert "`timeout`: seconds" in inspect.getdoc(method)


def test_notifications_that_belong_to_no_execution_are_passed_over(client, shared_daemon):
    token = Path(f"{shared_daemon.socket}.approver").read_text().strip()
    with Client(shared_daemon.socket) as watching:
        watching._ask(MethodCall("events/subscribe", {"role": "approver", "token": token}, dict))
        assert client.execute(["true"]).exit_code == 0
        for _ in range(3):
            assert watching.status().pid == shared_daemon.pid


def test_a_detached_command_is_attached_to_and_goes_on_when_left(client, shared_daemon):
    line = "echo one; cat; echo two >&2; exit 4"
    started = client.start(["sh", "-c", line], timeout="1m")
    with client.attach(started.execution_id) as attached:
        events = [type(event).__name__ for event in attached]
        assert attached.result.exit_code == 4
    assert events[0] == "Started"
    assert events[-1] == "Exited"
    assert client.execution_status(started.execution_id).result.exit_code == 4
    other = client.start(["sleep", "600"], timeout="none")
    with client.attach(other.execution_id):
        assert client.execution_status(other.execution_id).state == "running"
    assert client.execution_status(other.execution_id).state == "running"
    client.execution_cancel(other.execution_id)
    assert client.wait(other.execution_id).outcome == "cancelled"
    with pytest.raises(SandboxdError, match="no-such"):
        next(client.attach("no-such"))


async def _attached_text(socket: str) -> str:
    async with AsyncClient(socket) as client:
        started = await client.start(["sh", "-c", "echo later"])
        events = [event async for event in client.attach(started.execution_id)]
        return "".join(event.data for event in events if isinstance(event, Output))


def test_the_asynchronous_client_attaches(shared_daemon):
    assert anyio.run(_attached_text, shared_daemon.socket) == "later\n"


def test_options_without_a_text_do_not_show_that_of_dict() -> None:
    for method in (Client.check, AsyncClient.check, Client.execute, Client.sandbox_create):
        assert "dict()" not in (inspect.getdoc(method) or "")
    assert "would enforce" in (inspect.getdoc(Client.check) or "")


def test_a_wrong_path_says_what_this_program_can_do(shared_daemon) -> None:
    with Client(shared_daemon.socket) as client:
        with pytest.raises(PathDenied) as tilde:
            client.execute(["true"], manifest={"fs_read_allow": ["~/data"]})
        assert "os.path.expanduser" in str(tilde.value.remedy)
        with pytest.raises(PathDenied) as cwd:
            client.execute(["true"], preset="read-only", cwd="/no/such/folder")
        assert "leave it out of the request" in str(cwd.value.remedy)
        with pytest.raises(PathDenied) as read:
            client.execute(["true"], manifest={"fs_read_allow": ["/no/such/folder"]})
        assert "leave it out of the manifest" in str(read.value.remedy)


def test_where_a_command_starts_is_as_documented(shared_daemon, tmp_path):
    for method in (Client.execute, Client.stream, AsyncClient.execute):
        text = " ".join(str(method.__doc__).split())
        assert "Without both the command starts in /, not in your current folder" in text
    with Client(shared_daemon.socket) as client:
        assert client.execute(["pwd"], preset="read-only").stdout.text == "/\n"
        named = client.execute(["pwd"], preset="read-only", workspace=tmp_path)
        assert named.stdout.text == f"{tmp_path}\n"
        below = client.execute(["pwd"], preset="read-only", workspace=tmp_path, cwd="/usr")
        assert below.stdout.text == "/usr\n"
