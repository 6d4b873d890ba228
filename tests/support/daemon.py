"""A real `sandboxd` for a test: started as a user would start it, stopped, and looked after.

Its environment is scrubbed, its home is a folder of its own (so the config file is found where the
documentation says), and when it ends every process that it had must be gone.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.processes import Process, processes_below, survivors
from support.rpc import PATIENCE_S, Connection, Framing

STOP_S = 60.0
ROOT = Path(__file__).parents[2]
# Of the test's own environment; the last one by a pass that runs without templates.
KEPT = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "SANDBOXD_POOL_TEMPLATE")


class Daemon:
    """A daemon that listens. `home` and `folder` are its own and go with it."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, line: str) -> None:
        self.process = process
        self.folder = folder
        self.home = folder / "home"
        self.socket = str(folder / "sandboxd" / "sandboxd.sock")
        self.line = line  # what it printed when it began to listen

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def connect(self, *, framing: Framing = "lines", timeout_s: float = PATIENCE_S) -> Connection:
        return Connection(self.socket, framing=framing, timeout_s=timeout_s)

    def descendants(self) -> list[Process]:
        return processes_below(self.pid)

    def stop(self, with_signal: int = signal.SIGTERM) -> int:
        """Its exit code, after a signal. Everything that ran below it must have ended too."""
        below = self.descendants()
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running {STOP_S} s after a signal\n{self.log}") from None
        left = survivors(below)
        assert not left, f"left behind by the daemon: {left}"
        return code

    def kill(self) -> None:
        """SIGKILL: what its children do then is theirs to get right."""
        self.stop(signal.SIGKILL)


def scrubbed_env(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """What a daemon of a test sees: nothing of the developer's own settings."""
    kept = {k: os.environ[k] for k in KEPT if k in os.environ}
    fixed = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(home),
        # The caches of workspaces would otherwise go to the user's real home.
        "XDG_CACHE_HOME": str(home / ".cache"),
    }
    return {**kept, **fixed, **extra}


@contextmanager
def running_daemon(
    *,
    config: str | None = None,
    env: Mapping[str, str] | None = None,
    args: Sequence[str] = (),
    prefix: Sequence[str] = (),
    checkout: Path = ROOT,
    module: str = "sandboxd",
) -> Iterator[Daemon]:
    """`sandboxd --socket …`, listening. `config` is the text of its config file.

    It runs the code in `checkout`, and `module` as the program.
    On leaving it is stopped with SIGTERM and must exit 0, unless the test has ended it already.
    """
    # Not pytest's tmp_path: a socket's path may have 107 bytes, and test names are long.
    folder = Path(tempfile.mkdtemp(prefix="sbxd-"))
    try:
        command = [*prefix, *_command(folder, module), *args]
        daemon = _start(folder, config, env or {}, command, checkout)
        try:
            yield daemon
        finally:
            _finish(daemon)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def restarted(daemon: Daemon) -> Iterator[Daemon]:
    """Another daemon in the place of one that has ended: the same socket, home and config."""
    command = _command(daemon.folder, "sandboxd")
    again = _launch(daemon.folder, {}, command, ROOT)
    try:
        yield again
    finally:
        _finish(again)


def _command(folder: Path, module: str) -> list[str]:
    socket = folder / "sandboxd" / "sandboxd.sock"
    return [sys.executable, "-m", module, "--socket", str(socket)]


def _start(
    folder: Path, config: str | None, env: Mapping[str, str], command: list[str], checkout: Path
) -> Daemon:
    home = folder / "home"
    settings = home / ".config" / "sandboxd"
    settings.mkdir(parents=True)
    # A folder of this name is the daemon's own: its state lies there too, and goes with it.
    (folder / "sandboxd").mkdir(mode=0o700)
    if config is not None:
        (settings / "config.toml").write_text(config)
    return _launch(folder, env, command, checkout)


def _launch(folder: Path, env: Mapping[str, str], command: list[str], checkout: Path) -> Daemon:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=scrubbed_env(folder / "home", env),
            cwd=checkout,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    return Daemon(process, folder, _first_line(process, folder / "log"))


def _first_line(process: subprocess.Popen[bytes], log: Path) -> str:
    """The one line that says that it listens."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
    line = process.stdout.readline() if readable else b""
    if not line:
        process.kill()
        process.wait()
        process.stdout.close()
        raise AssertionError(f"the daemon did not start:\n{log.read_text(errors='replace')}")
    return line.decode().rstrip("\n")


def _finish(daemon: Daemon) -> None:
    ended_by_test = daemon.process.poll() is not None
    try:
        code = daemon.stop()
        assert ended_by_test or code == 0, f"exit code {code} after SIGTERM\n{daemon.log}"
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
        if daemon.process.stdout is not None:
            daemon.process.stdout.close()


def stdout_of(result: Mapping[str, Any]) -> str:
    """The captured stdout of an `execute` result that must have exited with 0."""
    assert result["outcome"] == "exited", json.dumps(result)
    assert result["exit_code"] == 0, json.dumps(result)
    text: str = result["stdout"]["data"]
    return text
