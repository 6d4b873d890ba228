"""A pseudo console over an injected system: the order of its calls, and every step that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from sandboxd.backends.interface import Capabilities
from sandboxd.policy.plan import Limits, NetworkRule, Plan, SandboxSpec
from sandboxd.supervisor.execution.unsupported import refuse_unsupported
from sandboxd.supervisor.request import ExecuteRequest
from sandboxd.types import PtyRequest
from sandboxd.windows.processes import console
from sandboxd.windows.processes.console import ConsoleTerminal
from sandboxd.windows.processes.exits import KILLED
from sandboxd.windows.processes.launch import launch
from sandboxd_proto.errors import PolicyNotSupported

SIZE = PtyRequest(24, 80)
# What a launch with a terminal does, in this order.
STEPS = ["job", "input_pipe", "output_pipe", "create", "spawn", "process", "start"]


@dataclass
class System:
    """Counts what is open. The step `fails` raises, and makes nothing."""

    fails: str = ""
    done: list[str] = field(default_factory=list)
    open: set[str] = field(default_factory=set)
    threads: list[Callable[[], None]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def step(self, name: str, *makes: str) -> None:
        self.done.append(name)
        if name == self.fails:
            raise OSError(f"{name} failed")
        assert not self.open & set(makes)
        self.open |= set(makes)

    def handle(self, name: str) -> int:
        number = len(self.names) + 100
        self.names[number] = name
        return number

    def drop(self, name: str) -> None:
        self.done.append(f"close {name}")
        assert name in self.open, f"{name} is closed twice"
        self.open.discard(name)

    # the consoles

    def input_pipe(self) -> tuple[int, int]:
        self.step("input_pipe", "input", "source")
        return self.handle("input"), self.handle("source")

    def output_pipe(self) -> tuple[int, int]:
        self.step("output_pipe", "output", "target")
        return self.handle("output"), self.handle("target")

    def create(self, rows: int, cols: int, source: int, target: int) -> int:
        assert (rows, cols) == (SIZE.rows, SIZE.cols)
        assert (self.names[source], self.names[target]) == ("source", "target")
        self.step("create", "console")
        return self.handle("console")

    def resize(self, console: int, rows: int, cols: int) -> None:
        assert self.names[console] == "console"
        self.step(f"resize {rows} {cols}")

    def close_console(self, console: int) -> None:
        self.drop(self.names[console])

    def close(self, handle: int) -> None:
        self.drop(self.names[handle])

    def duplicate(self, handle: int) -> int:
        return self.handle(f"copy of {self.names[handle]}")

    def in_thread(self, work: Callable[[], None]) -> None:
        self.done.append("thread")
        self.threads.append(work)

    # the launch

    @property
    def consoles(self) -> System:
        return self

    def job(self) -> Made:
        self.step("job", "job")
        return Made(self, "job")

    def spawn(self, job: Made, console: int | None) -> Made:
        assert (console is None) == ("console" not in self.open)
        self.step("spawn", "process")
        return Made(self, "process")

    def process(self, job: Made, made: Made, terminal: ConsoleTerminal | None) -> Made:
        self.step("process")
        return Made(self, "watched")


@dataclass
class Made:
    system: System
    name: str

    def close(self) -> None:
        self.system.drop(self.name)

    def terminate(self, code: int) -> None:
        assert code == KILLED
        self.system.drop(self.name)

    def start(self) -> None:
        self.system.step("start")


def test_a_launch_with_a_terminal_has_its_order() -> None:
    system = System()
    launch(system, SIZE)
    assert sorted(system.done[5:7]) == ["close source", "close target"]
    assert [*system.done[:5], *system.done[7:]] == STEPS
    assert system.open == {"job", "process", "console", "input", "output"}


def test_a_launch_without_a_terminal_makes_none() -> None:
    system = System()
    launch(system, None)
    assert system.done == ["job", "spawn", "process", "start"]


@pytest.mark.parametrize("step", STEPS)
def test_whatever_fails_nothing_is_left_and_nothing_is_closed_twice(step: str) -> None:
    system = System(fails=step)
    with pytest.raises(OSError, match=f"{step} failed"):
        launch(system, SIZE)
    for work in system.threads:  # the console is closed in a thread of its own
        work()
    assert system.open == set()
    done = [one for one in system.done if not one.startswith("close") and one != "thread"]
    assert done == STEPS[: STEPS.index(step) + 1]


@pytest.mark.parametrize("step", ["process", "start"])
def test_the_process_is_ended_before_its_console_and_its_job(step: str) -> None:
    system = System(fails=step)
    with pytest.raises(OSError, match="failed"):
        launch(system, SIZE)
    after = system.done[system.done.index(step) + 1 :]
    assert after == ["close process", "thread", "close input", "close output", "close job"]


def terminal(system: System) -> ConsoleTerminal:
    made = ConsoleTerminal(system, SIZE.rows, SIZE.cols)
    made.attached()
    system.done.clear()
    return made


def test_the_console_is_closed_in_a_thread_while_its_output_is_read_on() -> None:
    system = System()
    made = terminal(system)
    made.end()
    assert system.done == ["thread"]
    assert {"console", "output", "input"} <= system.open, "the caller did not wait for it"
    system.threads.pop()()
    assert system.done == ["thread", "close console"]
    made.close()
    assert system.done[2:] == ["close input", "close output"]
    assert system.open == set()


def test_ending_and_closing_twice_does_nothing_more() -> None:
    system = System()
    made = terminal(system)
    for act in (made.end, made.end, made.close, made.close, made.end):
        act()
    assert system.done == ["thread", "close input", "close output"]


def test_a_terminal_that_was_never_attached_closes_the_consoles_ends_too() -> None:
    system = System()
    made = ConsoleTerminal(system, SIZE.rows, SIZE.cols)
    made.close()
    system.threads.pop()()
    assert system.open == set()


def test_a_size_is_passed_on_and_one_that_no_coord_holds_is_refused() -> None:
    system = System()
    made = terminal(system)
    made.resize(50, 132)
    assert system.done == ["resize 50 132"]
    for rows, cols in ((0, 80), (24, 32768), (65535, 80), (-1, 80)):
        with pytest.raises(PolicyNotSupported, match="at most 32767"):
            made.resize(rows, cols)
        with pytest.raises(PolicyNotSupported, match="at most 32767"):
            ConsoleTerminal(System(), rows, cols)
    made.end()
    made.resize(9, 9)
    assert system.done == ["resize 50 132", "thread"], "the console is closed already"


def test_a_system_that_does_not_resize_says_so() -> None:
    system = System(fails="resize 9 9")
    with pytest.raises(PolicyNotSupported, match="does not resize"):
        terminal(system).resize(9, 9)


def test_what_is_written_goes_to_the_input() -> None:
    system = System()
    assert system.names[terminal(system).input_copy()] == "copy of input"


def test_terminals_are_refused_by_name_until_they_are_verified() -> None:
    assert not console.VERIFIED
    able = Capabilities(terminals=console.VERIFIED, terminal_refusal=console.REFUSAL)
    spec = SandboxSpec(base="minimal", network=NetworkRule("deny"))
    plan = Plan(
        sandbox=spec, syscall_policy="inherit", timeout_s=None, limits=Limits(), env=(), cwd="/"
    )
    request = ExecuteRequest(argv=("cmd",), plan=plan, owner=object(), pty=SIZE)
    with pytest.raises(PolicyNotSupported, match="not verified on a real machine") as refused:
        refuse_unsupported(request, able, "appcontainer")
    assert refused.value.field == "pty"
    refuse_unsupported(request, Capabilities(), "appcontainer")
