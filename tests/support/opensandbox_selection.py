"""Over which server each conformance test of the opensandbox backend runs: none is left out.

A sandbox of the real server takes about a second, so of the variants of a test one runs there, and
what is about requests and folders, not about containers, runs over the fake one. "real-all" runs
everything over the real one. What the backend cannot hold it refuses, or says by its tier, which
the suite demands.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

ABOUT_OTHERS = {"test_faulty_backends": "the faulty backends impersonate bubblewrap"}
NOT_ABOUT_CONTAINERS = {
    "test_enforcement", "test_environment", "test_exits", "test_files", "test_place",
    "test_presets", "test_requests",
}  # fmt: skip


def left_out(items: Iterable[pytest.Item], server: str) -> dict[str, str]:
    """Why a test is not run over this server ("real", "fake" or "real-all"), by its id."""
    reasons: dict[str, str] = {}
    for item in items:
        stem = item.path.stem
        # By its own parameters: which others were collected does not matter.
        is_first = not any(item.callspec.indices.values()) if hasattr(item, "callspec") else True
        real = server == "real-all" or (stem not in NOT_ABOUT_CONTAINERS and is_first)
        if stem in ABOUT_OTHERS:
            reasons[item.nodeid] = ABOUT_OTHERS[stem]
        elif real != server.startswith("real"):
            reasons[item.nodeid] = f"runs over the {'real' if real else 'fake'} server"
    return reasons
