"""Progress while a sandbox is opened: a backend reports it to the requests that wait.

The pool sets the callback for the task that opens a sandbox, so `Backend.open` needs no parameter
for it. Without one (a sandbox that is opened ahead) a report does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

# (phase, done, total); `total` is None where it is not known.
ReportProgress = Callable[[str, int, int | None], None]
progress_callback: ContextVar[ReportProgress | None] = ContextVar("progress_callback", default=None)


def report(phase: str, done: int, total: int | None) -> None:
    tell = progress_callback.get()
    if tell is not None:
        tell(phase, done, total)
