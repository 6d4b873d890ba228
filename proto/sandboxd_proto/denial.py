"""A denial: what was refused, by which layer, on what evidence, and what would allow it."""

from __future__ import annotations

from typing import Any, Literal

from sandboxd_proto.wire import Reported

DenialKind = Literal[
    "filesystem_read", "filesystem_write", "network", "syscall", "process", "memory", "cpu",
    "processes", "file_size", "timeout", "protected_path", "sandbox_error",
]  # fmt: skip
Layer = Literal[
    "mount", "landlock", "seccomp", "namespace", "gate", "limit", "supervisor", "engine", "profile"
]
Evidence = Literal["kernel", "gate", "policy", "text"]
Confidence = Literal["high", "medium", "low"]


class Denial(Reported, frozen=True, kw_only=True):
    """`remedy` is the manifest change that would allow it, ready to paste; None where none can.

    `claimed`: the command's own output says so, and the plan does refuse it. Its remedy is what the
    command asks for, not what the sandbox has seen it need.
    """

    kind: DenialKind
    operation: str
    target: str | None
    layer: Layer
    evidence: Evidence
    confidence: Confidence
    message: str
    remedy: dict[str, Any] | None = None
    claimed: bool = False
