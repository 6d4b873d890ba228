"""A signal for a command that was killed before it was forked reaches nobody."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from init_driver import INIT_FOLDER

pytestmark = [pytest.mark.isolation, pytest.mark.requires("cc")]
PROGRAM = Path(__file__).parent / "programs" / "no_main.c"


@pytest.mark.parametrize(
    ("words", "fate"), [(["main"], "signalled"), ([], "untouched")], ids=["control", "no process"]
)
def test_it_does_not_reach_the_group_of_the_init(
    tmp_path: Path, words: list[str], fate: str
) -> None:
    made = tmp_path / "program"
    sources = [INIT_FOLDER / "process_tree" / name for name in ("kill.c", "walk.c", "stat.c")]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Werror", f"-I{INIT_FOLDER}"]
    subprocess.run(["cc", *flags, PROGRAM, *sources, "-o", made], check=True)
    done = subprocess.run([made, *words], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{fate}\n"
