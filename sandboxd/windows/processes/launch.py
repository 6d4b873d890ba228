"""Make a command's process with its job, and with a terminal if it asks for one: all or nothing.

Pure: the calls are given. Whatever fails, what was made before it is taken back in reverse order,
and the process has not run an instruction.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sandboxd.types import PtyRequest
from sandboxd.windows.processes.console import ConsoleApi, ConsoleTerminal
from sandboxd.windows.processes.exits import KILLED


class Closable(Protocol):
    def close(self) -> None: ...


class Stopped(Protocol):
    """A process whose only thread does not run yet."""

    def terminate(self, code: int) -> None:
        """Ends it and closes its handles."""


class Watched(Protocol):
    def start(self) -> None:
        """Watch it, before its thread is resumed."""


J = TypeVar("J", bound=Closable)
S = TypeVar("S", bound=Stopped)
P = TypeVar("P", bound=Watched, covariant=True)


class LaunchCalls(Protocol[J, S, P]):
    """The steps, in their order. Each raises if it fails, and has then made nothing."""

    @property
    def consoles(self) -> ConsoleApi: ...
    def job(self) -> J: ...
    def spawn(self, job: J, console: int | None) -> S: ...
    def process(self, job: J, made: S, terminal: ConsoleTerminal | None) -> P: ...


@dataclass(frozen=True, slots=True)
class Launched(Generic[J, S, P]):
    """`process` owns the job, the terminal and the handles of `made`, whose thread is resumed by
    the caller."""

    process: P
    made: S
    job: J


def launch(calls: LaunchCalls[J, S, P], pty: PtyRequest | None) -> Launched[J, S, P]:
    with ExitStack() as undo:
        job = calls.job()
        undo.callback(job.close)
        terminal = ConsoleTerminal(calls.consoles, pty.rows, pty.cols) if pty is not None else None
        if terminal is not None:
            undo.callback(terminal.close)
        made = calls.spawn(job, terminal.console if terminal is not None else None)
        undo.callback(made.terminate, KILLED)
        if terminal is not None:
            terminal.attached()
        process = calls.process(job, made, terminal)
        process.start()
        undo.pop_all()
    return Launched(process, made, job)
