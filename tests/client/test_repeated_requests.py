"""`run` sends a request again that met a folder which others change, and no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sandboxd_client.cli import execute
from sandboxd_proto.errors import PathDenied

REPEATABLE, PASSED = SimpleNamespace(repeatable=True), SimpleNamespace(repeatable=False)


class Daemon:
    """Refuses the first `count` requests."""

    def __init__(self, count: int, error: PathDenied) -> None:
        self.left, self.error, self.ids = count, error, list[str]()

    def attempt(self, _: Any, params: dict[str, Any], *__: Any, **___: Any) -> dict[str, Any]:
        self.ids.append(params["execution_id"])
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return {"outcome": "exited"}


def run(daemon: Daemon, streams: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(execute, "attempt", daemon.attempt)
    params = {"execution_id": "first"}
    return execute._until_it_runs(None, params, streams, live=None, ask=None)  # type: ignore[arg-type]


def test_what_vanished_is_tried_again_under_a_new_id(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Daemon(2, PathDenied("changed", again=True))
    assert run(daemon, REPEATABLE, monkeypatch) == {"outcome": "exited"}
    assert len(set(daemon.ids)) == 3


@pytest.mark.parametrize(
    ("error", "streams", "times"),
    [
        (PathDenied("changed", again=True), REPEATABLE, 5),
        (PathDenied("changed", again=True), PASSED, 1),
        (PathDenied("no"), REPEATABLE, 1),
    ],
)
def test_no_more_than_a_few_times_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, error: PathDenied, streams: Any, times: int
) -> None:
    daemon = Daemon(99, error)
    with pytest.raises(PathDenied):
        run(daemon, streams, monkeypatch)
    assert len(daemon.ids) == times
