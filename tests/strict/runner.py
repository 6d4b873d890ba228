"""Runs a script in a bwrap sandbox under a compiled seccomp program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from strict.program import Program

SOURCE = Path(__file__).with_name("under_filter.c")
SIGSYS_WORDS = "Bad system call"


def build_launcher(folder: Path) -> Path:
    binary = folder / "under_filter"
    subprocess.run(["gcc", "-O1", "-pthread", "-o", binary, SOURCE], check=True)
    return binary


def write_files(program: Program, folder: Path) -> None:
    for name, text in program.files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(
    command: list[str], *, launcher: Path, filter_program: bytes, home: Path
) -> subprocess.CompletedProcess[str]:
    """Run in namespaces of its own, with `home` writable and the rest of the host readable."""
    file = launcher.with_name("program.bpf")
    file.write_bytes(filter_program)
    words = [
        "bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--clearenv",
        "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
        "--ro-bind", str(launcher.parent), str(launcher.parent), "--bind", str(home), str(home),
        "--chdir", str(home),
        "--setenv", "HOME", str(home), "--setenv", "LC_ALL", "C.UTF-8",
        "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin",
        "--", str(launcher), str(file), "run", *command,
    ]  # fmt: skip
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
