"""`sandboxctl check`: the plan that `run` would carry out, how it is enforced; nothing runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from sandboxd_client.cli.connect import connect, print_json
from sandboxd_client.cli.denial_lines import in_flags
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.plain_text import one_line
from sandboxd_client.cli.request import policy
from sandboxd_client.cli.start_notices import say_unprotected
from sandboxd_proto.amounts import shown_bytes, shown_seconds
from sandboxd_proto.locations import caches_root
from sandboxd_proto.messages.server import CheckResult

_SHOWN = 4
_FAMILIAR = (".envrc", ".vscode", ".husky", "hooks")


def main(options: Options) -> int:
    params = policy(options, os.environ)  # as `run` sends them: it is about the same command
    say_unprotected(options, params)
    with connect(options, may_start=True) as client:
        result = client.check(**params)
    if options.has("--json"):
        print_json(result)
    else:
        print(text(result) if options.has("--verbose") else summary(result), end="")
    return 0


def summary(result: CheckResult) -> str:
    """What one wants to know: writable, readable, hidden, the network, limits; what is weaker."""
    plan = msgspec.to_builtins(result.plan)
    rows = [
        ("backend", result.backend),
        ("starts in", str(plan.get("cwd") or "/")),
        ("runs as", _user(plan.get("run_as"))),
        *_several("writable", _writable(plan) or ["nothing but /tmp"]),
        *_several("readable", _readable(plan)),
        *_several("hidden", [*(plan.get("fs_deny") or []), "home folders and other secrets"]),
        ("network", _network(plan["network"])),
        *_limits(plan),
        ("variables", f"{len(plan.get('env') or [])}"),
        ("read-only", _protected(plan.get("protected") or [])),
        ("enforced", _tiers(result.enforcement, plan)),
        *(("warning", one_line(in_flags(warning))) for warning in result.warnings),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}\n" for name, value in rows if value]
    return "".join(lines) + "(--verbose lists every path, variable and argument)\n"


def _user(name: str | None) -> str:
    return f"{one_line(name)}, the owner of what it may write: not as root" if name else ""


def _several(name: str, values: list[str]) -> list[tuple[str, str]]:
    shown = [(name if index == 0 else "", item) for index, item in enumerate(values[:_SHOWN])]
    more = len(values) - _SHOWN
    return [*shown, ("", f"and {more} more")] if more > 0 else shown


def _writable(plan: dict[str, Any]) -> list[str]:
    """The caches last: the workspace is what one looks for."""
    caches = caches_root()
    return sorted(plan.get("fs_write_allow") or [], key=lambda path: path.startswith(caches))


def _readable(plan: dict[str, Any]) -> list[str]:
    system = "the system's files" if plan.get("base") != "host" else "the machine's files"
    return [*(plan.get("fs_read_allow") or []), system]


def _network(rule: dict[str, Any]) -> str:
    if rule.get("kind") == "allow_hosts":
        return "only " + " ".join(rule.get("hosts") or ["no host"])
    return "none" if rule.get("kind") == "deny" else "all hosts: it is not restricted"


def _limits(plan: dict[str, Any]) -> list[tuple[str, str]]:
    timeout, memory, cpu = (
        plan.get(name) for name in ("timeout_secs", "max_memory_bytes", "max_cpu_secs")
    )
    limits = [
        f"time {shown_seconds(timeout)}" if timeout else "",
        f"memory {shown_bytes(memory)}" if memory else "",
        f"CPU time {shown_seconds(cpu)}" if cpu else "",
        f"{plan['max_processes']} processes" if plan.get("max_processes") else "",
        f"/tmp {shown_bytes(plan['tmp_bytes'])}" if plan.get("tmp_bytes") else "",
    ]
    return [("limits", ", ".join(filter(None, limits)))]


def _protected(paths: list[str]) -> str:
    names = [path for path in paths if path.rpartition("/")[2] in _FAMILIAR]
    shown = ", ".join(dict.fromkeys(path.rpartition("/")[2] for path in names))
    return f"{len(paths)} paths that run later outside ({shown}, …)" if paths else ""


def _tiers(enforcement: Mapping[str, str], plan: dict[str, Any]) -> str:
    values = {"network": plan["network"]["kind"], "syscall_policy": plan["syscall_policy"]}
    tiers = dict(enforcement)
    tiers.update((name, "not restricted") for name, kind in values.items() if kind == "inherit")
    weaker = [f"{name}: {tier}" for name, tier in tiers.items() if tier != "enforced"]
    return "everything" if not weaker else "everything but " + ", ".join(weaker)


def text(result: CheckResult) -> str:
    plan = msgspec.to_builtins(result.plan)
    width = max(map(len, [*plan, *result.enforcement]))
    lines = [f"{'backend':<{width}}  {result.backend}\n"]
    for name, value in plan.items():
        for item in _items(value):
            lines.append(f"{name:<{width}}  {item}\n")
            name = ""
    lines += ["\n", f"{'field':<{width}}  enforcement\n"]
    lines += [f"{name:<{width}}  {tier}\n" for name, tier in result.enforcement.items()]
    lines += [f"{'warning':<{width}}  {one_line(warning)}\n" for warning in result.warnings]
    if result.command_line:
        lines += ["\n", shlex.join(result.command_line), "\n"]
    return "".join(lines)


def _items(value: Any) -> list[str]:
    """One line each; nothing for what was neither asked for nor set."""
    if isinstance(value, dict):
        return [" ".join([str(value.get("kind")), *value.get("hosts", [])])]
    if not isinstance(value, list):
        return [] if value is None else [str(value)]
    if value and isinstance(value[0], (list, tuple)):
        return [" ".join(name for name, _ in value)]  # variables: their values may be secret
    return [str(item) for item in value]
