"""The implementation of pipe ends for this operating system."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from sandboxd.windows import ends
else:
    from sandboxd.supervisor.execution.stdio.ends import posix as ends

__all__ = ["ends"]
