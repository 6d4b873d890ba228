"""Both Python clients in a session: $SANDBOXD_SESSION, and notifications of approvals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import PATIENCE_S
from support.sessions import approver_token

from sandboxd_client import AsyncClient, Client, ConnectionLost
from sandboxd_client.conversation import MOST_NOTICES, ClientConnection
from sandboxd_proto.errors import ApprovalDenied, InvalidParams
from sandboxd_proto.messages.approval import ApprovalInfo

pytestmark = pytest.mark.requires("bubblewrap")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as daemon:
        yield daemon


def test_an_approver_is_told_and_decides(daemon: Daemon, workspace: Path) -> None:
    """The agent joins by its environment and asks; the editor reads its notices."""

    async def agent(session: str) -> int | None:
        async with AsyncClient(daemon.socket) as client:
            (mine,) = (await client.session_list()).sessions
            assert mine.session == session
            result = await client.execute(
                ["touch", "made"], preset="workspace-write", workspace=str(workspace)
            )
            told = [(await client.next_notice()).method for _ in range(2)]
            assert told == ["execution/pending", "approval/resolved"]
            return result.exit_code

    async def editor() -> None:
        async with AsyncClient(daemon.socket, join_session=False) as client:
            await client.events_subscribe(
                role="approver", token=approver_token(daemon), types=["-"]
            )
            while (notice := await client.next_notice()).method != "approval/requested":
                pass
            asked = notice.params
            assert isinstance(asked, ApprovalInfo)
            assert (asked.argv, notice.missed) == (["touch", "made"], 0)
            await client.approval_decide(asked.approval, asked.digest, "once")

    async def both(session: str) -> None:
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(editor)
                tasks.start_soon(agent, session)

    with Client(daemon.socket) as opener, pytest.MonkeyPatch.context() as patch:
        opened = opener.session_open(title="agent")
        patch.setenv("SANDBOXD_SESSION", f"{opened.session}:{opened.token.reveal()}")
        anyio.run(both, opened.session)
        assert opener.next_notice().method == "session/changed"
        patch.setenv("SANDBOXD_SESSION", f"{opened.session}:{'0' * 64}")
        with pytest.raises(Exception, match="not the token"):
            Client(daemon.socket)
        patch.setenv("SANDBOXD_SESSION", opened.session)
        with pytest.raises(InvalidParams, match="SANDBOXD_SESSION as se-…:TOKEN"):
            Client(daemon.socket)
        with pytest.raises(InvalidParams, match="SANDBOXD_SESSION as se-…:TOKEN"):
            anyio.run(AsyncClient(daemon.socket).__aenter__)
    assert (workspace / "made").exists()


def test_the_blocking_client_waits_for_a_notice(daemon: Daemon) -> None:
    with Client(daemon.socket) as client:
        session = client.session_open(budget={"max_tokens_in": 10})  # type: ignore[typeddict-item]
        client.session_charge(tokens_in=9)
        notice = client.next_notice()
        assert (notice.method, notice.params.session) == ("budget/warning", session.session)
        client.session_update(plan=True)
        with pytest.raises(ApprovalDenied):
            client.execute(["true"], manifest={"network": "inherit"})
        assert client.next_notice().params.plan is True


def test_too_many_notices_are_counted_and_the_last_ones_are_kept() -> None:
    connection = ClientConnection()
    for number in range(MOST_NOTICES + 3):
        connection.receive(
            b'{"jsonrpc":"2.0","method":"budget/warning","params":{"session":"se-1",'
            b'"reason":"x","observed":%d,"limit":1,"fraction":1.0}}\n' % number
        )
    first = connection.next_notice()
    assert first is not None
    assert (first.missed, first.params.observed) == (3, 3)
    second = connection.next_notice()
    assert second is not None
    assert second.missed == 0
    connection.receive(b"")
    for _ in range(MOST_NOTICES - 2):
        assert connection.next_notice() is not None
    with pytest.raises(ConnectionLost):
        connection.next_notice()
