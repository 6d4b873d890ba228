"""Carry out a plan: idempotent, and with a dry run that only says what would be done."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence

from sandboxd_client.service import ServiceFile, ServicePlan
from sandboxd_proto.errors import SandboxdError

# The exit code and what was printed.
Run = Callable[[Sequence[str]], tuple[int, str]]
LIMIT_S = 60.0


def run_command(command: Sequence[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        return 127, f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} did not end within {LIMIT_S:g} s"
    return done.returncode, (done.stderr or done.stdout).strip()


class ServiceInstaller:
    """`done` gets one line for each thing that was, or in a dry run would be, done."""

    def __init__(self, plan: ServicePlan, run: Run = run_command, *, dry_run: bool = False) -> None:
        self._plan = plan
        self._run = run
        self._dry_run = dry_run
        self.done: list[str] = []

    def install(self) -> None:
        """Nothing is done where everything is as it should be already."""
        changed = [file for file in self._plan.files if _content(file.path) != file.content]
        active = self._is_active()
        if not changed and active:
            return
        self._check_manager()
        if active:
            self._each(self._plan.stop, may_fail=True)  # it would go on with what it was told
        for file in changed:
            self._write(file)
        if changed:
            self._each(self._plan.reload)
        self._each(self._plan.start)

    def _check_manager(self) -> None:
        """Before anything is written. A dry run says it beside the steps."""
        code, said = self._run(self._plan.reaches) if self._plan.reaches else (0, "")
        if code == 0:
            return
        problem = f"{self._plan.manager} of this user cannot be reached: {said or code}"
        if not self._dry_run:
            raise SandboxdError(problem, remedy=self._plan.unreachable)
        self._note(f"# this would fail now: {problem}")

    def uninstall(self) -> None:
        there = [file.path for file in self._plan.files if _content(file.path) is not None]
        if not there and not self._is_active():
            return
        self._each(self._plan.stop, may_fail=True)
        for path in there:
            self._note(f"remove {path}")
            if not self._dry_run:
                os.unlink(path)
        self._each(self._plan.reload, may_fail=True)

    def status(self) -> dict[str, object]:
        contents = [_content(file.path) for file in self._plan.files]
        wanted = [file.content for file in self._plan.files]
        return {
            "manager": self._plan.manager,
            "files": [file.path for file in self._plan.files],
            "installed": all(content is not None for content in contents),
            "up_to_date": contents == wanted,
            "active": self._is_active(),
        }

    def _is_active(self) -> bool:
        return self._run(self._plan.is_active)[0] == 0

    def _write(self, file: ServiceFile) -> None:
        self._note(f"write {file.path}")
        if self._dry_run:
            return
        try:
            os.makedirs(os.path.dirname(file.path), mode=0o700, exist_ok=True)
            new = f"{file.path}.new"
            with open(new, "wb") as out:
                out.write(file.content)
            os.replace(new, file.path)
        except OSError as error:
            raise SandboxdError(f"cannot write {file.path}: {error.strerror}") from None

    def _each(self, commands: Sequence[Sequence[str]], *, may_fail: bool = False) -> None:
        for command in commands:
            self._note(shlex.join(command))
            if self._dry_run:
                continue
            code, said = self._run(command)
            if code != 0 and not may_fail:
                raise SandboxdError(
                    f"`{shlex.join(command)}` failed: {said or f'exit code {code}'}",
                    remedy="see `sandboxctl service status`; a dry run shows every step",
                )

    def _note(self, line: str) -> None:
        self.done.append(line)


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
