"""`approve` and `top` on a console of Windows, with an injected keyboard."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

import pytest

from sandboxd_client.cli import approve, top
from sandboxd_client.cli.approve import Queue
from sandboxd_client.cli.parse import UsageError
from sandboxd_client.cli.raw_mode_windows import SingleKeys, drop_typed

APPROVAL = {
    "approval": "ap-1", "digest": "d", "question": "may it?", "client": {"name": "test"},
    "choices": [{"choice": c, "label": c} for c in ("once", "session", "always", "deny")],
    "cwd": "/", "session": "se-1",
}  # fmt: skip


class Keyboard:
    def __init__(self, typed: str = "") -> None:
        self.typed = deque(typed)

    def kbhit(self) -> bool:
        return bool(self.typed)

    def getwch(self) -> str:
        return self.typed.popleft()


class Link:
    """The daemon: `tells` is what it sends when it is waited for; `then`: typed at that moment."""

    def __init__(self, keyboard: Keyboard, *steps: str) -> None:
        self.keyboard = keyboard
        self.steps = deque(steps)
        self.decided: list[dict[str, Any]] = []
        self.notifications: deque[dict[str, Any]] = deque()
        self.waiting = [APPROVAL]
        self._came = False

    def is_readable(self, timeout_s: float) -> bool:
        assert self.steps, "waits for ever"
        step = self.steps.popleft()
        if step == "resolved":
            resolved = {"method": "approval/resolved", "params": {"approval": "ap-1"}}
            self.notifications.append(resolved)
            self.waiting = []
            return True
        self.keyboard.typed.extend(step)
        return False

    def receive(self, timeout_s: float) -> bool:
        return True

    def call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        if method == "approval/decide":
            assert params is not None
            self.decided.append(params)
            self.waiting = []
            return {"state": "allowed", **params}
        return {"approvals": list(self.waiting), "sessions": [], "executions": []}


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Keyboard:
    found = Keyboard()
    monkeypatch.setattr(approve, "SingleKeys", lambda: SingleKeys(found))
    monkeypatch.setattr(approve, "drop_typed", lambda: drop_typed(found))
    monkeypatch.setattr(approve, "DEAF_S", 0.01)
    return found


def decided(keyboard: Keyboard, *steps: str) -> list[str]:
    link = Link(keyboard, *steps)
    assert Queue(link).run() == 0  # type: ignore[arg-type]
    return [one["choice"] for one in link.decided]


@pytest.mark.parametrize(("typed", "choice"), [("y", "once"), ("n", "deny")])
def test_a_listed_key_decides(keyboard: Keyboard, typed: str, choice: str) -> None:
    assert decided(keyboard, "", typed, "q") == [choice]


@pytest.mark.parametrize(("typed", "choice"), [("s", "session"), ("a", "always")])
@pytest.mark.parametrize("other", ["y", "s", "a", "x", " ", "\x1b"])
def test_what_lasts_needs_a_letter_and_enter(
    keyboard: Keyboard, typed: str, choice: str, other: str
) -> None:
    assert decided(keyboard, "", typed, "\r", "q") == [choice]
    assert decided(keyboard, "", typed, other, "", "q") == []
    assert decided(keyboard, "", f"{typed}{other}nyn", "", "q") == [], "typed for something else"
    assert decided(keyboard, "", typed, "\x03") == []
    assert decided(keyboard, "", typed, "resolved", "q") == []


def test_what_was_typed_before_the_prompt_decides_nothing(keyboard: Keyboard) -> None:
    keyboard.typed.extend("yyy")
    assert decided(keyboard, "", "q") == []


@pytest.mark.parametrize("key", ["\xe0s", "\xe0a", "\x00y", "\r", "Y", " ", "\x1b"])
def test_no_other_key_decides(keyboard: Keyboard, key: str) -> None:
    """Ctrl-Left is two characters, and the second one is the s of a choice."""
    assert decided(keyboard, key, "q") == []


@pytest.mark.parametrize("key", ["q", "\x03", "\x04", "\x1a"])
def test_the_end_decides_nothing(keyboard: Keyboard, key: str) -> None:
    assert decided(keyboard, key) == []


def test_one_that_is_decided_elsewhere_is_left_alone(
    keyboard: Keyboard, capsys: pytest.CaptureFixture[str]
) -> None:
    assert decided(keyboard, "resolved", "q") == []
    assert "decided elsewhere" in capsys.readouterr().out


def test_top_is_drawn_until_q(capsys: pytest.CaptureFixture[str]) -> None:
    keyboard = Keyboard()
    link = Link(keyboard, "x", "\xe0K", "q")
    assert top._live(link, SingleKeys(keyboard)) == 0  # type: ignore[arg-type]
    assert capsys.readouterr().out.count("WAITING") == 3


def test_a_time_limit_holds_without_any_key() -> None:
    class Silent:
        def is_readable(self, timeout_s: float) -> bool:
            return False

    assert SingleKeys(Keyboard()).wait(Silent(), 0.01) == (False, False)


@pytest.mark.skipif(sys.platform == "win32", reason="a console may be there")
def test_without_a_console_it_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="stdin is none"), SingleKeys():
        pass
