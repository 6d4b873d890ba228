"""The small Internet as tests use it: made once, entered by prefix, with controls unsandboxed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG = """
[peers]
allow_other_namespaces = true
[egress]
resolver = "93.184.216.53"
"""
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Net:
    """`enter`: the words that put a command into the namespaces of the small Internet."""

    folder: Path
    enter: list[str]

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.pem")

    def seen(self) -> list[str]:
        return (self.folder / "seen").read_text().splitlines()

    def connections(self) -> list[str]:
        """Everything that reached a server so far."""
        return [line for line in self.seen() if line.startswith("tcp")]

    def run(self, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """A command in the small Internet without any sandbox: the control of an attack."""
        return subprocess.run(
            [*self.enter, *argv], capture_output=True, text=True, check=False, timeout=60, **options
        )


def _tls(folder: Path) -> None:
    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
            "-subj", "/CN=test CA")  # fmt: skip
    openssl("req", *new_key, "-keyout", "key.pem", "-out", "cert.csr", "-subj", "/CN=example.test")
    names = "DNS:example.test,DNS:*.example.test,DNS:other.test,IP:93.184.216.34"
    (folder / "ext").write_text(f"subjectAltName={names}\n")
    openssl("x509", "-req", "-in", "cert.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", "cert.pem", "-days", "2", "-extfile", "ext")  # fmt: skip


def _repository(folder: Path) -> None:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(folder)}

    def git(*words: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.test")
        subprocess.run(["git", *who, *words], check=True, capture_output=True, env=env)

    work = folder / "work"
    git("init", "-q", str(work))
    (work / "file").write_text("from the repository\n")
    git("-C", str(work), "add", "file")
    git("-C", str(work), "commit", "-q", "-m", "first")
    (folder / "git").mkdir()
    git("clone", "-q", "--bare", str(work), str(folder / "git" / "repo"))


def _ssh(folder: Path) -> None:
    if not os.path.exists("/usr/sbin/sshd"):
        return
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    shutil.copy(folder / "user.pub", folder / "authorized")
    host_key = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text(f"example.test {host_key}")
    (folder / "sshd_config").write_text(
        f"ListenAddress 93.184.216.34:22\nHostKey {folder}/host\nPidFile {folder}/sshd.pid\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin yes\n"
    )
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)


@contextmanager
def small_internet() -> Iterator[Net]:
    folder = Path(tempfile.mkdtemp(prefix="sbxd-net-"))
    folder.chmod(0o755)
    unshare = ["unshare", "--net"]
    if os.geteuid() != 0:
        unshare += ["--user", "--map-current-user", "--keep-caps"]
    try:
        _tls(folder)
        _repository(folder)
        _ssh(folder)
        process = subprocess.Popen(
            [*unshare, sys.executable, str(HERE / "internet.py"), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            enter = ["nsenter", "--target", str(process.pid), "--net"]
            if os.geteuid() != 0:
                enter += ["--user", "--preserve-credentials"]
            yield Net(folder, [*enter, "--"])
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(20)
            if process.stdout is not None:
                process.stdout.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
