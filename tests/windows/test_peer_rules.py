"""Which client of the pipe is refused, and what may open it at all."""

from __future__ import annotations

import pytest

from sandboxd.rpc.peer_auth.windows_rules import PeerToken, refuse
from sandboxd.windows.integrity import HIGH, LOW, MEDIUM, SYSTEM, level, private_sddl

ME = "S-1-5-21-1"


@pytest.mark.parametrize("ours", [MEDIUM, HIGH])
def test_the_daemons_own_user_is_welcome(ours: str) -> None:
    assert refuse(PeerToken(ME, ours, False), ME, ours, False) is None


def test_an_elevated_client_need_not_show_its_process() -> None:
    assert refuse(PeerToken(ME, HIGH, False), ME, MEDIUM, None) is None


@pytest.mark.parametrize(
    ("token", "ours", "in_job"),
    [
        (PeerToken("S-1-5-18", MEDIUM, False), MEDIUM, False),
        (PeerToken("S-1-5-7", MEDIUM, False), MEDIUM, False),
        (PeerToken(ME, LOW, False), MEDIUM, False),
        (PeerToken(ME, "S-1-16-0", False), MEDIUM, False),
        (PeerToken(ME, "garbage", False), MEDIUM, False),
        (PeerToken(ME, "", False), MEDIUM, False),
        (PeerToken(ME, "", False), "", False),
        (PeerToken(ME, MEDIUM, False), HIGH, False),
        (PeerToken(ME, MEDIUM, True), MEDIUM, False),
        (PeerToken(ME, MEDIUM, None), MEDIUM, False),
        (PeerToken(ME, MEDIUM, False), MEDIUM, True),
        (PeerToken(ME, MEDIUM, False), MEDIUM, None),
        (PeerToken(ME, HIGH, False), MEDIUM, True),
    ],
)
def test_others_and_sandboxed_commands_are_refused(
    token: PeerToken, ours: str, in_job: bool | None
) -> None:
    assert refuse(token, ME, ours, in_job) is not None


@pytest.mark.parametrize(
    ("ours", "label"), [(MEDIUM, "ME"), (HIGH, "HI"), (SYSTEM, "SI"), (LOW, "ME"), ("", "ME")]
)
def test_only_the_user_and_the_system_may_open_the_pipe(ours: str, label: str) -> None:
    text = private_sddl(ME, ours)
    assert text == f"O:{ME}G:{ME}D:P(A;;FA;;;SY)(A;;FA;;;{ME})S:(ML;;NWNRNX;;;{label})"


def test_levels_are_ordered() -> None:
    assert 0 == level("x") < level(LOW) < level(MEDIUM) < level(HIGH) < level(SYSTEM)
