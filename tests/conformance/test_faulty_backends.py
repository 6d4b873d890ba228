"""The suite is tested too: a backend that lies does not get through it.

Each faulty backend (support/faulty_backends.py) stands in for a real one, and the suite runs
against it in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from support.faulty_backends import VARIABLE, impersonated

pytestmark = [
    pytest.mark.requires("bubblewrap"),
    pytest.mark.skipif(impersonated() is not None, reason="it runs a faulty backend"),
    pytest.mark.timeout(300),
]

SUITE = Path(__file__).parent


def verdicts(faulty: str, tmp_path: Path, *options: str) -> dict[str, bool]:
    """Test → whether it passed, for the tests of the suite that `options` choose."""
    report = tmp_path / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        f"--basetemp={tmp_path / 'base'}",
        f"--junitxml={report}",
        *options,
        str(SUITE),
    ]
    env = {**os.environ, VARIABLE: f"{faulty}:bubblewrap"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = {}
    for case in ET.parse(report).iter("testcase"):
        outcomes = {child.tag for child in case}
        assert "error" not in outcomes, ET.tostring(case)
        if "skipped" not in outcomes:
            found[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = (
                "failure" not in outcomes
            )
    return found


# Held by the supervisor or by policy before any backend is asked.
NOT_THE_BACKENDS = ("test_endings", "_flood_", "test_a_directory_that_is_not_allowed")
# Held by the kernel too, from everybody but root.
NOT_FOR_USERS = ("test_the_system_is_not_written",)


def test_every_test_that_shows_something_to_be_held_fails_on_an_idle_backend(
    tmp_path: Path,
) -> None:
    """It says "enforced" and enforces nothing."""
    found = verdicts("idle", tmp_path, "-m", "holds")
    excused = NOT_THE_BACKENDS if os.geteuid() == 0 else (*NOT_THE_BACKENDS, *NOT_FOR_USERS)
    passed = [name for name, ok in found.items() if ok and not any(x in name for x in excused)]
    assert not passed, passed
    assert len(found) > 40


def test_guessed_exit_codes_are_noticed(tmp_path: Path) -> None:
    """It reports a signal as 128+n and a limit as an exit, as shells do."""
    found = verdicts("guessing", tmp_path, "-k", "test_signal_is_exact or cpu_hog or memory_hog")
    assert found
    assert not any(found.values()), found


def test_silence_about_enforcement_is_noticed(tmp_path: Path) -> None:
    found = verdicts("silent", tmp_path, "-m", "holds", "-k", "test_files or test_base")
    assert found
    assert not any(found.values()), found


def test_an_honest_backend_passes_what_the_liars_fail(tmp_path: Path) -> None:
    """The control: the same choice of tests with nothing to catch."""
    found = verdicts("honest", tmp_path, "-k", "test_signal_is_exact or (test_files and holds)")
    assert found
    assert all(found.values()), found
