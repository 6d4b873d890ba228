"""An explanation in words: a table of what was refused, and the manifest as TOML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sandboxd_client.cli.denial_lines import allowing_flags, in_flags
from sandboxd_client.cli.limit_words import UNKNOWN, is_example
from sandboxd_client.cli.plain_text import one_line
from sandboxd_client.cli.screen import columns

_FIELDS = (
    "base", "fs_read_allow", "fs_write_allow", "fs_deny", "network", "syscall_policy", "timeout",
    "max_memory_bytes", "max_cpu_secs", "max_processes", "max_file_bytes", "max_output_bytes",
    "tmp_bytes", "shm_bytes", "image",
)  # fmt: skip
_OPTIONAL_SHOWN = 8
_OWN_AFFAIR = "what failed is the command's own affair, or a refused system call (--syscalls)"


def report(explanation: dict[str, Any], *, failed: bool, told: bool = False) -> str:
    """`told`: lines about the failure follow."""
    needs = explanation.get("needs", [])
    if not needs:
        own = f"; {_OWN_AFFAIR}" if failed and not told else ""
        return f"sandboxctl: no file and no connection was refused{own}\n"
    heading = "what was refused" if failed else "the command succeeded without what was refused"
    lines = [f"sandboxctl: {heading}", *_table(needs, failed=failed)]
    if explanation.get("truncated"):
        lines.append("  … and more than could be recorded")
    if explanation.get("secrets"):
        lines.append("not proposed, because it holds secrets (--read PATH allows it nevertheless):")
        lines += [f"  {one_line(path)}" for path in explanation["secrets"]]
    protected = [need for need in needs if str(need.get("note")).startswith("protected: ")]
    if protected:
        writes = any(need.get("operation") != "rename" for need in protected)
        # What is granted itself cannot be replaced, which is how git writes its config.
        flag = " (--write PATH of what exists allows it nevertheless)" if writes else ""
        lines.append(f"what is protected is changed outside of the sandbox{flag}")
    missing = explanation.get("missing")
    if missing:
        heading = "it would need in addition" if failed else "to allow that too"
        flags = [flag for flag in allowing_flags(missing) if flag.startswith("--")]
        if flags:
            lines += [f"{heading}, as flags of run: {' '.join(flags)}", "or in a manifest:"]
        else:
            lines.append(f"{heading}, in a manifest:")
        lines += ["", _sandbox_table(missing)]
        if any(map(is_example, flags)):
            lines.append(UNKNOWN)
        if failed:
            lines.append("it may have stopped early: explain it again with what it needs so far")
    elif failed and any(need["status"] == "needed" for need in needs):
        lines.append("no manifest would allow it")
    return "\n".join(lines) + "\n"


def _table(needs: list[dict[str, Any]], *, failed: bool) -> list[str]:
    if not failed:
        needs = [n | {"status": "wanted"} if n["status"] == "needed" else n for n in needs]
    optional = [need for need in needs if need["status"] == "optional"]
    shown = [need for need in needs if need["status"] != "optional"] + optional[:_OPTIONAL_SHOWN]
    rows = [("status", "access", "how", "what", ""), *map(_row, shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    most = columns(2)
    lines = [line for row in rows for line in _wrapped(row, widths, most)]
    if len(optional) > _OPTIONAL_SHOWN:
        more = len(optional) - _OPTIONAL_SHOWN
        lines.append(f"  … and {more} more that it did without (--json shows all)")
    return [line.rstrip() for line in lines]


def _wrapped(row: Sequence[str], widths: list[int], most: int | None) -> list[str]:
    """One line; the note on a line of its own where the terminal is too narrow."""
    cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
    line = "  " + "  ".join(cells)
    if not row[4]:
        return [line]
    if most is None or len(line) + 2 + len(row[4]) <= most:
        return [f"{line}  {row[4]}"]
    return [line, f"      {row[4]}"]


def _row(need: dict[str, Any]) -> tuple[str, str, str, str, str]:
    grant = need.get("grant")
    note = need.get("note") or (f"allow {grant}" if grant and grant != need["target"] else "")
    cells = (need["status"], need["access"], need["operation"], need["target"])
    a, b, c, d = (one_line(str(cell)) for cell in cells)
    return a, b, c, d, one_line(in_flags(note))


def manifest_file(explanation: dict[str, Any], program: str) -> str:
    """A file for `sandboxctl run --manifest`: all that was allowed, and what was missing."""
    text = f"# What {one_line(program)} needs, as `sandboxctl explain` saw it.\n"
    for path in explanation.get("secrets", []):
        text += f"# Not allowed here, because it holds secrets: {one_line(path)}\n"
    for need in explanation.get("needs", []):
        if need["status"] == "refused":
            text += f"# Not allowed here: {one_line(need['target'])}: {one_line(need['note'])}\n"
    text += "\n" + _sandbox_table(explanation.get("manifest", {}))
    if explanation.get("preset"):
        text += "\n# What it is put on top of: protected files, private caches, toolchains.\n"
        text += "[run]\n"
        text += f"preset = {_value(explanation['preset'])}\n"
        if explanation.get("workspace"):
            text += f"workspace = {_value(explanation['workspace'])}\n"
    return text


def _sandbox_table(manifest: dict[str, Any]) -> str:
    known = [name for name in _FIELDS if name in manifest]
    rest = [name for name in manifest if name not in _FIELDS]
    lines = [f"{name} = {_value(manifest[name])}\n" for name in (*known, *rest)]
    return "[sandbox]\n" + "".join(lines)


def _value(value: Any, *, inline: bool = False) -> str:
    """TOML; a string of JSON is one of TOML too, but for DEL."""
    if isinstance(value, dict):
        pairs = (f"{key} = {_value(item, inline=True)}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        if inline or len(value) < 2:
            return "[" + ", ".join(_value(item, inline=True) for item in value) + "]"
        return "[\n" + "".join(f"    {_value(item, inline=True)},\n" for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    return repr(value)
