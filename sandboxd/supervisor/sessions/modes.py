"""Modes of a session, and what each does with the effect of a plan. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sandboxd_proto.errors import InvalidParams
from sandboxd_proto.messages.approval import Decision, Effect
from sandboxd_proto.messages.session import Mode

ORDER: tuple[Mode, ...] = ("default", "auto_edit", "force")
# Names that hosts send for the same modes. None of them skips the sandbox.
ALIASES: dict[str, Mode] = {
    "yolo": "force",
    "dangerously_skip_permissions": "force",
    "dangerously_skip_sandbox_and_permissions": "force",
    "accept_edits": "auto_edit",
}
# The widest effect that runs without a question.
_RUNS: dict[Mode, tuple[Effect, ...]] = {
    "default": ("read",),
    "auto_edit": ("read", "edit"),
    "force": ("read", "edit", "reach", "bare"),
}


class ModeChoice(NamedTuple):
    """`plan` is None where the name says nothing about it."""

    mode: Mode
    plan: bool | None = None


def parse_mode(name: str, present: Mode = "default") -> ModeChoice:
    """`plan` is a flag over the mode, so `mode: "plan"` keeps the present mode."""
    known = name.strip().lower().replace("-", "_")
    if known == "plan":
        return ModeChoice(present, True)
    known = ALIASES.get(known, known)
    if known in ORDER:
        return ModeChoice(known)
    raise InvalidParams(
        f"there is no mode {name!r}", field="mode",
        remedy="the modes are default, auto_edit, force and plan",
    )  # fmt: skip


def is_wider(mode: Mode, than: Mode) -> bool:
    return ORDER.index(mode) > ORDER.index(than)


def narrower(one: Mode, other: Mode) -> Mode:
    return other if is_wider(one, other) else one


def decide(effect: Effect, mode: Mode, plan: bool) -> Decision:
    if plan:
        return "run" if effect == "read" else "refuse"
    return "run" if effect in _RUNS[mode] else "ask"
