"""The answer of explain mode: what was refused, and the manifest that would allow it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sandboxd_proto.wire import Reported

# "refused": no manifest can allow it (`note` says why). "secret": it is not proposed.
NeedStatus = Literal["needed", "optional", "secret", "refused"]
NeedAccess = Literal["read", "write", "network", "syscall", "limit"]


class NeedRow(Reported, frozen=True, kw_only=True):
    """One thing that was refused. `grant`: the entry of the manifest that covers it."""

    access: NeedAccess
    target: str
    operation: str
    status: NeedStatus
    grant: str | None = None
    note: str = ""


class Explanation(Reported, frozen=True, kw_only=True):
    """`missing`: the fields to add. `manifest`: what was asked for with these added, whole.

    It was run under `preset` (and `workspace`), if any: the manifest is meant on top of that.
    `secrets`: paths among the needs that hold secrets; they are never in the manifest.
    """

    needs: list[NeedRow] = msgspec.field(default_factory=list)
    secrets: list[str] = msgspec.field(default_factory=list)
    missing: dict[str, Any] = msgspec.field(default_factory=dict)
    manifest: dict[str, Any] = msgspec.field(default_factory=dict)
    preset: str | None = None
    workspace: str | None = None
    truncated: bool = False
