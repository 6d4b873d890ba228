"""Connections that flood: how much of them is handled, and when others have their turn."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from support.event_turns import Turns, run, stub_service, until
from support.rpc import framed

from sandboxd.concurrency.shared_work import SharedWork
from sandboxd.rpc.connection import MAX_QUESTIONS, QUESTIONS, REQUESTS_A_TURN, Connection
from sandboxd.rpc.dispatch import Later
from sandboxd.rpc.outbox import MAX_UNSENT_ANSWERS
from sandboxd.rpc.transport.unix import Channel

FLOODING = 8


def test_requests_of_all_connections_in_one_turn() -> None:
    """Connections take turns, and one that sends a single request is not in the queue."""
    flood = b"".join(
        framed(json.dumps({"jsonrpc": "2.0", "method": "x", "id": n}).encode(), "lines")
        for n in range(200)
    )
    one = flood[: flood.index(b"\n") + 1]

    async def work() -> None:
        service = stub_service()
        pairs = [socket.socketpair() for _ in range(FLOODING + 1)]
        turns, handled, before_quiet, spread = Turns(), Counter[int](), 0, 0
        serving = []

        def start(number: int, *_: Any) -> None:
            nonlocal before_quiet, spread
            turns.count()
            handled[number] += 1
            if handled.total() == 100:
                pairs[FLOODING][1].sendall(one)
            if number == FLOODING:
                before_quiet = handled.total()
                flooding = [handled[number] for number in range(FLOODING)]
                spread = max(flooding) - min(flooding)

        for number, (ours, _) in enumerate(pairs):
            connection = Connection(Channel(ours), service, lambda: None, None)
            connection._try_request = partial(start, number)  # type: ignore[method-assign]
            serving.append(asyncio.create_task(connection.serve()))
        for _, theirs in pairs[:FLOODING]:
            theirs.sendall(flood)
        await until(lambda: handled.total() == FLOODING * 200 + 1)
        assert turns.most <= REQUESTS_A_TURN + len(pairs)
        assert spread < 2 * REQUESTS_A_TURN
        assert before_quiet <= 100 + 3 * REQUESTS_A_TURN
        for _, theirs in pairs:
            theirs.close()
        await asyncio.gather(*serving)

    run(work)


def test_a_connection_whose_answers_are_not_read_is_not_read() -> None:
    lines = [{"jsonrpc": "2.0", "method": "status", "id": n} for n in range(5000)]
    flood = b"".join(framed(json.dumps(one).encode(), "lines") for one in lines)
    answer = {"jsonrpc": "2.0", "result": "x" * 4096, "id": 1}

    async def work() -> None:
        ours, theirs = socket.socketpair()
        connection = Connection(Channel(ours), stub_service(), lambda: None, None)
        handled = 0

        def start(value: Any, offset: int, send: Any, prepared: Any) -> None:
            nonlocal handled
            handled += 1
            send(answer, lambda: None)

        connection._try_request = start  # type: ignore[method-assign]
        serving = asyncio.create_task(connection.serve())
        sending = asyncio.create_task(asyncio.to_thread(theirs.sendall, flood))
        await until(lambda: connection._outbox.is_full)
        before = handled
        await asyncio.sleep(0.05)
        assert handled == before
        assert connection._outbox.unsent_answers == MAX_UNSENT_ANSWERS + 1 < 100
        theirs.setblocking(False)
        while handled < len(lines):
            await asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
        theirs.close()
        await asyncio.gather(serving, sending)

    run(work)


@pytest.mark.parametrize("method", sorted(QUESTIONS))
def test_questions_of_a_connection_in_flight(method: str) -> None:
    """The others wait for them, and all are answered."""
    lines = [{"jsonrpc": "2.0", "method": method, "id": n} for n in range(100)]
    flood = b"".join(framed(json.dumps(one).encode(), "lines") for one in lines)

    async def work() -> None:
        ours, theirs = socket.socketpair()
        begun, may_end = 0, asyncio.Event()

        async def finish(request: Any, rest: Later) -> Any:
            await may_end.wait()
            return {"jsonrpc": "2.0", "result": {}, "id": request.id}

        def answer(request: Any, call: Any) -> Later:
            nonlocal begun
            begun += 1
            return Later(lambda: may_end.wait())

        service = stub_service()
        service.dispatcher = SimpleNamespace(answer=answer, finish=finish)
        connection = Connection(Channel(ours), service, lambda: None, None)
        serving = asyncio.create_task(connection.serve())
        theirs.sendall(flood)
        await until(lambda: begun >= MAX_QUESTIONS)
        await asyncio.sleep(0.05)
        assert begun == MAX_QUESTIONS
        may_end.set()
        theirs.setblocking(False)
        answers = b""
        while answers.count(b"\n") < len(lines):
            answers += await asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
        assert {json.loads(one)["id"] for one in answers.splitlines()} == set(range(100))
        theirs.close()
        await serving

    run(work)


def test_those_who_ask_at_once_share_the_work() -> None:
    """One who asks while it runs gets the result of the next one."""

    async def work() -> None:
        shared, runs, may_end = SharedWork[int](), 0, asyncio.Event()

        async def count() -> int:
            nonlocal runs
            runs += 1
            number = runs
            await may_end.wait()
            return number

        first = [asyncio.create_task(shared.result(count)) for _ in range(100)]
        await until(lambda: runs == 1)
        second = [asyncio.create_task(shared.result(count)) for _ in range(100)]
        second[0].cancel()  # the others wait for the same one
        may_end.set()
        assert set(await asyncio.gather(*first)) == {1}
        assert set(await asyncio.gather(*second[1:])) == {2}
        assert runs == 2
        assert await shared.result(count) == 3

    run(work)
