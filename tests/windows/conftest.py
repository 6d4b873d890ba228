"""What the Windows backend works out, on any system; `enforcement` runs on a real Windows only."""

from __future__ import annotations

import sys

collect_ignore_glob = [] if sys.platform == "win32" else ["test_enforcement.py"]
