"""A pid that the kernel used again, for a process outside the tree, is not signalled."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from init_driver import INIT_FOLDER

pytestmark = [pytest.mark.isolation, pytest.mark.requires("cc", "unshare")]
PROGRAM = Path(__file__).parent / "programs" / "pid_reuse.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pid reuse") / "program"
    sources = [INIT_FOLDER / "process_tree" / name for name in ("walk.c", "stat.c")]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Werror", f"-I{INIT_FOLDER}"]
    subprocess.run(["cc", *flags, PROGRAM, *sources, "-o", made], check=True)
    return made


@pytest.mark.parametrize(
    ("how", "fate"),
    [("plain", "signalled"), ("listed", "untouched"), ("own", "signalled")],
    ids=["control: by its number", "as the reaper does it", "a process of the tree"],
)
def test_a_pid_used_again_is_not_signalled(program: Path, how: str, fate: str) -> None:
    own = ["--pid", "--fork", "--mount-proc"]
    if os.geteuid() != 0:
        own += ["--user", "--map-root-user"]
    command = ["unshare", *own, "--", str(program), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == (f"{fate}\n", "")
