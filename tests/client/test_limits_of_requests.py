"""What the daemon could not read is refused before it is sent, and no call waits for ever."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.daemon import Daemon, running_daemon

from sandboxd_client import AsyncBox, AsyncClient, Box, Client
from sandboxd_proto.errors import InvalidParams, ParseError, SandboxdError

LARGE = b"0123456789abcdef" * (20 << 16)  # 20 MiB


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as found:
        yield found


def blocking(path: str, method: str, *args: Any, **options: Any) -> Any:
    with Client(path) as client:
        return getattr(client, method)(*args, **options)


def asynchronous(path: str, method: str, *args: Any, **options: Any) -> Any:
    async def call() -> Any:
        async with AsyncClient(path) as client:
            return await getattr(client, method)(*args, **options)

    return anyio.run(call)


Ask = Callable[..., Any]
both = pytest.mark.parametrize("ask", [blocking, asynchronous])


@both
def test_a_large_input_is_streamed(daemon: Daemon, ask: Ask) -> None:
    result = ask(daemon.socket, "execute", ["cksum"], stdin=LARGE)
    assert result.stdout.text.split()[1] == str(len(LARGE))
    text = ask(daemon.socket, "execute", ["wc", "-c"], stdin="ä" * (9 << 20))
    assert text.stdout.text == f"{18 << 20}\n"


@both
def test_a_command_that_does_not_read_its_input_ends(daemon: Daemon, ask: Ask) -> None:
    result = ask(daemon.socket, "execute", ["sh", "-c", "head -c 10; exit 3"], stdin=LARGE)
    assert (result.exit_code, result.stdout.text) == (3, "0123456789")


@both
def test_a_refused_command_with_a_large_input_says_why(daemon: Daemon, ask: Ask) -> None:
    with pytest.raises(SandboxdError) as refused:
        ask(daemon.socket, "execute", ["/no/such"], stdin=LARGE)
    assert refused.value.kind == "ExecFailed"


def test_boxes_stream_a_large_input_too(daemon: Daemon) -> None:
    with Client(daemon.socket) as client, Box(client) as box:
        assert box.run("wc -c", stdin=LARGE).stdout.text == f"{len(LARGE)}\n"

    async def work() -> str:
        async with AsyncClient(daemon.socket) as client, AsyncBox(client) as box:
            return (await box.run("wc -c", stdin=LARGE)).stdout.text

    assert anyio.run(work) == f"{len(LARGE)}\n"


@both
def test_a_request_above_the_limit_is_not_sent(daemon: Daemon, ask: Ask) -> None:
    with pytest.raises(InvalidParams, match="the limit is 16777216"):
        ask(daemon.socket, "execute", ["true", "x" * (17 << 20)])


@both
@pytest.mark.parametrize("where", ["argv", "env", "stdin", "cwd"])
def test_a_lone_surrogate_is_not_sent(daemon: Daemon, ask: Ask, where: str) -> None:
    bad: dict[str, Any] = {"env": {"A": "\ud800"}, "stdin": "\ud800", "cwd": "/\ud800"}
    argv = ["echo", "\ud800"] if where == "argv" else ["true"]
    options = {where: bad[where]} if where in bad else {}
    with pytest.raises((InvalidParams, ValueError)):
        ask(daemon.socket, "execute", argv, **options)


def test_the_connection_is_usable_after_a_refusal(daemon: Daemon) -> None:
    with Client(daemon.socket) as client:
        with pytest.raises(InvalidParams):
            client.execute(["true"], stdin="\ud800")
        with pytest.raises(InvalidParams):
            client.execute(["true", "x" * (17 << 20)])
        with Box(client) as box, pytest.raises(InvalidParams):
            box.write("/tmp/x", "\ud800")
        assert client.execute(["true"]).exit_code == 0


@pytest.fixture
def unaddressed(tmp_path: Path) -> Iterator[str]:
    """A daemon that answers two requests with one error whose id is null."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve() -> None:
            client, _ = server.accept()
            with client:
                lines = client.makefile("rb")
                lines.readline()
                lines.readline()
                client.sendall(
                    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no JSON"}}\n'
                )
                lines.readline()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        thread.join(10)


def test_an_error_without_id_fails_every_call(unaddressed: str) -> None:
    seen: list[BaseException] = []

    def ask(client: Client) -> None:
        try:
            client.status()
        except SandboxdError as error:
            seen.append(error)

    with Client(unaddressed) as client:
        threads = [threading.Thread(target=ask, args=(client,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert [type(error) for error in seen] == [ParseError, ParseError]


def test_an_error_without_id_fails_every_call_of_the_async_client(unaddressed: str) -> None:
    seen: list[BaseException] = []

    async def ask(client: AsyncClient) -> None:
        try:
            await client.status()
        except SandboxdError as error:
            seen.append(error)

    async def work() -> None:
        async with AsyncClient(unaddressed) as client:
            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(partial(ask, client))
                    tasks.start_soon(partial(ask, client))

    anyio.run(work)
    assert [type(error) for error in seen] == [ParseError, ParseError]
