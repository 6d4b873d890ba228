"""Which folders of a machine are the system's: the one list, grouped by what a rule needs."""

import sys

if sys.platform == "darwin":
    from sandboxd.policy.data import system_dirs_macos as _dirs
elif sys.platform == "win32":
    from sandboxd.policy.data import system_dirs_windows as _dirs
else:
    from sandboxd.policy.data import system_dirs_linux as _dirs

AMBIENT = _dirs.AMBIENT
CONTAINER_ENGINES = _dirs.CONTAINER_ENGINES
HOMES = _dirs.HOMES
HOMES_FOLDER = _dirs.HOMES_FOLDER
KERNEL = _dirs.KERNEL
MACHINE = _dirs.MACHINE
NEVER_WRITABLE = _dirs.NEVER_WRITABLE
PROGRAMS = _dirs.PROGRAMS
READABLE = _dirs.READABLE
ROOT_HOME = _dirs.ROOT_HOME
RUNTIME = _dirs.RUNTIME
SLOW = _dirs.SLOW
TOO_WIDE = _dirs.TOO_WIDE
TOO_WIDE_TO_PROPOSE = _dirs.TOO_WIDE_TO_PROPOSE
