"""What must hold of a suspended process before its thread is resumed. Pure: the facts are given.

A property that cannot be read counts as missing. Nothing that misses one is ever resumed.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from sandboxd.windows import integrity


class Expected(msgspec.Struct, frozen=True):
    """`package`: the AppContainer's SID. `user`: the daemon's."""

    user: str
    package: str
    capabilities: frozenset[str] = frozenset()


class SuspendedProcess(Protocol):
    """A process whose only thread does not run yet."""

    def user(self) -> str: ...
    def integrity(self) -> str: ...
    def is_app_container(self) -> bool | None: ...
    def package(self) -> str: ...
    def capabilities(self) -> frozenset[str] | None: ...
    def in_job(self) -> bool: ...
    def limits_hold(self) -> bool: ...
    def ui_limits_hold(self) -> bool: ...
    def resume(self) -> None: ...
    def terminate(self) -> None: ...


class NotVerifiedError(Exception):
    """The process was ended before it ran an instruction; the message says what was wrong."""


def resume_verified(process: SuspendedProcess, expected: Expected) -> None:
    """Resumes it if everything holds; otherwise ends it and raises NotVerifiedError."""
    try:
        problems = missing(process, expected)
    except BaseException:
        process.terminate()
        raise
    if problems:
        process.terminate()
        raise NotVerifiedError("; ".join(problems))
    process.resume()


def missing(process: SuspendedProcess, expected: Expected) -> list[str]:
    checks = (
        (process.user() == expected.user, "the process runs as another user"),
        (process.integrity() == integrity.LOW, "its integrity level is not Low"),
        (process.is_app_container() is True, "it is in no AppContainer"),
        (process.package() == expected.package, "its AppContainer is another one"),
        (process.capabilities() == expected.capabilities, "its capabilities are others"),
        (process.in_job(), "it is not in its job"),
        (process.limits_hold(), "the job does not say back its limits"),
        (process.ui_limits_hold(), "the job does not say back its UI limits"),
    )
    return [why for holds, why in checks if not holds]
