"""The one place that chooses what differs by operating system."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from sandboxd.platform.windows import commands, files, places, system
else:
    from sandboxd.platform.posix import commands, files, places

    if sys.platform == "darwin":
        from sandboxd.platform import macos as system
    else:
        from sandboxd.platform import linux as system

__all__ = ["commands", "files", "places", "system"]
