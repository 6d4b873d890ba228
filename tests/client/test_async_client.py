"""The asynchronous client: the same promises as the blocking one, and cancellation."""

from __future__ import annotations

import anyio
import pytest

from sandboxd_client import AsyncClient, ConnectionLost, DaemonNotRunning, Unread, bytes_of
from sandboxd_client.client import Client
from sandboxd_proto.errors import ExecFailed
from sandboxd_proto.messages.notifications import Exited, Output, Started

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def client(fake):
    async with AsyncClient(fake.path) as client:
        yield client


async def drained(fake):
    with anyio.move_on_after(10):
        while fake.commands:  # noqa: ASYNC110 - it changes in a thread
            await anyio.sleep(0.01)
    return not fake.commands


def test_both_clients_have_the_same_methods():
    def public(cls):
        return {name for name in vars(cls) if not name.startswith("_")} - {"close", "aclose"}

    assert public(Client) == public(AsyncClient)


async def test_many_requests_on_one_connection(client, fake):
    results = {}

    async def run(n):
        result = await client.execute(["sh", "-c", f"sleep 0.{n % 4}; echo {n}"])
        results[n] = result.stdout.data

    async with anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(run, n)
    assert results == {n: f"{n}\n" for n in range(20)}
    assert len(fake.connections) == 1


async def test_stream_events_and_result(client):
    async with client.stream(["sh", "-c", "echo one; exit 6"]) as execution:
        events = [event async for event in execution]
    assert [type(event) for event in events] == [Started, Output, Exited]
    assert bytes_of(events[1]) == b"one\n"
    assert execution.result.exit_code == 6


async def test_talking_to_a_running_command(client):
    async with client.stream(["cat"], stdin_open=True) as execution:
        await execution.write(b"\xff\n")
        await execution.close_stdin()
        out = b"".join([bytes_of(e) async for e in execution if isinstance(e, Output)])
    assert out == b"\xff\n"
    async with client.stream(["sleep", "60"]) as execution:
        await execution.signal(15)
        assert (await execution.wait()).signal == 15


async def test_an_error_of_the_body_comes_out_as_it_is(fake):
    with pytest.raises(ExecFailed):
        async with AsyncClient(fake.path) as client:
            await client.execute(["no-such-program-here"])


async def test_leaving_a_stream_leaves_nothing_running(client, fake):
    async with client.stream(["sleep", "60"]) as execution:
        assert fake.commands
    assert execution.result.outcome == "cancelled"
    assert not fake.commands


async def test_cancelling_a_stream_leaves_nothing_running(client, fake):
    with anyio.move_on_after(0.3) as scope:
        async with client.stream(["sleep", "60"]) as execution:
            async for _ in execution:
                pass
    assert scope.cancelled_caught
    assert not fake.commands
    assert (await client.execute(["echo", "usable"])).stdout.data == "usable\n"


async def test_cancelling_execute_ends_the_command_and_nothing_else(client, fake):
    other = {}

    async def long():
        other["result"] = await client.execute(["sh", "-c", "sleep 0.6; echo done"])

    async with anyio.create_task_group() as group:
        group.start_soon(long)
        with anyio.move_on_after(0.2):
            await client.execute(["sleep", "60"])
    assert other["result"].stdout.data == "done\n"
    assert await drained(fake)


async def test_a_consumer_that_waits_for_itself_is_told(fake):
    async with (
        AsyncClient(fake.path, unread_limit=100_000) as client,
        client.stream(["sh", "-c", "while :; do echo 0123456789; done"]) as flood,
    ):
        await anext(aiter(flood))
        with pytest.raises(Unread):
            await client.execute(["sleep", "60"])


async def test_a_consumer_that_follows_another_reader_is_told_too(fake):
    """The consumer waits behind a task that reads: both must not wait for ever."""
    told = anyio.Event()
    async with AsyncClient(fake.path, unread_limit=100_000) as client:

        async def leader():
            await client.execute(["sh", "-c", "sleep 0.2"])

        async def consumer():
            async with client.stream(["sh", "-c", "while :; do echo 0123456789; done"]) as flood:
                await anext(aiter(flood))
                with pytest.raises(Unread):
                    await client.execute(["sleep", "60"])
                told.set()

        async with anyio.create_task_group() as group:
            group.start_soon(leader)
            group.start_soon(consumer)
    assert told.is_set()


async def test_a_slow_consumer_in_another_task_only_delays(fake):
    async with AsyncClient(fake.path, unread_limit=100_000) as client:
        sizes = []

        async def consume():
            async with client.stream(["seq", "1", "200000"]) as execution:
                await anyio.sleep(0.3)
                async for event in execution:
                    if isinstance(event, Output):
                        sizes.append(len(bytes_of(event)))

        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            result = await client.execute(["sh", "-c", "sleep 0.2; echo x"])
        assert result.stdout.data == "x\n"
        assert sum(sizes) == len("".join(f"{n}\n" for n in range(1, 200001)))


async def test_a_daemon_that_vanishes_is_told_to_every_waiter(client, fake):
    caught = []

    async def wait():
        try:
            await client.execute(["sleep", "60"])
        except ConnectionLost:
            caught.append(True)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(wait)
        while len(fake.commands) < 3:  # noqa: ASYNC110 - it changes in a thread
            await anyio.sleep(0.01)
        fake.close()
    assert caught == [True] * 3


async def test_nobody_listens(folder):
    with pytest.raises(DaemonNotRunning):
        async with AsyncClient(str(folder / "none.sock")):
            pass
