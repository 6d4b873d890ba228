"""After a package manager that was denied one host: the group with all that it asks."""

from __future__ import annotations

import os

from sandboxd_client.cli.host_groups import PREFIX, expand
from sandboxd_client.cli.parse import Options, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TOOLS = {
    "pip": "python", "uv": "python", "poetry": "python", "npm": "node", "npx": "node",
    "pnpm": "node", "yarn": "node", "cargo": "rust", "go": "go",
}  # fmt: skip


def group_hint(options: Options, words: list[str], result: dict[str, Any]) -> str | None:
    """Where it would be denied another host of its configuration next."""
    program, group = _tool(words)
    denials = [d for d in result.get("denials") or [] if d.get("kind") == "network"]
    denied = {_host(d) for d in denials} - set(options.hosts)
    proposed = {_host(d) for d in denials if d.get("remedy")} & denied
    if group is None or not proposed:
        return None
    try:
        hosts = expand(f"{PREFIX}{group}", os.environ)
    except UsageError:
        return None
    named = next((host for host in hosts if host in proposed), None)
    if named is None or set(hosts) <= {*denied, *options.hosts}:
        return None
    return (
        f"{program} asks other hosts as well: in place of --net {named} give --net "
        f"{PREFIX}{group}, which stands for the hosts of its settings here ({', '.join(hosts)})"
    )


def _tool(words: list[str]) -> tuple[str, str | None]:
    program = words[0].rpartition("/")[2].rstrip(".0123456789") if words else ""
    if program == "python" and words[1:3] == ["-m", "pip"]:
        program = "pip"
    return program, _TOOLS.get(program)


def _host(denial: dict[str, Any]) -> str:
    """As a group has it: with a port only where it is not the usual one."""
    target = str(denial.get("target"))
    host, _, port = target.rpartition(":")
    return host if host and port in ("80", "443") else target
