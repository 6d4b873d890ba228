"""Under `strict` real programs do their work, and nothing in their trees is killed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from strict.program import Program
from strict.programs import PROGRAMS
from strict.runner import SIGSYS_WORDS, build_launcher, run, write_files
from support.requirements import require

from sandboxd.linux.seccomp import FilterSpec, compile_filter

pytestmark = [pytest.mark.requires("bubblewrap", "seccomp", "gcc")]

# What a command under network deny gets in a bwrap sandbox.
STRICT = FilterSpec("strict", restrict_families=True)
BASELINE = FilterSpec("baseline", restrict_families=True)
# What it gets where there are no namespaces and no network.
BARE = FilterSpec("strict", restrict_families=True, no_namespaces=True, deny_inet=True)


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_launcher(tmp_path_factory.mktemp("launcher"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def works(program: Program, spec: FilterSpec, *, launcher: Path, home: Path) -> None:
    for command in program.needs:
        require(command)
    write_files(program, home)
    code = compile_filter(spec)
    assert code is not None
    command = [*program.interpreter, "-c", program.script]
    done = run(command, launcher=launcher, filter_program=code, home=home)
    assert SIGSYS_WORDS not in done.stderr
    assert done.returncode == 0, done.stderr
    assert done.stdout == program.output, done.stderr


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_under_strict(program: Program, launcher: Path, home: Path) -> None:
    works(program, STRICT, launcher=launcher, home=home)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_under_baseline(program: Program, launcher: Path, home: Path) -> None:
    works(program, BASELINE, launcher=launcher, home=home)


@pytest.mark.parametrize(
    "program",
    [program for program in PROGRAMS if not program.network],
    ids=lambda program: program.name,
)
def test_under_strict_without_namespaces(program: Program, launcher: Path, home: Path) -> None:
    works(program, BARE, launcher=launcher, home=home)


def test_the_runner_sees_a_kill_in_a_grandchild(launcher: Path, home: Path) -> None:
    """What the tests above would look like if a call were missing: they can fail."""
    code = compile_filter(STRICT)
    assert code is not None
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    assert python is not None
    kill_me = f"{python} -c 'import ctypes; ctypes.CDLL(None).umount2(b\"/\", 0)'; echo survived"
    done = run(["/bin/sh", "-c", kill_me], launcher=launcher, filter_program=code, home=home)
    assert done.stdout == "survived\n"
    assert SIGSYS_WORDS in done.stderr
