"""What an administrator prepares once so that programs start in an AppContainer. Pure.

By default an AppContainer may neither look at the drive's root nor open NUL, and cmd, PowerShell
and node end at their start.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sandboxd.windows.app_containers.packages import ALL_PACKAGES, ALL_RESTRICTED_PACKAGES

ROOT_MASK = 0x120088  # SYNCHRONIZE | READ_CONTROL | FILE_READ_ATTRIBUTES | FILE_READ_EA
NUL_MASK = 0x12019F  # FILE_GENERIC_READ | FILE_GENERIC_WRITE
PACKAGES = (ALL_PACKAGES, ALL_RESTRICTED_PACKAGES)
NUL_COMMAND = "python -m sandboxd.windows.prepare_nul"


class Ace(msgspec.Struct, frozen=True):
    """One entry of an access list. `inherit_only`: it does not count for the object itself."""

    allows: bool
    sid: str
    mask: int
    inherit_only: bool = False


class Missing(msgspec.Struct, frozen=True):
    """`fix`: what an administrator runs."""

    problem: str
    fix: str


def root_command(root: str) -> str:
    """For the root alone: the entries are not inherited."""
    grants = " ".join(f'"*{sid}:(S,RC,RA,REA)"' for sid in PACKAGES)
    return f"icacls {root} /grant {grants}"


def is_granted(aces: Iterable[Ace], mask: int) -> bool:
    """Whether every AppContainer has these rights, and is denied none of them."""
    found = [ace for ace in aces if not ace.inherit_only]
    return all(_rights(found, sid) & mask == mask for sid in PACKAGES)


def _rights(aces: list[Ace], sid: str) -> int:
    granted = denied = 0
    for ace in aces:
        if ace.sid == sid and ace.allows:
            granted |= ace.mask & ~denied
        elif ace.sid == sid:
            denied |= ace.mask & ~granted
    return granted


def missing(
    root: str, root_aces: Iterable[Ace] | None, nul_aces: Iterable[Ace] | None
) -> list[Missing]:
    """None: the access list could not be read, which counts as missing."""
    found: list[Missing] = []
    if root_aces is None or not is_granted(root_aces, ROOT_MASK):
        found.append(
            Missing(f"AppContainers may not look at {root}", root_command(root)),
        )
    if nul_aces is None or not is_granted(nul_aces, NUL_MASK):
        found.append(
            Missing("AppContainers may not open NUL", f"{NUL_COMMAND} (after each start)"),
        )
    return found
