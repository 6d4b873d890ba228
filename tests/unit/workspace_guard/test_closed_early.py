"""A sandbox that is ended while the end of a command is judged: what was seen is not lost."""

from __future__ import annotations

from sandboxd.workspace_guard.guard import Guard


def test_a_guard_that_was_closed_meanwhile_tells_what_it_saw() -> None:
    guard = Guard(None)
    guard._seen.add("/w/.git/index")
    guard._moved["/w/.git/hooks"] = "/w/q/hooks"
    guard.close()
    assert guard._conclude() == (("/w/.git/hooks", "/w/q/hooks"), ("/w/.git/index", None))
