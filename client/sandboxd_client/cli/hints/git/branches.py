"""What `git branch` leaves to do where it could not write .git/config.

Git writes that file also where it has no section of the branch; then nothing is lost.
"""

from __future__ import annotations

import os
import re

from sandboxd_client.cli.denial_lines import NO_SECTION
from sandboxd_client.cli.hints.git.files import read
from sandboxd_client.cli.hints.git.upstream import git_for, line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_DELETES = ("-d", "-D", "--delete")
_MOVED = (
    (("-m", "-M", "--move"), "renamed"),
    (("-c", "-C", "--copy"), "copied"),
)
# `[branch "name"]`; in old files `[branch.name]`.
_SECTION = re.compile(rb'\[branch(?:\s+"((?:[^"\\\n]|\\.)*)"|\.([^\]\n]*))\s*\]', re.IGNORECASE)
_SETTING = re.compile(r"^\s*(remote|merge)\s*=\s*(\S+)\s*$", re.MULTILINE)


def branch_hint(rest: Sequence[str], code: int, config: str, workspace: str) -> str | None:
    """`rest`: the words after `branch`. `config`: the file that could not be written."""
    git = git_for(config, workspace)
    names = [word for word in rest if not word.startswith("-")]
    if any(word in _DELETES for word in rest):
        return _deleted(names, code, config)
    for one_of, done in _MOVED:
        if any(word in one_of for word in rest):
            old = _old_name(names, config)
            if _has_section(config, old):
                upstream = _upstream(config, old)
                way = line(upstream, names[-1] if names else "", [upstream], git=git)
                return f"the branch is {done}, but not its settings: outside, {way}"
            own = f" (exit code {code} is git's own)" if code else ""
            return f"the branch is {done}, {NO_SECTION}, and nothing is left to do{own}"
    return None


def _old_name(names: Sequence[str], config: str) -> list[str]:
    """Of `OLD NEW`; of `NEW` alone, for the current branch, as the last entry of its log has it."""
    if len(names) != 1:
        return list(names[:1])
    log = os.path.join(os.path.dirname(config), "logs", "refs", "heads", names[0])
    entry = os.fsdecode(read(log)).rstrip("\n").rpartition("\n")[2]
    ref = entry.rpartition(" to refs/heads/")[0].rpartition(" refs/heads/")[2]
    return [ref] if ref else []


def _deleted(names: Sequence[str], code: int, config: str) -> str:
    """Git ends with 0 where only the config failed: another code is about another branch."""
    one = len(names) == 1 and not code
    done = "the branch is deleted" if one else "what git calls deleted is deleted"
    if _has_section(config, names):
        return f"{done}; only its section in .git/config stays, which does no harm"
    return f"{done}, {NO_SECTION}" + ("" if code else ", and nothing is left to do")


def _upstream(config: str, names: Sequence[str]) -> str:
    """As git calls it: origin/main. Empty if the branch has none that is known."""
    text = read(config)
    for section in _SECTION.finditer(text):
        name = re.sub(rb"\\(.)", rb"\1", section[1] or b"") or section[2]
        if name in map(os.fsencode, names):
            body = text[section.end() :].partition(b"\n[")[0].decode(errors="replace")
            found = dict(_SETTING.findall(body))
            if len(found) == 2:
                branch = found["merge"].removeprefix("refs/heads/")
                return branch if found["remote"] == "." else f"{found['remote']}/{branch}"
    return ""


def _has_section(config: str, names: Sequence[str]) -> bool:
    """Whether one of the branches has one, as far as that can be seen. Without a name any counts,
    and what cannot be read has one."""
    text = read(config)
    found = {re.sub(rb"\\(.)", rb"\1", quoted) or old for quoted, old in _SECTION.findall(text)}
    return not text or bool(found.intersection(map(os.fsencode, names)) if names else found)
