"""The programs of `make install`, where the checkout that they import is not visible."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["sandboxctl", "sandboxd"])
def test_without_its_checkout_a_program_says_so(name: str) -> None:
    """Without site-packages, as in a sandbox that hides the home folder."""
    program = Path(sys.prefix, "bin", name)
    done = subprocess.run(
        [sys.executable, "-I", "-S", program, "status"], capture_output=True, text=True
    )
    assert done.returncode == 125
    assert done.stderr.startswith(f"{name}: error: {ROOT}, which it runs from, is not visible\n")
    assert "inside a sandbox no daemon can be reached" in done.stderr
    assert subprocess.run([program, "--version"], capture_output=True).returncode == 0
