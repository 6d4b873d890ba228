"""The same groups for Windows: those of Linux, which match no path there, and Windows' own."""

from __future__ import annotations

from sandboxd.platform.current import places
from sandboxd.policy.data import system_dirs_linux as linux

PROGRAMS = places.SYSTEM_FOLDERS
KERNEL = linux.KERNEL
AMBIENT = (*linux.AMBIENT, *places.SYSTEM_TREES)
READABLE = PROGRAMS
MACHINE = (*linux.MACHINE, *places.SYSTEM_TREES)
SLOW = PROGRAMS
CONTAINER_ENGINES: tuple[str, ...] = ()
HOMES_FOLDER = places.HOME_PARENTS[0]
ROOT_HOME = "/root"
HOMES = (HOMES_FOLDER,)
RUNTIME: tuple[str, ...] = ()
TOO_WIDE = (*linux.TOO_WIDE, *places.TOO_WIDE)
TOO_WIDE_TO_PROPOSE = frozenset({*linux.TOO_WIDE_TO_PROPOSE, *places.TOO_WIDE})
NEVER_WRITABLE = {**linux.NEVER_WRITABLE, **places.SYSTEM_TREES}
