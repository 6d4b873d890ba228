"""Which conformance tests run over a stand-in that isolates nothing, and which are listed."""

from __future__ import annotations

import os

# Without a limit that holds for sure they take the machine along, up to their bound.
UNBOUNDED = ("memory_hog", "fork_bomb", "test_a_memfd_counts", "test_a_file_in_memory_counts")
# About kernels that macOS does not have, or about another backend.
ELSEWHERE = {
    "test_a_memfd_counts": "memfd is Linux's",
    "test_a_file_in_memory_counts": "file systems in memory are Linux's",
    "test_liars": "the liars impersonate bubblewrap",
    "test_faulty": "the faulty backends impersonate bubblewrap",
}


def why_not(nodeid: str) -> str | None:
    """Why a test is not run here; None when it is."""
    for sign, reason in ELSEWHERE.items():
        if sign in nodeid:
            return reason
    if os.environ.get("SANDBOXD_TEST_MACOS") != "contained":
        for sign in UNBOUNDED:
            if sign in nodeid:
                return "it needs a cgroup of root's own around it"
    return None
