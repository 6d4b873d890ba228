"""A fault in the classification costs the denials of the text, not the result."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import anyio
import pytest

from sandboxd.denials import RunEvidence
from sandboxd.denials.text.scanner import StreamScanner
from sandboxd.policy.mounts.mount_plan import Host
from sandboxd.policy.plan import Limits, Mask, NetworkRule, Plan, SandboxSpec
from sandboxd.supervisor.classifier import MANY_WORDS, Classifier, HostTraits
from sandboxd.traffic import GateRefusal, Traffic
from sandboxd.types import ExitReport, TreeUsage
from sandboxd_proto.denial import Denial


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """The first call of `finish` fails."""
    seen: list[object] = []
    finish = StreamScanner.finish

    def fails(self: StreamScanner, facts: object) -> object:
        seen.append(facts)
        if len(seen) == 1:
            raise ValueError("a fault")
        return finish(self, facts)  # type: ignore[arg-type]

    monkeypatch.setattr(StreamScanner, "finish", fails)
    yield seen
    assert len(seen) == 2


def test_what_the_kernel_says_is_still_told(faults: list[object]) -> None:
    async def work() -> list[str]:
        spec = SandboxSpec(base="minimal", network=NetworkRule("deny"))
        plan = Plan(
            sandbox=spec, syscall_policy="inherit", timeout_s=1, limits=Limits(), env=(), cwd="/"
        )
        traits = HostTraits(host=Host.current("/"), landlock=False, root=False)
        judge = Classifier(plan, ("x",), traits, isolated=True, mounts=True, pty=False)
        await judge.feed("stderr", b"cat: /x: Permission denied\n")
        report = ExitReport(None, 9, TreeUsage(0, 0))
        found, _ = await judge.finish(report, "timeout", "timeout", {})
        return [denial.kind for denial in found]

    assert anyio.run(work) == ["timeout"]


def test_what_the_gate_refused_is_told_after_a_fault_in_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> list[str | None]:
        network = NetworkRule("allow_hosts", ("a.example",))
        spec = SandboxSpec(base="minimal", network=network)
        plan = Plan(
            sandbox=spec, syscall_policy="inherit", timeout_s=1, limits=Limits(), env=(), cwd="/"
        )
        traits = HostTraits(host=Host.current("/"), landlock=False, root=False)
        judge = Classifier(plan, ("x",), traits, isolated=True, mounts=True, pty=False)

        def fails(*_: object) -> list[Denial]:
            raise ValueError("a fault")

        monkeypatch.setattr(StreamScanner, "feed", fails)
        await judge.feed("stderr", b"x: Permission denied\n")
        traffic = Traffic()
        traffic.refuse(GateRefusal("b.example", 443, "not allowed"))
        report = ExitReport(0, None, TreeUsage(0, 0))
        found, _ = await judge.finish(report, "exited", None, {}, traffic=traffic)
        return [denial.target for denial in found]

    assert anyio.run(work) == ["b.example"]


def test_the_result_and_the_trail_have_the_same_refusals() -> None:
    """What comes after the end of the execution is in neither."""
    traffic = Traffic()
    traffic.refuse(GateRefusal("a.example", 443, "not allowed"))
    asked = GateRefusal("b.example", 443, "not allowed")
    traffic.asking["b.example", 443] = asked
    traffic.close()
    told = traffic.refusals
    traffic.asking.clear()
    traffic.refuse(GateRefusal("late.example", 443, "not allowed"))
    traffic.close()
    assert traffic.refusals == told
    assert {one.host for one in told} == {"a.example", "b.example"}


@pytest.mark.parametrize("code", [0, 1])
def test_a_long_command_line_is_for_a_thread(code: int) -> None:
    """Many words times many masks would take the event loop seconds."""

    async def work() -> list[str]:
        masks = tuple(Mask(f"/w/secret{number}", is_dir=False) for number in range(4))
        spec = SandboxSpec(base="minimal", network=NetworkRule("deny"), masks=masks)
        plan = Plan(
            sandbox=spec, syscall_policy="inherit", timeout_s=1, limits=Limits(), env=(), cwd="/w"
        )
        traits = HostTraits(host=Host.current("/"), landlock=False, root=False)
        words = ("x",) * (MANY_WORDS + 1)
        judge = Classifier(plan, words, traits, isolated=True, mounts=True, pty=False)
        threads = []
        finish = StreamScanner.finish

        def noted(scanner: StreamScanner, facts: RunEvidence) -> list[Denial]:
            threads.append(threading.current_thread().name)
            return finish(scanner, facts)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StreamScanner, "finish", noted)
            await judge.finish(ExitReport(code, None, TreeUsage(0, 0)), "exited", None, {})
        return threads

    (name,) = anyio.run(work)
    assert name != threading.main_thread().name
