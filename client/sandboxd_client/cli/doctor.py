"""`sandboxctl doctor`: for each backend whether it works here, why not, and the exact fix."""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

from sandboxd_client import __version__
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.session import connect, print_json, socket_path
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.messages.server import BackendStatus, StatusResult

NOTHING_WORKS = 1


class Finding:
    """One line of the report. `matters`: without it no command can run."""

    def __init__(
        self,
        what: str,
        problem: str = "",
        fix: str = "",
        *,
        ok: bool,
        matters: bool = False,
        warns: bool = False,
    ) -> None:
        self.what = what
        self.ok = ok
        self.problem = problem
        self.fix = fix
        self.matters = matters
        self._mark = "warn" if warns else "ok" if ok else "FAIL" if matters else "no"

    def text(self) -> str:
        text = f"{self._mark:<4} {self.what}"
        text += f": {self.problem}" if self.problem else ""
        return text + (f"\n       fix: {self.fix}" if self.fix else "") + "\n"

    def plain(self) -> dict[str, Any]:
        return {"what": self.what, "ok": self.ok, "problem": self.problem, "fix": self.fix}


def main(options: Options) -> int:
    findings = examine(options)
    failed = any(finding.matters and not finding.ok for finding in findings)
    if options.has("--json"):
        print_json({"ok": not failed, "findings": [finding.plain() for finding in findings]})
    else:
        print("".join(finding.text() for finding in findings), end="")
    return NOTHING_WORKS if failed else 0


def examine(options: Options) -> list[Finding]:
    path = socket_path(options)
    try:
        with connect(options, may_start=True) as client:
            status = client.status()
    except SandboxdError as error:
        cause = error.facts.get("cause")
        problem = f"{error.message} ({cause})" if cause else error.message
        return [Finding("daemon", problem, error.remedy or "", ok=False, matters=True)]
    return [
        *_socket(path),
        _version(status),
        *map(_backend, status.backends),
        _verdict(status),
        *(Finding(warning, ok=True, warns=True) for warning in status.warnings),
    ]


def _socket(path: str) -> list[Finding]:
    if sys.platform == "win32":
        return []
    folder = os.stat(os.path.dirname(os.path.abspath(path)))
    mode = stat.S_IMODE(folder.st_mode)
    if folder.st_uid == os.getuid() and not mode & 0o077:
        return [Finding(f"socket {path}", ok=True)]
    where = os.path.dirname(os.path.abspath(path))
    return [
        Finding(
            f"socket {path}",
            f"its folder has owner {folder.st_uid} and mode {mode:04o}",
            f"chmod 700 {where}, or use a folder of your own",
            ok=False,
        )
    ]


def _version(status: StatusResult) -> Finding:
    what = f"daemon {status.version}, pid {status.pid}"
    if status.version == __version__:
        return Finding(what, ok=True)
    return Finding(
        what,
        f"this sandboxctl has version {__version__}",
        "sandboxctl shutdown; the next run starts the right one",
        ok=False,
    )


def _backend(backend: BackendStatus) -> Finding:
    if backend.available:
        return Finding(f"backend {backend.name}", "works", ok=True)
    return Finding(
        f"backend {backend.name}", backend.reason or "not available", backend.remedy or "", ok=False
    )


def _verdict(status: StatusResult) -> Finding:
    if status.backend is not None:
        return Finding(f"commands run with {status.backend}", ok=True, matters=True)
    return Finding(
        "no backend works here, so every command is refused", ok=False, matters=True,
        fix="any one of the fixes above is enough",
    )  # fmt: skip
