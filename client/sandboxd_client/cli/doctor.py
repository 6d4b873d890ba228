"""`sandboxctl doctor`: for each backend whether it works here, why not, and the exact fix.

The daemon probes (`Backend.probe`); this only prints.
"""

from __future__ import annotations

import os
import stat
import sys
from textwrap import fill
from typing import Any

from sandboxd_client import __version__
from sandboxd_client.cli.connect import connect, print_json, socket_path
from sandboxd_client.cli.hints.git import bare_repository
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.status import with_warnings
from sandboxd_client.cli.wrong_input import in_words_of_the_shell
from sandboxd_proto.errors import SandboxdError
from sandboxd_proto.messages.server import BackendStatus, StatusResult

NOTHING_WORKS = 1
_WIDTH = 80
_SETTING = "the setting backend (SANDBOXD_BACKEND, or in config.toml)"


class Finding:
    """One line of the report. `matters`: without it no command can run."""

    def __init__(
        self, what: str, problem: str = "", fix: str = "", *, ok: bool, matters: bool = False,
        warns: bool = False,
    ) -> None:  # fmt: skip
        self.what = what
        self.ok = ok
        self.problem = problem
        self.fix = fix
        self.matters = matters
        self._mark = "warn" if warns else "ok" if ok else "FAIL" if matters else "no"

    def text(self) -> str:
        text = f"{self._mark:<4} {self.what}" + (f": {self.problem}" if self.problem else "")
        text = fill(
            text, _WIDTH, subsequent_indent=" " * 5, break_long_words=False, break_on_hyphens=False
        )
        return text + (f"\n     fix: {self.fix}" if self.fix else "") + "\n"

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
        heard: list[str] = []
        with connect(options, may_start=True, note=heard.append) as client:
            status = with_warnings(client, heard)
    except SandboxdError as error:
        cause = error.facts.get("cause")
        problem = f"{error.message} ({cause})" if cause else error.message
        return [Finding("daemon", problem, error.remedy or "", ok=False, matters=True)]
    return [
        *_socket(path),
        _version(status),
        *(_backend(backend, status) for backend in status.backends if _matters(backend, status)),
        _verdict(status),
        *(Finding(warning, ok=True, warns=True) for warning in status.warnings),
        *_git(),
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


def _git() -> list[Finding]:
    setting = bare_repository.bare_repository_setting(os.environ)
    if setting is None:
        return []
    if setting == "explicit":
        return [Finding(bare_repository.WHAT, ok=True)]
    return [
        Finding(bare_repository.WHAT, bare_repository.WHY, bare_repository.FIX, ok=True, warns=True)
    ]


def _version(status: StatusResult) -> Finding:
    log = f", log: {status.log}" if status.log else ""
    what = f"daemon {status.version}, pid {status.pid}{log}"
    if status.version == __version__:
        return Finding(what, ok=True)
    return Finding(
        what,
        f"this sandboxctl has version {__version__}",
        "sandboxctl shutdown; the next run starts the right one",
        ok=False,
    )


def _matters(backend: BackendStatus, status: StatusResult) -> bool:
    """What works, what was chosen, and what could work here if nothing does."""
    if backend.available or backend.name in (status.backend, status.backend_setting):
        return True
    if backend.use == "elsewhere" or status.backend_setting != "auto":
        return False
    # With a sandbox that works, one that needs a server or the keys to none is no problem.
    return status.backend is None or backend.use == "automatic"


def _backend(backend: BackendStatus, status: StatusResult) -> Finding:
    if backend.available:
        # Which server, where there is one: its sandboxes are not this machine's.
        where = f" with {backend.layers[0]}" if backend.remote else ""
        unused = status.backend_setting not in ("auto", backend.name)
        return Finding(
            f"backend {backend.name}", f"works{where}{', not used' if unused else ''}", ok=True
        )
    return Finding(
        f"backend {backend.name}", backend.reason or "not available",
        in_words_of_the_shell(backend.remedy or ""), ok=False,
    )  # fmt: skip


def _verdict(status: StatusResult) -> Finding:
    setting = status.backend_setting
    if status.backend is not None:
        why = f", which {_SETTING} names" if setting != "auto" else ""
        return Finding(f"commands run with {status.backend}{why}", ok=True, matters=True)
    if setting != "auto":
        others = [b.name for b in status.backends if b.available and b.use == "automatic"]
        instead = f"; or leave the setting out and restart: {others[0]} works" if others else ""
        return Finding(
            f"every command is refused: {_SETTING} names {setting}, which does not work",
            ok=False, matters=True, fix=f"as for {setting} above{instead}",
        )  # fmt: skip
    return Finding(
        "no backend works here, so every command is refused", ok=False, matters=True,
        fix="any one of the fixes above is enough",
    )  # fmt: skip
