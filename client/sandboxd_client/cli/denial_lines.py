"""The lines about what was denied, and the flags of `run` that would allow it."""

from __future__ import annotations

import os

from sandboxd_client.cli.place import here, workspace
from sandboxd_client.cli.plain_text import one_line, quoted
from sandboxd_proto.amounts import shown_bytes, shown_seconds
from sandboxd_proto.locations import KEPT_FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

_SHOWN = 8
_OF_CREATE = ("--write", "--net HOST")
_MOVED = " and was moved to "
_UNPROPOSED = ". No change is proposed"
_VERBS = {
    "filesystem_read": "reading",
    "filesystem_write": "writing",
    "protected_path": "changing protected",
    "network": "connecting to",
    "syscall": "system call",
}
_NAMED = {
    "base": "--base",
    "syscall_policy": "--syscalls",
    "timeout": "--timeout",
    "max_memory_bytes": "--memory",
    "max_cpu_secs": "--cpu",
    "max_processes": "--processes",
    "tmp_bytes": "--tmp-size",
    "shm_bytes": "--shm-size",
}


def after_the_end(
    denials: list[dict[str, Any]], hosts: Collection[str], hints: Collection[str] = (),
    typed: Collection[str] | None = None,
) -> list[str]:  # fmt: skip
    """What was denied, and what to do about files that were moved aside. `hosts`: of --net.
    `hints`: lines that follow, and that may have a flag for what the daemon proposes none for."""
    denials = [_with_hint(denial, hints) for denial in denials]
    lines = denied(denials, {f"--net {quoted(host)}" for host in hosts}, typed)
    moved = [denial for denial in denials if _moved_aside(denial)]
    for root in dict.fromkeys(map(_kept_in, moved)):
        where = "" if root == (workspace(None) or here()) else f" (with -w {quoted(root)})"
        lines.append(f"what was moved aside: sandboxctl kept list, diff, accept or drop{where}")
    if any(_is_tracked_perhaps(denial) for denial in moved):
        lines.append(
            "warning: where git tracks what was moved aside, it takes it for deleted: "
            "do not commit that (git add -A and git commit -a would)"
        )
    return lines


def _with_hint(denial: dict[str, Any], hints: Collection[str]) -> dict[str, Any]:
    """A denial whose target a hint proposes does not say that nothing is proposed."""
    path = quoted(str(denial.get("target")))
    flags = (f"--read {path}", f"--write {path}")
    if not any(f"{hint} ".find(f"{flag} ") >= 0 for hint in hints for flag in flags):
        return denial
    message = str(denial.get("message")).partition(_UNPROPOSED)[0]
    return {**denial, "message": message, "hinted": True}


def denied(
    denials: list[dict[str, Any]], given: set[str], typed: Collection[str] | None = None
) -> list[str]:
    """One line each: what a flag allows, with the flags; then what no flag allows. `typed`: the
    flags of a command in a sandbox that exists, which takes no others."""
    allowable = [d for d in denials if _new_flags([d], given)]
    never = [d for d in denials if d not in allowable]
    lines = [*_shown(allowable, remark)]
    certain = [d for d in allowable if not d.get("claimed")]
    claimed = [d for d in allowable if d.get("claimed")]
    advice = [
        *_advice("to allow it", _new_flags(certain, given), typed),
        *_advice("if that is so,", _new_flags(claimed, given), typed),
    ]
    lines = ["; ".join([*lines, *advice])] if len(lines) == 1 else lines + advice
    last = _shown(never, _never)
    if typed is not None:
        last = [f"{x} of sandbox create" if x.endswith(_OF_CREATE) else x for x in last]
    return lines + last


def _advice(words: str, flags: list[str], typed: Collection[str] | None) -> list[str]:
    """What to type: here, or where a sandbox was made that has too little."""
    here = [flag for flag in flags if typed is None or flag.partition(" ")[0] in typed]
    made = [flag for flag in flags if flag not in here]
    lines = [f"{words} add: {' '.join(here)}"] if here else []
    if made:
        lines.append(f"{words} make a sandbox with: sandboxctl sandbox create {' '.join(made)}")
    return lines


def _shown(denials: list[dict[str, Any]], text: Callable[[dict[str, Any]], str]) -> list[str]:
    lines = list(dict.fromkeys(map(text, denials)))
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], f"and {more} more (--json shows all)"] if more > 0 else lines


def _new_flags(denials: list[dict[str, Any]], given: set[str]) -> list[str]:
    flags = dict.fromkeys(flag for d in denials for flag in allowing(d.get("remedy")))
    return [flag for flag in flags if flag not in given]


def remark(denial: dict[str, Any]) -> str:
    """What was denied and why, with how certain that is."""
    verdict = "denied" if denial.get("confidence") == "high" else "perhaps denied"
    return f"{verdict}: {_why(denial)}"


def _never(denial: dict[str, Any]) -> str:
    """A claim without a remedy may be about anything: only what is certain is called final."""
    unnamed = denial.get("kind") == "network" and denial.get("target") is None
    if unnamed and not denial.get("claimed") and "--net" not in str(denial.get("message")):
        return f"{remark(denial)}; name its hosts with --net HOST"
    if (
        denial.get("claimed")
        or denial.get("confidence") == "low"
        or denial.get("kind") == "network"
    ):
        return remark(denial) + _elsewhere(denial)
    verdict = "denied" if denial.get("confidence") == "high" else "perhaps denied"
    if " is masked: " in str(denial.get("message")):
        return f"{verdict}: {_why(denial)}; nothing is proposed, because it can be a secret"
    return f"{verdict}, no flag allows it: {_why(denial)}"


def _elsewhere(denial: dict[str, Any]) -> str:
    """What can be done about a hidden place for which no flag is proposed. It names no path: the
    command chose that."""
    message = str(denial.get("message"))
    if denial.get("kind") == "filesystem_write" and message.endswith("is not in fs_write_allow"):
        return "; no flag is proposed for folders of the system: do that outside of the sandbox"
    if "not visible in the sandbox" not in message or denial.get("hinted"):
        return ""
    reasoned = _UNPROPOSED in message
    if denial.get("kind") == "filesystem_write" and reasoned:
        return "; another folder can be named with --write"
    if denial.get("kind") == "filesystem_write":
        return "; to write beside the workspace, make a folder outside and name it with --write"
    if denial.get("kind") == "filesystem_read" and not reasoned:
        return "; no flag is proposed for start-up files, secrets and what is not yours"
    return ""


def _why(denial: dict[str, Any]) -> str:
    message = str(denial.get("message") or "")
    if not message:
        message = f"{_VERBS.get(str(denial.get('kind')), str(denial.get('kind')))} "
        message += str(denial.get("target") or "")
    if _moved_aside(denial):
        before, _, after = message.partition(_MOVED)
        message = f"{before} and was moved aside:{after.partition(':')[2]}"
    return one_line(in_flags(message)).strip()


def _kept_in(denial: dict[str, Any]) -> str:
    """The writable folder that holds what was moved aside."""
    moved_to = str(denial.get("message")).partition(_MOVED)[2]
    return moved_to.lstrip('"').partition(f"/{KEPT_FOLDER}")[0]


def _is_tracked_perhaps(denial: dict[str, Any]) -> bool:
    inside_git = "/.git/" in f"{denial.get('target')}/"
    return not inside_git and os.path.lexists(os.path.join(_kept_in(denial), ".git"))


def _moved_aside(denial: dict[str, Any]) -> bool:
    return denial.get("kind") == "protected_path" and _MOVED in str(denial.get("message"))


def in_flags(message: str) -> str:
    """Fields of the manifest by the names of their flags, amounts with their units."""
    words = message.split(" ")
    for index, word in enumerate(words):
        if word.isdigit() and words[index + 1 : index + 2] in (["bytes"], ["bytes,"], ["bytes;"]):
            words[index] = shown_bytes(int(word)) + words[index + 1].removeprefix("bytes")
            words[index + 1] = ""
    text = " ".join(word for word in words if word)
    for field, flag in (
        *_NAMED.items(),
        ("fs_write_allow", "--write"),
        ("fs_read_allow", "--read"),
    ):
        if len(field) > len("timeout"):  # shorter ones are words of their own, too
            text = text.replace(field, flag)
    return text


def allowing(remedy: Any) -> list[str]:
    """The flags of `run` that stand for a remedy, which is a piece of manifest."""
    if not isinstance(remedy, dict):
        return []
    return [flag for field, value in remedy.items() for flag in _flags(field, value)]


def _flags(field: str, value: Any) -> list[str]:
    if field in ("fs_read_allow", "fs_write_allow"):
        name = "--read" if field == "fs_read_allow" else "--write"
        return [f"{name} {quoted(str(path))}" for path in value]
    if field == "network":
        if isinstance(value, dict):
            words = value.get("hosts") or [value.get("kind")]
            return [f"--net {quoted(str(word))}" for word in words]
        return [f"--net {quoted(str(value))}"]
    name = _NAMED.get(field, "")
    if isinstance(value, dict) and "secs" in value:
        value = value["secs"]
    if name:
        return [f"{name} {quoted(_amount(name, value))}"]
    return [one_line(f"(manifest: {field} = {value})")]


def _amount(flag: str, value: Any) -> str:
    if isinstance(value, int | float) and flag in ("--memory", "--tmp-size", "--shm-size"):
        return shown_bytes(value)
    if isinstance(value, int | float) and flag in ("--timeout", "--cpu"):
        return shown_seconds(value)
    return str(value)
