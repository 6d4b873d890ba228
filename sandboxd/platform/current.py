"""The one place that chooses what differs by operating system."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from sandboxd.platform import windows as system
    from sandboxd.platform import windows_commands as commands
    from sandboxd.platform import windows_files as files
    from sandboxd.platform import windows_places as places
else:
    from sandboxd.platform import posix_commands as commands
    from sandboxd.platform import posix_files as files
    from sandboxd.platform import posix_places as places

    if sys.platform == "darwin":
        from sandboxd.platform import macos as system
    else:
        from sandboxd.platform import linux as system

__all__ = ["commands", "files", "places", "system"]
