"""Places of Linux and macOS that policy treats apart, beside its own lists."""

from __future__ import annotations

# Folders of the system that no request may write, with the reason; beside SYSTEM_TREES.
SYSTEM_TREES: dict[str, str] = {}
# Folders that may not be writable as a whole; beside TOO_WIDE.
TOO_WIDE: tuple[str, ...] = ()
# What `base: minimal` shows; beside the list of mount_plan.
SYSTEM_FOLDERS: tuple[str, ...] = ()
# Folders whose entries are people's home folders.
HOME_PARENTS = ("/home",)
# Names below a home folder that are masked; beside the list of `data.secrets`.
SECRETS: tuple[tuple[str, tuple[str, ...]], ...] = ()
DEFAULT_TIMEOUT_S = 30.0
START_FOLDER = "/"
