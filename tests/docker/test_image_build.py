"""`sandboxctl image build`: an image without a registry."""

from __future__ import annotations

import os
import subprocess
import sys

from support.daemon import ROOT
from support.engine import TestEngine
from support.runs import Runner


def build(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sandboxd_client.cli", "image", "build", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip


def test_image_that_was_built_runs_commands(engine: TestEngine, box: Runner) -> None:
    tag = "sandboxd/test:bare"
    done = build("--bare", "--tag", tag, "--host", engine.url)
    assert done.returncode == 0, done.stderr
    try:
        assert tag in done.stderr
        ran = box.shell("ls /bin/busybox; ls /usr/bin/python3", manifest={"image": tag})
        assert ran.stdout == "/bin/busybox\n"
    finally:
        engine.docker("rmi", "--force", tag, check=False)


def test_python_comes_along(box: Runner) -> None:
    code = "import json, ssl, hashlib, subprocess; print(json.dumps(1))"
    assert box.run("python3", "-c", code).stdout == "1\n"


def test_program_that_is_not_installed_is_named() -> None:
    done = build("--with", "no-such-program", "--host", "unix:///nonexistent")
    assert done.returncode == 125
    assert "no-such-program is not installed here" in done.stderr


def test_engine_that_does_not_answer_is_named() -> None:
    done = build("--bare", "--host", "unix:///nonexistent/engine.sock")
    assert done.returncode == 125
    assert "the engine at unix:///nonexistent/engine.sock does not answer" in done.stderr
