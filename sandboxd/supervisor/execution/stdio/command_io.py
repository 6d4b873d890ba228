"""The ends of one command: its input, and the pumps that read its output."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import anyio
from anyio.abc import TaskGroup

from sandboxd.posix.passed_ends import open_end
from sandboxd.posix.passed_streams import InputRelay, OutputRelay
from sandboxd.supervisor.classifier import Classifier
from sandboxd.supervisor.execution.stdio.ends.current_platform import ends
from sandboxd.supervisor.execution.stdio.output import OutputBudget, Stream
from sandboxd.supervisor.execution.stdio.pipes import NOTHING_PASSED, Pipes
from sandboxd.supervisor.execution.stdio.pumps import CollectingPump, Pump, StreamingPump
from sandboxd.supervisor.execution.stdio.stdin import StdinFeed
from sandboxd.supervisor.request import ExecuteRequest, OutputListener
from sandboxd.types import Process, Stdio
from sandboxd_proto.errors import InvalidParams
from sandboxd_proto.messages.execute import StreamName

Streams = tuple[Stream, Stream]


def open_streams(classifier: Classifier, budget: OutputBudget, request: ExecuteRequest) -> Streams:
    # With merged streams, error messages are in stdout.
    scan_as: StreamName = "stderr" if request.merge else "stdout"
    return (
        Stream("stdout", budget, classifier, capture=request.capture, scan_as=scan_as),
        Stream("stderr", budget, classifier, capture=request.capture),
    )


class CommandIo:
    """`pty_ready`: set when a terminal can be written to; None without a terminal."""

    def __init__(self, request: ExecuteRequest) -> None:
        self.pty_ready = anyio.Event() if request.pty is not None else None
        self._apart = request.pty is not None and request.pty.stderr_apart
        self._keeps_stdin = request.stdin_open or request.pty is not None
        self._input = request.stdin
        own_stdin = request.passed.stdin is None
        empty = own_stdin and not self._keeps_stdin and not self._input
        self._pipes = Pipes(request.passed, merge=request.merge, empty=empty)
        own_stdin = own_stdin and not empty
        self.stdin = StdinFeed(self._pipes.give_up(self._pipes.stdin_write) if own_stdin else -1)
        # Closing them takes longer than a short command's start: it can be done later, where the
        # command's end is not told by an end of file, and nobody writes to it.
        self._keeps_child_ends = empty and request.passed is NOTHING_PASSED
        self._input_relay: InputRelay | None = None
        self._relays: list[OutputRelay] = []
        self._hurried = False

    @property
    def child_ends(self) -> Stdio | None:
        return None if self.pty_ready is not None and not self._apart else self._pipes.child

    # input

    @property
    def feeds(self) -> bool:
        """Whether stdin is to be written or closed."""
        return not self._keeps_child_ends

    async def feed(self) -> None:
        """Hand over the input; returns at once if the pipe takes all of it."""
        if self._input:
            with suppress(InvalidParams):  # closed meanwhile: the command has ended
                await self.stdin.write(self._input)
            self._input = b""
        if not self._keeps_stdin:
            self.stdin.close()

    def take_over(self, process: Process) -> None:
        """The command has its ends: close our copies."""
        if process.pty is not None and self.pty_ready and not self.pty_ready.is_set():
            self.stdin.close()
            self.stdin = StdinFeed(ends.terminal_input(process.pty), is_pty=True)
            self.pty_ready.set()
            if self._apart:
                self._pipes.drop(self._pipes.stdout_read)
            else:
                self._pipes.close()
        if not self._keeps_child_ends:
            self._pipes.close_child_ends()
        given = self._pipes.passed.stdin
        if given is not None and self._input_relay is None:
            end = open_end(self._pipes.give_up(given), writes=False)
            self._input_relay = InputRelay(end, self._pipes.give_up(self._pipes.stdin_write))

    # output

    def collect(
        self, process: Process, streams: Streams, on_error: Callable[[Exception], None]
    ) -> list[Pump]:
        pumps = [
            CollectingPump(stream, fd, on_error) for stream, fd in self._ends(process, streams)
        ]
        CollectingPump.begin(pumps, self._pipes.close_child_ends)
        return [*pumps]

    def stream(
        self, process: Process, streams: Streams, who: tuple[str, str], listener: OutputListener,
        tasks: TaskGroup,
    ) -> list[Pump]:  # fmt: skip
        """`who`: the execution's id and its backend."""
        announced = anyio.Event()

        async def announce() -> None:
            # In a task: the timeout must run also while the client does not read.
            await listener.started(*who)
            announced.set()

        tasks.start_soon(announce)
        self._pipes.close_child_ends()
        return [
            StreamingPump(stream, fd, who[0], listener, tasks, announced)
            for stream, fd in self._ends(process, streams)
        ]

    def _ends(self, process: Process, streams: Streams) -> list[tuple[Stream, int]]:
        """Of the streams that were not passed."""
        if process.pty is not None:
            own = [(streams[1], self._pipes.stderr_read)] if self._apart else []
            return [(streams[0], process.pty), *own]
        pipes = self._pipes
        ends = (
            (pipes.stdout_read, pipes.passed.stdout), (pipes.stderr_read, pipes.passed.stderr)
        )  # fmt: skip
        both = zip(streams, ends, strict=True)
        return [(stream, fd) for stream, (fd, given) in both if given is None and fd >= 0]

    def relay_passed(self, classifier: Classifier, budget: OutputBudget) -> list[OutputRelay]:
        """Relay output to the descriptors that the client passed. Bytes are counted; stderr is
        scanned."""
        pipes = self._pipes
        if pipes.passed.stdout is not None:
            name: StreamName = "stderr" if pipes.merged else "stdout"
            self._relay(name, pipes.stdout_read, pipes.passed.stdout, classifier, budget)
        if pipes.passed.stderr is not None and pipes.stderr_read >= 0:
            self._relay("stderr", pipes.stderr_read, pipes.passed.stderr, classifier, budget)
        return self._relays

    def _relay(
        self,
        name: StreamName,
        source: int,
        given: int,
        classifier: Classifier,
        budget: OutputBudget,
    ) -> None:
        stream = Stream(name, budget, classifier, capture=None)

        def take(data: bytes) -> bytes:
            kept = stream.keep(data)
            classifier.read(name, kept)
            return kept

        self._relays.append(
            OutputRelay(
                source, open_end(self._pipes.give_up(given), writes=True),
                take=take, left=lambda: budget.left,
                spend=budget.spend, scans=name == "stderr",
                lost=lambda: self._pipes.drop(source),
            )
        )  # fmt: skip
        if self._hurried:
            self._relays[-1].hurry()

    def hurry(self) -> None:
        """Do not wait at the end for a client that does not read."""
        self._hurried = True
        for relay in self._relays:
            relay.hurry()

    def give_up_outputs(self, process: Process) -> list[int]:
        """The pipes that background processes may still write to; the caller closes them."""
        self._pipes.close_child_ends()
        if process.pty is not None:
            return [ends.duplicate(process.pty), *self._given_up(self._pipes.stderr_read)]
        return self._given_up(self._pipes.stdout_read, self._pipes.stderr_read)

    def _given_up(self, *outputs: int) -> list[int]:
        return [self._pipes.give_up(fd) for fd in outputs if self._pipes.holds(fd)]

    # the end

    def close_stdin(self) -> None:
        self.stdin.close()
        if self._input_relay is not None:
            self._input_relay.close()

    def forget_input(self) -> None:
        self._input = b""
        if self.pty_ready is not None:
            self.pty_ready.set()

    def close(self) -> None:
        self.close_stdin()
        self._pipes.close()
