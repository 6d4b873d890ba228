"""A program that Windows ended before its first instruction is a denial, if it printed nothing."""

from __future__ import annotations

import anyio
import pytest

from sandboxd.policy.mounts.mount_plan import Host
from sandboxd.policy.plan import Limits, NetworkRule, Plan, SandboxSpec
from sandboxd.supervisor.classifier import Classifier, HostTraits
from sandboxd.types import ExitReport, TreeUsage
from sandboxd.windows.processes import exits
from sandboxd_proto.denial import Denial

STATUS = 0xC0000022


def judged(code: int, printed: bytes, *, isolated: bool = True) -> list[Denial]:
    async def work() -> list[Denial]:
        spec = SandboxSpec(base="minimal", network=NetworkRule("deny"))
        plan = Plan(
            sandbox=spec, syscall_policy="inherit", timeout_s=None, limits=Limits(), env=(), cwd="/"
        )
        bench = HostTraits(host=Host.current("/"), landlock=False, root=False)
        judge = Classifier(plan, ("cmd.exe",), bench, isolated=isolated, mounts=False, pty=False)
        if printed:
            await judge.feed("stdout", printed)
        report = ExitReport(code, None, TreeUsage(0, 0), start_failure=exits.start_denial(code))
        return (await judge.finish(report, "exited", None, {}))[0]

    return anyio.run(work)


def test_a_program_that_never_ran_was_denied_its_start() -> None:
    (denial,) = judged(STATUS, b"")
    assert (denial.kind, denial.operation, denial.target) == ("process", "exec", "cmd.exe")
    assert (denial.evidence, denial.confidence) == ("kernel", "high")
    assert "STATUS_ACCESS_DENIED" in denial.message


@pytest.mark.parametrize(
    ("code", "printed", "isolated"),
    [(STATUS, b"it ran\n", True), (1, b"", True), (STATUS, b"", False)],
)
def test_one_that_ran_was_not(code: int, printed: bytes, isolated: bool) -> None:
    assert not [one for one in judged(code, printed, isolated=isolated) if one.operation == "exec"]
