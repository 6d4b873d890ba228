"""llm-sandbox (PyPI): commands in an open session, with bubblewrap and with Docker."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.peer import Peer, Run, Unusable, driver, pip

IMAGE = "python:3.11-slim"
_DRIVER = """
import json, shlex, sys
from llm_sandbox import SandboxBackend, SandboxSession
backend = SandboxBackend[sys.argv[1]]
more = {"image": sys.argv[2]} if len(sys.argv) > 2 else {}
with SandboxSession(backend=backend, lang="python", skip_environment_setup=True, **more) as session:
    for line in sys.stdin:
        print(session.execute_command(shlex.join(json.loads(line))).exit_code, flush=True)
"""


def install(folder: Path) -> None:
    pip(folder, "llm-sandbox[docker]")


@contextmanager
def opened(folder: Path, workspace: Path) -> Iterator[Run]:
    python = folder / "bin" / "python"
    with driver([python, "-c", _DRIVER, "BUBBLEWRAP"], workspace) as run:
        yield run


@contextmanager
def opened_in_docker(folder: Path, workspace: Path) -> Iterator[Run]:
    if shutil.which("docker") is None:
        raise Unusable("there is no docker program here")
    asked = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        said = asked.stderr.strip().splitlines() or ["docker version failed"]
        raise Unusable(f"no Docker engine answers: {said[-1]}")
    python = folder / "bin" / "python"
    with driver([python, "-c", _DRIVER, "DOCKER", IMAGE], workspace) as run:
        yield run


PEER = Peer("llm-sandbox, open session, bubblewrap", install, opened)
DOCKER = Peer("llm-sandbox, open session, docker", install, opened_in_docker)
