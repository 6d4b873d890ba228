"""Integrity levels, and the security descriptor of what the daemon makes. Pure."""

from __future__ import annotations

LOW, MEDIUM, HIGH, SYSTEM = (f"S-1-16-{rid}" for rid in (0x1000, 0x2000, 0x3000, 0x4000))
_PREFIX = "S-1-16-"


def level(sid: str) -> int:
    """The level as a number; 0 (Untrusted) for what is no integrity SID."""
    rid = sid.removeprefix(_PREFIX)
    return int(rid) if sid.startswith(_PREFIX) and rid.isascii() and rid.isdigit() else 0


def label(sid: str) -> str:
    """The SDDL name of the label for objects of a process of this level; at least Medium.

    An elevated process labels High: a client without elevation must not use its rights.
    """
    return "SI" if level(sid) >= level(SYSTEM) else "HI" if level(sid) >= level(HIGH) else "ME"


def private_sddl(user: str, integrity: str) -> str:
    """Full access for the user and the system; processes of lower integrity neither read nor write.

    No package is named, so no AppContainer can open it. `integrity`: the maker's own level.
    """
    return f"O:{user}G:{user}D:P(A;;FA;;;SY)(A;;FA;;;{user})S:(ML;;NWNRNX;;;{label(integrity)})"
