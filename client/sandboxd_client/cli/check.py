"""`sandboxctl check`: the plan that `run` would carry out, how it is enforced; nothing runs."""

from __future__ import annotations

import os
import shlex
from typing import Any

import msgspec

from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.request import policy
from sandboxd_client.cli.session import connect, print_json
from sandboxd_proto.messages.server import CheckResult


def main(options: Options) -> int:
    with connect(options, may_start=True) as client:
        # The same params as `run` sends, so that the answer is about the same command.
        result = client.check(**policy(options, os.environ))
    if options.has("--json"):
        print_json(result)
    else:
        print(text(result), end="")
    return 0


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
