"""Tests of the macOS backend. Those marked `macos` need the real system."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "stand_in"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselected, not skipped: what needs macOS is not a test of this machine."""
    if sys.platform == "darwin":
        return
    real = [item for item in items if item.get_closest_marker("macos") is not None]
    config.hook.pytest_deselected(items=real)
    items[:] = [item for item in items if item not in set(real)]
