"""Which conformance tests do not concern the opensandbox backend.

Every other one runs. What the backend cannot hold it refuses, or says by its tier, which the suite
demands: nothing is left out for that.
"""

from __future__ import annotations

FILES = {"test_faulty_backends": "the faulty backends impersonate bubblewrap"}


def why_not(nodeid: str) -> str | None:
    """Why a test is not run; None when it is."""
    path = nodeid.partition("::")[0]
    return FILES.get(path.rpartition("/")[2].removesuffix(".py"))
