"""A real Docker engine for the tests: Debian's dockerd on a socket and in folders of its own.

`scripts/test` runs this module as a program, for all passes of the suite; without it the first test
that wants an engine starts one, where that is possible. What dockerd leaves behind (a mount of its
folder on itself, the mounts of dead containers, files) goes with it.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

IMAGE = "sandboxd/base:local"
# What the suites run in containers besides busybox and Python.
PROGRAMS = ("bash", "git", "/usr/lib/git-core/git-remote-https", "curl", "openssl")
START_S = 300.0
STOP_S = 60.0
ROOT = Path(__file__).parents[2]


class TestEngine:
    """One dockerd. `url` is for DOCKER_HOST. `within`: what starts it, in a network namespace of
    its own: then containers have a bridge."""

    __test__ = False

    def __init__(self, folder: Path, owner: str | None = None, within: Sequence[str] = ()) -> None:
        self._within = within
        self.folder = folder
        self.socket = folder / "engine.sock"
        self.url = f"unix://{self.socket}"
        self._owner = owner
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_S
        while self.docker("version", check=False).returncode != 0:
            log_text = (self.folder / "log").read_text(errors="replace")
            assert self._process.poll() is None, f"dockerd ended:\n{log_text[-4000:]}"
            assert time.monotonic() < deadline, f"dockerd does not answer:\n{log_text[-4000:]}"
            time.sleep(0.05)
        if self._owner is not None:
            os.chown(self.socket, pwd.getpwnam(self._owner).pw_uid, -1)

    def _command(self) -> list[str]:
        return [
            *self._within, "dockerd", "--host", self.url,
            "--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec"),
            "--pidfile", str(self.folder / "pid"),
            *([] if self._within else ["--bridge=none"]),
            "--iptables=false", "--ip6tables=false", "--ip-forward=false",
            "--ip-masq=false",
        ]  # fmt: skip

    def docker(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "--host", self.url, *words],
            capture_output=True, text=True, timeout=START_S, check=check,
        )  # fmt: skip

    def build_image(self, tag: str = IMAGE, *flags: str) -> None:
        command = [sys.executable, "-m", "sandboxd_client.cli", "image", "build", "--tag", tag]
        wanted = flags or tuple(word for name in PROGRAMS for word in ("--with", name))
        done = subprocess.run(
            [*command, "--host", self.url, *wanted], cwd=ROOT, capture_output=True, text=True,
            timeout=120, check=False,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def in_container(self, *command: str) -> subprocess.CompletedProcess[str]:
        """The command in a container that the daemon has not made: the engine's profile alone."""
        return self.docker(
            "run", "--rm", "--network", "none", "--cap-drop", "ALL", "--read-only",
            "--user", f"{os.geteuid()}:{os.getegid()}", IMAGE, *command, check=False,
        )  # fmt: skip

    def containers(self) -> list[str]:
        """The names of all containers, in whatever state."""
        return self.docker("ps", "--all", "--format", "{{.Names}}").stdout.split()

    def stop(self, with_signal: int = signal.SIGTERM) -> None:
        """Ended and cleaned away; `start` begins anew with an empty engine only after `erase`."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(with_signal)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def erase(self) -> None:
        for path in reversed(_mounts_below(self.folder)):
            subprocess.run(["umount", "--lazy", path], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _mounts_below(folder: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split(" ")[4] for line in lines]
    return [p for p in points if p == str(folder) or p.startswith(f"{folder}/")]


def possible() -> bool:
    programs = ("dockerd", "docker", "busybox")
    return os.geteuid() == 0 and all(shutil.which(name) for name in programs)


@contextmanager
def running_engine(owner: str | None = None, within: Sequence[str] = ()) -> Iterator[TestEngine]:
    """An engine for one test alone, without an image."""
    engine = TestEngine(Path(tempfile.mkdtemp(prefix="sbxd-engine-")).resolve(), owner, within)
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()
        engine.erase()


@cache
def shared_engine() -> TestEngine | None:
    """The engine of this run, with the image; None where there can be none."""
    url = os.environ.get("SANDBOXD_TEST_ENGINE")
    if url:
        engine = TestEngine(Path(url.removeprefix("unix://")).parent)
        engine.url = url
        return engine
    if not possible():
        return None
    folder = tempfile.mkdtemp(prefix="sbxd-engine-")
    # In a process of its own, which cleans up when its stdin ends: also after we were killed.
    reaper = subprocess.Popen(
        [sys.executable, "-m", "support.engine", folder, pwd.getpwuid(os.getuid()).pw_name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert reaper.stdin is not None
    assert reaper.stdout is not None

    def end() -> None:
        reaper.communicate()

    atexit.register(end)
    url = reaper.stdout.readline().strip()
    assert url, "the engine did not start"
    engine = TestEngine(Path(folder).resolve())
    engine.url = url
    return engine


def main(arguments: Sequence[str]) -> None:
    """engine FOLDER USER: print the URL when it is up, then run until stdin ends."""
    folder, owner = arguments
    engine = TestEngine(Path(folder).resolve(), owner)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        engine.start()
        engine.build_image()
        print(engine.url, flush=True)
        sys.stdin.read()
    finally:
        engine.stop()
        engine.erase()


if __name__ == "__main__":
    main(sys.argv[1:])
