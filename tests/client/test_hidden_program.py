"""A program that the sandbox does not show: the hint names what it needs, and works as printed."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ctl import Ctl

from sandboxd_client.cli.hints.hidden_program import where_it_lies


@pytest.fixture
def environment() -> Iterator[Path]:
    """A virtual environment in a folder that no sandbox shows."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        made = Path(folder) / "py" / "v"
        subprocess.run(
            ["/usr/bin/python3", "-m", "venv", "--without-pip", str(made)], check=True, timeout=60
        )
        script(made / "bin" / "tool", made)
        yield made


def script(path: Path, environment: Path) -> None:
    path.write_text(f"#!{environment}/bin/python\nimport sys; print(sys.prefix)\n")
    path.chmod(0o755)


@pytest.mark.parametrize("way", ["its path", "python", "a copy", "a link", "a shell"])
def test_what_the_hint_names_is_enough(inside: Ctl, environment: Path, way: str) -> None:
    script(inside.workspace / "copy", environment)
    (inside.workspace / ".venv").symlink_to(environment)
    python = [f"{environment}/bin/python", "-c", "import sys; print(sys.prefix)"]
    command = {
        "its path": [f"{environment}/bin/tool"],
        "python": python,
        "a copy": ["./copy"],
        "a link": [".venv/bin/tool"],
        "a shell": ["sh", "-c", "./copy"],
    }[way]
    done = inside("run", "--", *command)
    assert done.returncode == 127
    flags = shlex.split(done.stderr.decode().rpartition("; add ")[2])
    assert flags == ["--read", str(environment)]
    done = inside("run", *flags, "--", *command)
    assert done.stdout.decode().strip() == str(environment), done.stderr


def test_a_first_line_that_a_command_may_have_written_names_only_programs(tmp_path: Path) -> None:
    tool = tmp_path / "project" / "tool"
    tool.parent.mkdir()
    for name, proposed in (("bin/run", True), (".ssh/bin/run", False), ("private/run", False)):
        program = tmp_path / name
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        tool.write_text(f"#!{program}\n")
        program.chmod(0o644)
        assert where_it_lies(str(tool), [str(tool.parent)]) is None, name
        program.chmod(0o755)
        hint = where_it_lies(str(tool), [str(tool.parent)])
        assert (hint is not None) == proposed, name
