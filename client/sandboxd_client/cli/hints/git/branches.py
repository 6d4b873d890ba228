"""What `git branch` leaves to do where it could not write .git/config.

Git writes that file also where it has no section of the branch; then nothing is lost.
"""

from __future__ import annotations

import os
import re

from sandboxd_client.cli.denial_lines import NO_SECTION
from sandboxd_client.cli.hints.git.files import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_DELETES = ("-d", "-D", "--delete")
_MOVED = (
    (("-m", "-M", "--move"), "renamed",
     ": set its upstream outside, with git branch --set-upstream-to"),
    (("-c", "-C", "--copy"), "copied", " in .git/config"),
)  # fmt: skip
# `[branch "name"]`; in old files `[branch.name]`.
_SECTION = re.compile(rb'\[branch(?:\s+"((?:[^"\\\n]|\\.)*)"|\.([^\]\n]*))\s*\]', re.IGNORECASE)


def branch_hint(rest: Sequence[str], code: int, config: str) -> str | None:
    """`rest`: the words after `branch`. `config`: the file that could not be written."""
    names = [word for word in rest if not word.startswith("-")]
    if any(word in _DELETES for word in rest):
        return _deleted(names, code, config)
    for one_of, done, left in _MOVED:
        if any(word in one_of for word in rest):
            if _has_section(config, _old_name(names, config)):
                return f"the branch is {done}, but not its settings{left}"
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


def _has_section(config: str, names: Sequence[str]) -> bool:
    """Whether one of the branches has one, as far as that can be seen. Without a name any counts,
    and what cannot be read has one."""
    text = read(config)
    found = {re.sub(rb"\\(.)", rb"\1", quoted) or old for quoted, old in _SECTION.findall(text)}
    return not text or bool(found.intersection(map(os.fsencode, names)) if names else found)
