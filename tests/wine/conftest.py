"""A daemon on a Windows Python, over its named pipe. `make test-wine` runs these under Wine.

Nothing here says that anything is denied: Wine has no AppContainer. What is tested is that the
product works, and that it refuses by its own checks where Windows' isolation is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

# Other systems have their own suites.
collect_ignore_glob = [] if sys.platform == "win32" else ["test_*.py"]

START_S = 200.0  # importing the daemon takes half a minute on a very busy machine
BOTH_KEYS = {"SANDBOXD_BACKEND": "none", "SANDBOXD_ALLOW_NO_SANDBOX": "1"}
# The tests may have an administrator's rights, which the daemon refuses to run commands with.
ELEVATED = ("--set", "windows.allow_elevated=true")


@dataclass
class WindowsDaemon:
    pipe: str
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "SYSTEMROOT": os.environ["SYSTEMROOT"]}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def client_env(self) -> dict[str, str]:
        """For a `sandboxctl` that uses this daemon."""
        own = {"LOCALAPPDATA": str(self.folder), "APPDATA": str(self.folder)}
        return {**os.environ, "SANDBOXD_SOCKET": self.pipe, **own}


Ended = subprocess.CompletedProcess[str]
Ctl = Callable[..., Ended]


@pytest.fixture
def ctl(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ctl:
    """`ctl(daemon, *words)`: sandboxctl in this process; one of its own costs a second of CPU."""
    from sandboxd_client.cli import main

    def run(daemon: WindowsDaemon, *words: str) -> Ended:
        with monkeypatch.context() as here:
            for name, value in daemon.client_env.items():
                here.setenv(name, value)
            capfd.readouterr()
            code = main(words)
        said = capfd.readouterr()
        return subprocess.CompletedProcess(words, code, said.out, said.err)

    return run


@pytest.fixture
def child_env() -> tuple[tuple[str, str], ...]:
    return tuple((name, os.environ[name]) for name in ("PATH", "SYSTEMROOT"))


PLAIN = ("-m", "sandboxd")


def command(pipe: str, *more: str, program: Sequence[str] = PLAIN) -> list[str]:
    return [sys.executable, *program, "--socket", pipe, *more]


def start(
    pipe: str, folder: Path, keys: dict[str, str], *more: str, program: Sequence[str] = PLAIN
) -> WindowsDaemon:
    from sandboxd_client import transport
    from sandboxd_client.errors import DaemonNotRunning

    env = {**os.environ, **keys, "LOCALAPPDATA": str(folder), "APPDATA": str(folder)}
    process = subprocess.Popen(
        command(pipe, *more, program=program),
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    deadline = time.monotonic() + START_S
    while True:
        try:
            transport.connect(pipe).close()
            return WindowsDaemon(pipe, process, folder)
        except DaemonNotRunning:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                said = process.communicate()[0].decode(errors="replace")
                raise AssertionError(f"the daemon did not start: {said}") from None
            time.sleep(0.1)


@pytest.fixture(scope="session")
def unsandboxed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WindowsDaemon]:
    """With both keys for running without a sandbox."""
    folder = tmp_path_factory.mktemp("daemon")
    found = start(rf"\\.\pipe\sandboxd-test-{os.getpid()}", folder, BOTH_KEYS, *ELEVATED)
    yield found
    found.kill()


@pytest.fixture(scope="session")
def sandboxing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WindowsDaemon]:
    """With the default config: AppContainer or nothing."""
    folder = tmp_path_factory.mktemp("sandboxing")
    found = start(
        rf"\\.\pipe\sandboxd-auto-{os.getpid()}", folder, {"SANDBOXD_BACKEND": "auto"},
        *ELEVATED,
    )  # fmt: skip
    yield found
    found.kill()


@pytest.fixture(scope="session")
def cautious(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WindowsDaemon]:
    """With the default config and whatever rights the tests have."""
    folder = tmp_path_factory.mktemp("cautious")
    found = start(rf"\\.\pipe\sandboxd-plain-{os.getpid()}", folder, {"SANDBOXD_BACKEND": "auto"})
    yield found
    found.kill()
