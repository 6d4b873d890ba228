"""Why no sandbox came up: what sandbox-exec printed, and what to do about it."""

from __future__ import annotations

from sandboxd.backends.interface import Unavailable
from sandboxd_proto.errors import SandboxUnavailable

NOT_INSTALLED = Unavailable(
    "/usr/bin/sandbox-exec is missing: it is part of macOS",
    "repair the system; nothing else isolates commands on macOS",
)
NO_LAUNCHER = Unavailable(
    "the launcher is not compiled",
    "install sandboxd again where a C compiler is (xcode-select --install)",
)
SANDBOXED = Unavailable(
    "this daemon runs inside a sandbox, and sandboxes cannot be nested on macOS",
    "start sandboxd from a terminal or by launchd (`sandboxctl service install`)",
)
NOT_CONFINED = Unavailable(
    "a command in the sandbox could write where it must not",
    "do not use this backend on this system, and report its version",
)
NOT_FOUND_AGAIN = Unavailable(
    "a process that left its process group was not found as a member of its sandbox, so it could "
    "not be ended",
    "do not use this backend on this system, and report its version",
)
_CAUSES = (
    ("sandbox_apply: Operation not permitted", SANDBOXED.reason, SANDBOXED.remedy),
    ("execvp() of", "sandbox-exec could not execute the launcher in the sandbox",
     "install sandboxd where its files can be read"),
    ("unbound variable", "this version of macOS does not know a rule of the profile",
     "report the version of macOS and this message"),
    ("<input string>", "sandbox-exec does not accept the profile",
     "report the version of macOS and this message"),
)  # fmt: skip


def explain(text: str) -> SandboxUnavailable:
    for sign, reason, remedy in _CAUSES:
        if sign in text:
            return SandboxUnavailable(f"{reason}: {text[:500]}", remedy=remedy)
    said = f": {text[:500]}" if text else " and said nothing"
    return SandboxUnavailable(
        f"sandbox-exec ended before the command started{said}", remedy="run `sandboxctl doctor`"
    )
