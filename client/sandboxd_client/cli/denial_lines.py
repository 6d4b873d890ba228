"""The lines about what was denied, and the flags of `run` that would allow it."""

from __future__ import annotations

import os

from sandboxd_client.cli import plan_words
from sandboxd_client.cli.hints.invocation import ANOTHER
from sandboxd_client.cli.limit_words import is_example, more_of
from sandboxd_client.cli.plain_text import one_line, quote
from sandboxd_client.cli.workspace import here, workspace
from sandboxd_proto.amounts import shown_bytes, shown_seconds
from sandboxd_proto.locations import KEPT_FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

_SHOWN = 8
_CERTAIN, _CLAIMED = "to allow it", "if that is so,"
_CERTAIN_ABOVE = "to allow what was denied above"  # while the command ran
_CLAIMED_ABOVE = "if what is said above is so,"
_CREATE = ": sandboxctl sandbox create"
_OF_CREATE = ("--read", "--write", "--net HOST")
_MOVED = " and was moved to "
_UNPROPOSED = ". No change is proposed"
_PROTECTED = " stays as it is: "
_ENTRY = ("remove", "rename")  # what no flag allows for a path itself: granted, it is a mount
_DENIED_BY_FLAG = " is masked: fs_deny hides "
_REPLACED = " could not be replaced, renamed or removed ("
_EMPTY = "whose content on the host is not visible"
_OPENED = ": a shell was to read it, run it or write it"
_UNSURE = ": if it was to be written, "
_EXPLAIN = "; sandboxctl explain -- COMMAND runs it once more, and tells what it tried"
_IN_SHELL = "leave this shell, and start it again with its flags and"
NO_SECTION = "although git could not write .git/config: it has no section there"
AROUND_WORKSPACE = "that would open a folder around the workspace"
# Why the daemon proposes nothing where a flag would do.
_LEFT_TO_THE_USER = (
    "it is a secret", "it is a start-up file", "it is another user's home", "it is in a git dir",
    "it holds a repository", "it holds more than", "it has another name",
    "only the command's words name it",
)  # fmt: skip
# Why it does so where a flag would open too much, or is refused.
_LEFT_OUTSIDE = ("all of ", "no request may make it writable", "it belongs to the whole machine")
_SYSTEM = ("bin", "boot", "etc", "lib", "lib64", "nix", "sbin", "usr", "var")
_KERNEL = ("dev", "proc", "sys")
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
    typed: Collection[str] | None = None, told: Collection[dict[str, Any]] = (),
) -> list[str]:  # fmt: skip
    """What was denied, and what to do about files that were moved aside. `hosts`: of --net.
    `hints`: lines that follow, and that may have a flag for what the daemon proposes none for.
    `told`: what has a line already; flags that this did not have follow here."""
    if any(NO_SECTION in hint for hint in hints):
        denials = [one for one in denials if not _is_claim_about_config(one)]
    if _is_for_outside(denials, hints):
        denials = [{**one, "remedy": None, "hinted": True} for one in denials]
    elif any(" outside" in hint or ".git/config" in hint for hint in hints):
        denials = [{**one, "hinted": True} if _is_protected(one) else one for one in denials]
    denials = [_with_hint(denial, hints) for denial in denials]
    given = {*hosts, *(host.strip("[]") for host in hosts)}  # an IPv6 address without a port
    lines = format_denials(denials, {f"--net {quote(host)}" for host in given}, typed, told)
    return lines + after_moving(denials)


def after_moving(denials: list[dict[str, Any]]) -> list[str]:
    """What to do about files that were moved aside."""
    moved, lines = [denial for denial in denials if is_moved_aside(denial)], []
    for root in dict.fromkeys(map(_kept_in, moved)):
        where = "" if root == (workspace(None) or here()) else f" (with -w {quote(root)})"
        sudo = "sudo " if _is_only_for_sudo(root) else ""
        lines.append(
            f"what was moved aside: {sudo}sandboxctl kept list, diff, accept or drop{where}"
        )
    if any(_is_tracked_perhaps(denial) for denial in moved):
        lines.append(
            "warning: where git tracks what was moved aside, it takes it for deleted: "
            "do not commit that (git add -A and git commit -a would)"
        )
    return lines


def _is_for_outside(denials: list[dict[str, Any]], hints: Collection[str]) -> bool:
    """The command changes what is protected, and a hint says so: flags for the rest do not help."""
    protected = any(map(_is_protected, denials))
    return protected and any("outside of the sandbox" in hint for hint in hints)


def _is_claim_about_config(denial: dict[str, Any]) -> bool:
    replaced = denial.get("claimed") and denial.get("operation") == "rename"
    return bool(replaced) and str(denial.get("target")).endswith("/.git/config")


def _is_protected(denial: dict[str, Any]) -> bool:
    return denial.get("kind") == "protected_path"


def _with_hint(denial: dict[str, Any], hints: Collection[str]) -> dict[str, Any]:
    """A denial whose target, or a folder around it, a hint proposes: what the hint says counts."""
    folders = [str(denial.get("target"))]
    while len(folders[-1]) > 1 and folders[-1].startswith("/"):
        folders.append(os.path.dirname(folders[-1]))
    reads = () if denial.get("kind") == "filesystem_write" else ("--read",)
    names = (*reads, "--write", "--workspace")
    flags = [f"{name} {quote(path)} " for name in names for path in folders]
    if not any(flag in f"{hint} " for hint in hints for flag in flags):
        return denial
    message = str(denial.get("message")).partition(_UNPROPOSED)[0]
    return {**denial, "message": message, "remedy": None, "hinted": True}


def format_denials(
    denials: list[dict[str, Any]], given: set[str], typed: Collection[str] | None = None,
    told: Collection[dict[str, Any]] = (),
) -> list[str]:  # fmt: skip
    """One line each: what a flag allows, with the flags; then what no flag allows. `typed`: the
    flags of a command in a sandbox that exists, which takes no others."""
    given = given.union(_new_flags([*told], given))
    allowable = [d for d in denials if _new_flags([d], given)]
    subjects = [*map(_subject, told)]
    untold = [d for d in denials if _subject(d) not in subjects]
    never = _one_for_each_folder([d for d in untold if d not in allowable])
    lines = [*_shown([d for d in allowable if d in untold], remark)]
    certain = [d for d in allowable if not d.get("claimed")]
    claimed = [d for d in allowable if d.get("claimed")]
    is_above = any(d not in untold for d in allowable)
    words = (_CERTAIN_ABOVE, _CLAIMED_ABOVE) if is_above else (_CERTAIN, _CLAIMED)
    advice = [
        *_advice(words[0], _new_flags(certain, given), typed),
        *_advice(words[1], _new_flags(claimed, given), typed),
    ]
    is_one = len(lines) == 1 and not is_above
    lines = ["; ".join([*lines, *advice])] if is_one else lines + advice
    last = _shown(never, _never)
    if typed is not None:
        last = [f"{x} of sandbox create" if x.endswith(_OF_CREATE) else x for x in last]
    return lines + last


def in_running_shell(line: str) -> str:
    """What to do about a denial in a shell that runs: it can be given nothing more."""
    for words in (_CERTAIN, _CLAIMED):
        line = line.replace(f"; {words} add: ", f"; {words} {_IN_SHELL} ")
    return line.replace(_EXPLAIN, f"; to write there, {_IN_SHELL} --write FOLDER")


def _subject(denial: dict[str, Any]) -> tuple[str, str, bool]:
    """What a line is about. Its wording differs while the command runs, where less is known: that
    a file was refused, and was moved aside later, is told twice."""
    about = str(denial.get("target") or denial.get("message"))
    return str(denial.get("kind")), about, is_moved_aside(denial)


def _one_for_each_folder(denials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`rm -r` names each file of a protected folder: the first, with how many there are."""
    first: dict[str, dict[str, Any]] = {}
    for index, denial in enumerate(denials):
        before, _, after = str(denial.get("message")).partition(_PROTECTED)
        folder, is_protected, _ = after.partition(" is protected")
        alone = not is_protected or before.endswith(folder)
        one = first.setdefault(str(index) if alone else folder, {**denial, "more": -1})
        one["more"] += 1
    return list(first.values())


def _advice(words: str, flags: list[str], typed: Collection[str] | None) -> list[str]:
    """What to type: here, or where a sandbox was made that has too little."""
    here = [flag for flag in flags if typed is None or flag.partition(" ")[0] in typed]
    made = [flag for flag in flags if flag not in here]
    raised = [flag for flag in here if is_example(flag)]
    exact = [flag for flag in here if flag not in raised]
    lines = [f"{words} add: {' '.join(exact)}"] if exact else []
    unsure = words.removeprefix(_CERTAIN)
    if raised:
        lines.append(f"{unsure} give it {more_of(raised)}".lstrip())
    if made and all(map(is_example, made)):
        lines.append(f"{unsure} {ANOTHER} {more_of(made, _CREATE)}".lstrip())
    elif made:
        lines.append(f"{words} {ANOTHER}{_CREATE} {' '.join(made)}")
    return lines


def _shown(denials: list[dict[str, Any]], text: Callable[[dict[str, Any]], str]) -> list[str]:
    lines = list(dict.fromkeys(map(text, denials)))
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], f"and {more} more (--json shows all)"] if more > 0 else lines


def _new_flags(denials: list[dict[str, Any]], given: set[str]) -> list[str]:
    flags = dict.fromkeys(flag for d in denials for flag in allowing_flags(d.get("remedy")))
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
        or denial.get("hinted")
        or denial.get("confidence") == "low"
        or denial.get("kind") == "network"
        or _is_protected(denial)
        or plan_words.flagged_by(denial)
        or _is_left_to_the_user(denial)
        or _is_left_outside(denial)
        or _reason(denial).startswith(AROUND_WORKSPACE)
    ):
        return remark(denial) + _elsewhere(denial)
    verdict = "denied" if denial.get("confidence") == "high" else "perhaps denied"
    if _DENIED_BY_FLAG in str(denial.get("message")):
        return f"{verdict}: {_why(denial)}"
    if " is masked: " in str(denial.get("message")):
        return f"{verdict}: {_why(denial)}; nothing is proposed, because it can be a secret"
    return f"{verdict}, no flag allows it: {_why(denial)}"


def _is_left_to_the_user(denial: dict[str, Any]) -> bool:
    """Whether a flag allows it that is never proposed."""
    reason = _reason(denial)
    if reason.startswith(AROUND_WORKSPACE):
        return denial.get("kind") == "filesystem_read"
    return reason.startswith(_LEFT_TO_THE_USER)


def _is_left_outside(denial: dict[str, Any]) -> bool:
    if denial.get("kind") != "filesystem_write":
        return False
    reason, message = _reason(denial), str(denial.get("message"))
    return reason.startswith(_LEFT_OUTSIDE) or (_REPLACED in message and not reason)


def _reason(denial: dict[str, Any]) -> str:
    """Why nothing is proposed, without the folder that would have to be allowed."""
    reason = str(denial.get("message")).partition(f"{_UNPROPOSED}: ")[2]
    for access in ("readable", "writable"):
        reason = reason.rpartition(f" would have to be {access}, and ")[2]
    return reason


def _elsewhere(denial: dict[str, Any]) -> str:
    """What can be done about a hidden place for which no flag is proposed. It names no path: the
    command chose that."""
    message, writes = str(denial.get("message")), denial.get("kind") == "filesystem_write"
    if denial.get("hinted") or "outside either" in message or plan_words.flagged_by(denial):
        return ""
    if _is_protected(denial):
        return _of_protected(denial)
    if _UNSURE in message:
        return _EXPLAIN
    if _is_left_to_the_user(denial):
        flag = "--write" if writes else "--read"
        return f"; it is for you to decide whether to allow it nevertheless, with {flag}"
    if _is_left_outside(denial):
        return _folder_of_its_own(denial) or "; do that outside of the sandbox"
    if writes and message.endswith("is not in fs_write_allow"):
        return _not_in_write(str(denial.get("target")))
    if "not visible in the sandbox" not in message:
        return ""
    if _EMPTY in message:
        return "; if the command needs some of it, and no secret, name that with --read"
    reasoned = _UNPROPOSED in message
    if writes and reasoned:
        return "; another folder can be named with --write"
    if writes:
        return "; to write beside the workspace, make a folder outside and name it with --write"
    if denial.get("kind") == "filesystem_read" and not reasoned:
        needs = "; if the command needs it, and it is no secret, name it with --read"
        return f"{needs}, or with --write to write it" if _OPENED in message else needs
    return ""


def _folder_of_its_own(denial: dict[str, Any]) -> str:
    """For what is to be made in a home folder. A hidden name there is a tool's setting."""
    home = (
        str(denial.get("message")).partition(f"{_UNPROPOSED}: all of ")[2].partition(" would ")[0]
    )
    name = str(denial.get("target")).removeprefix(f"{home}/").partition("/")[0]
    if home != os.path.expanduser("~") or name[:1] in (".", "/", ""):
        return ""
    if os.path.lexists(os.path.join(home, name)):
        return ""
    return "; make a folder for it outside, and name that with --write"


def _of_protected(denial: dict[str, Any]) -> str:
    """What was moved aside has lines of its own."""
    if is_moved_aside(denial):
        return ""
    outside = "; do that outside of the sandbox"
    before, stays, after = str(denial.get("message")).partition(_PROTECTED)
    itself = after.startswith(f"{before.rpartition('the command says: ')[2]} ")
    if not stays or (itself and denial.get("operation") in _ENTRY):
        return outside
    return (
        f"{outside}. Of a path that exists, it is for you to decide whether to allow it "
        "nevertheless, with --write"
    )


def _not_in_write(target: str) -> str:
    """For what is shown, and was not judged: a command still runs, or went on nevertheless."""
    top = target.split("/")[1] if target.startswith("/") else ""
    if top in _KERNEL:
        return ""
    if top in _SYSTEM and not target.startswith("/var/tmp/"):
        return "; no flag is proposed for folders of the system: do that outside of the sandbox"
    return "; if the command is to write there, name the folder with --write"


def _why(denial: dict[str, Any]) -> str:
    message = str(denial.get("message") or "")
    if not message:
        message = f"{_VERBS.get(str(denial.get('kind')), str(denial.get('kind')))} "
        message += str(denial.get("target") or "")
    if denial.get("more"):
        several = f" and {denial['more']} more in it stay as they are: "
        message = message.replace(_PROTECTED, several, 1)
    if is_moved_aside(denial):
        before, _, after = message.partition(_MOVED)
        message = f"{before} and was moved aside:{after.partition(':')[2]}"
    return one_line(in_flags(plan_words.without_flags(message))).strip()


def _kept_in(denial: dict[str, Any]) -> str:
    """The writable folder that holds what was moved aside."""
    moved_to = str(denial.get("message")).partition(_MOVED)[2]
    return moved_to.lstrip('"').partition(f"/{KEPT_FOLDER}")[0]


def _is_only_for_sudo(workspace: str) -> bool:
    """Whether who typed sudo cannot read what was moved aside: the workspace is another user's."""
    typed = os.environ.get("SUDO_UID", "0")
    return os.path.isdir(workspace) and typed not in ("0", str(os.stat(workspace).st_uid))


def _is_tracked_perhaps(denial: dict[str, Any]) -> bool:
    inside_git = "/.git/" in f"{denial.get('target')}/"
    return not inside_git and os.path.lexists(os.path.join(_kept_in(denial), ".git"))


def is_moved_aside(denial: dict[str, Any]) -> bool:
    return _is_protected(denial) and _MOVED in str(denial.get("message"))


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
        ("fs_deny", "--deny (fs_deny)"),
    ):
        if "_" in field:  # the others are words of their own, too
            text = text.replace(field, flag)
    return text


def allowing_flags(remedy: Any) -> list[str]:
    """The flags of `run` that stand for a remedy, which is a piece of manifest."""
    if not isinstance(remedy, dict):
        return []
    return [flag for field, value in remedy.items() for flag in _flags(field, value)]


def _flags(field: str, value: Any) -> list[str]:
    if field in ("fs_read_allow", "fs_write_allow"):
        name = "--read" if field == "fs_read_allow" else "--write"
        return [f"{name} {quote(str(path))}" for path in value]
    if field == "network":
        if isinstance(value, dict):
            words = value.get("hosts") or [value.get("kind")]
            return [f"--net {quote(str(word))}" for word in words]
        return [f"--net {quote(str(value))}"]
    name = _NAMED.get(field, "")
    if isinstance(value, dict) and "secs" in value:
        value = value["secs"]
    if name:
        return [f"{name} {quote(_amount(name, value))}"]
    return [one_line(f"(manifest: {field} = {value})")]


def _amount(flag: str, value: Any) -> str:
    if isinstance(value, int | float) and flag in ("--memory", "--tmp-size", "--shm-size"):
        return shown_bytes(value)
    if isinstance(value, int | float) and flag in ("--timeout", "--cpu"):
        return shown_seconds(value)
    return str(value)
