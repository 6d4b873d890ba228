"""A process is resumed when everything holds, and never when one single property does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from sandboxd.policy.plan import Limits
from sandboxd.windows.app_containers.verification import Expected, NotVerifiedError, resume_verified
from sandboxd.windows.job_objects.job_limits import (
    ACTIVE_PROCESSES,
    JOB_MEMORY,
    PROCESS_MEMORY,
    JobLimits,
    same_limits,
    sandbox_limits,
    ui_limits,
)
from sandboxd.windows.structures import JOBOBJECT_EXTENDED_LIMIT_INFORMATION

EXPECTED = Expected("S-1-5-21-1", "S-1-15-2-1-2", frozenset({"S-1-15-3-1024-1"}))


@dataclass
class Process:
    """Says back what it is told to."""

    facts: dict[str, Any]
    done: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        value = self.facts[name]

        def answer() -> Any:
            if isinstance(value, Exception):
                raise value
            return value

        return answer

    def resume(self) -> None:
        self.done.append("resumed")

    def terminate(self) -> None:
        self.done.append("terminated")


RIGHT: dict[str, Any] = {
    "user": EXPECTED.user,
    "integrity": "S-1-16-4096",
    "is_app_container": True,
    "package": EXPECTED.package,
    "capabilities": EXPECTED.capabilities,
    "in_job": True,
    "limits_hold": True,
    "ui_limits_hold": True,
}
WRONG: list[tuple[str, Any]] = [
    ("user", "S-1-5-18"),
    ("integrity", "S-1-16-8192"),
    ("integrity", ""),
    ("is_app_container", False),
    ("is_app_container", None),
    ("package", "S-1-15-2-9"),
    ("package", ""),
    ("capabilities", EXPECTED.capabilities | {"S-1-15-3-1"}),
    ("capabilities", frozenset()),
    ("capabilities", None),
    ("in_job", False),
    ("limits_hold", False),
    ("ui_limits_hold", False),
]


def test_when_everything_holds_the_thread_is_resumed() -> None:
    process = Process(RIGHT)
    resume_verified(process, EXPECTED)
    assert process.done == ["resumed"]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_one_wrong_property_ends_the_process(name: str, value: Any) -> None:
    process = Process({**RIGHT, name: value})
    with pytest.raises(NotVerifiedError):
        resume_verified(process, EXPECTED)
    assert process.done == ["terminated"]


@pytest.mark.parametrize("name", list(RIGHT))
def test_a_property_that_cannot_be_read_ends_the_process(name: str) -> None:
    process = Process({**RIGHT, name: OSError("not readable")})
    with pytest.raises(OSError, match="not readable"):
        resume_verified(process, EXPECTED)
    assert process.done == ["terminated"]


def test_every_property_has_a_test() -> None:
    assert {name for name, _ in WRONG} == set(RIGHT)


LIMITS = JobLimits(
    processes=64, process_memory=1 << 30, job_memory=2 << 30, job_time_s=3.5, below_normal=True,
    ui=0xFF,
)  # fmt: skip


def test_limits_that_are_said_back_are_equal() -> None:
    assert same_limits(LIMITS.structure(), LIMITS.structure())


@pytest.mark.parametrize(
    "other",
    [
        replace(LIMITS, processes=65),
        replace(LIMITS, processes=None),
        replace(LIMITS, process_memory=1 << 31),
        replace(LIMITS, job_memory=1 << 31 | 1 << 20),
        replace(LIMITS, job_time_s=3.6),
        replace(LIMITS, job_time_s=None),
        replace(LIMITS, below_normal=False),
    ],
)
def test_one_other_limit_is_noticed(other: JobLimits) -> None:
    assert not same_limits(other.structure(), LIMITS.structure())


def test_zeros_and_breakaway_are_noticed() -> None:
    assert not same_limits(JOBOBJECT_EXTENDED_LIMIT_INFORMATION(), LIMITS.structure())
    loose = LIMITS.structure()
    loose.BasicLimitInformation.LimitFlags |= 0x800  # BREAKAWAY_OK
    assert not same_limits(loose, LIMITS.structure())


def test_a_sandbox_has_limits_without_being_asked() -> None:
    found = sandbox_limits(Limits(), 19045)
    assert found.processes == ACTIVE_PROCESSES >= 64
    assert (found.process_memory, found.job_memory) == (PROCESS_MEMORY, JOB_MEMORY)
    assert found.below_normal
    asked = sandbox_limits(Limits(memory_bytes=4 << 30, processes=3, cpu_s=2.0), 19045)
    assert (asked.processes, asked.job_memory, asked.job_time_s) == (3, 4 << 30, 2.0)


@pytest.mark.parametrize(("build", "mask"), [(19045, 0xFF), (22621, 0x1FF), (26100, 0x3FF)])
def test_ui_limits_follow_the_build(build: int, mask: int) -> None:
    assert ui_limits(build) == mask
