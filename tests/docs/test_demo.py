"""`make run` shows the commands that it runs: who types them gets the same."""

from __future__ import annotations

import os
import subprocess

import pytest
from support.daemon import ROOT

pytestmark = [
    pytest.mark.requires("bubblewrap"),
    pytest.mark.skipif(
        not (ROOT / ".venv/bin/sandboxctl").exists(), reason="the demo runs what is in .venv"
    ),
]


def test_the_session_that_makes_a_denial_approvable_is_shown() -> None:
    names = ("HOME", "PATH", "LANG")
    done = subprocess.run(
        [str(ROOT / "scripts/demo")], capture_output=True, text=True, timeout=120, check=False,
        env={name: os.environ[name] for name in names if name in os.environ},
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    offer = next(line for line in lines if "have it allowed: sandboxctl approve ap-" in line)
    before = [line for line in lines[: lines.index(offer)] if line.startswith("$ ")]
    assert before[-2] == "$ sandboxctl session open --mode auto_edit -- bash"
    after = lines[lines.index(offer) :]
    again = [line for line in after if line.startswith("$ sandboxctl run ")]
    assert again == [before[-1]]
    assert lines.index("approved") > lines.index(again[0])
