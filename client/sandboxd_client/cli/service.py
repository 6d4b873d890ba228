"""`sandboxctl service install|uninstall|status`: the daemon as a service of this user."""

from __future__ import annotations

import os
import shutil
import sys

from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options
from sandboxd_client.service import ServicePlan, plan_for
from sandboxd_client.service.apply import ServiceInstaller
from sandboxd_proto.errors import SandboxdError

NOT_ACTIVE = 1


def main(options: Options) -> int:
    plan = _plan()
    service = ServiceInstaller(plan, dry_run=options.has("--dry-run"))
    action = options.operands[0]
    if action == "status":
        return _status(options, service)
    if action == "install":
        service.install()
        return _report(options, service, plan.note or "it is installed")
    service.uninstall()
    return _report(options, service, "it is removed")


def _status(options: Options, service: ServiceInstaller) -> int:
    found = service.status()
    if options.has("--json"):
        print_json(found)
    else:
        for name, value in found.items():
            shown = ", ".join(value) if isinstance(value, list) else str(value).lower()
            print(f"{name.replace('_', ' '):<11} {shown}")
    return 0 if found["installed"] and found["active"] else NOT_ACTIVE


def _report(options: Options, service: ServiceInstaller, note: str) -> int:
    dry_run = options.has("--dry-run")
    if options.has("--json"):
        print_json({"dry_run": dry_run, "steps": service.done})
        return 0
    for line in service.done:
        print(f"would {line}" if dry_run and line.startswith(("write ", "remove ")) else line)
    if not service.done:
        print("nothing to do")
    elif not dry_run:
        print(note)
    return 0


def _plan() -> ServicePlan:
    try:
        return plan_for(program(), dict(os.environ))
    except ValueError as error:
        raise SandboxdError(f"no service can be made: {error}") from None


def program() -> list[str]:
    """The daemon's program by the name that stays when it is upgraded.

    pipx and uv put links into a folder on PATH; what they lead to has another name after an
    upgrade of Python. So the name beside this very program is used as it was called, unresolved.
    """
    called = os.path.abspath(sys.argv[0])
    for candidate in (
        os.path.join(os.path.dirname(called), "sandboxd"),
        shutil.which("sandboxd") or "",
        os.path.join(os.path.dirname(sys.executable), "sandboxd"),
    ):
        if candidate and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return [candidate]
    return [sys.executable, "-m", "sandboxd"]
