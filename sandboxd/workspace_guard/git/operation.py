"""Judges git's unfinished work (rebase, cherry-pick, am, bisect): what `--continue` would run.

Git keeps it in small files. Each file that git reads has a rule here. A new file without a rule is
harmful. Content from before the run is the user's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from sandboxd.workspace_guard.git.ref_names import is_oid, is_ref, is_unsafe

STRATEGIES = frozenset({b"recursive", b"ort", b"resolve", b"octopus", b"ours", b"subtree"})
MAX_BYTES = 4 << 20
# Options and names are short; the expressions below keep a state for each of their words.
_MOST_PARSED = 1 << 16

# Words of a todo list, with their abbreviations, that run no program. Not here: exec, x, and
# what a later git may add.
_COMMANDS = frozenset(
    b"pick p revert edit e reword r fixup f squash s label l reset t merge m update-ref u "
    b"break b noop drop d".split()
)
# A command starts with a letter: what starts otherwise is a comment or an error under every
# core.commentChar.
_STARTS_WORD = re.compile(rb"[A-Za-z0-9_\x80-\xff-]")
# Options of git's own strategies. They reach shell scripts too, so that a blank would split them.
_STRATEGY_OPTION = re.compile(
    rb"(?:--)?(?:ours|theirs|patience|histogram|minimal|diff-algorithm=[a-z]+"
    rb"|ignore-space-change|ignore-all-space|ignore-space-at-eol|ignore-cr-at-eol"
    rb"|(?:no-)?renormalize|no-renames|find-renames(?:=[0-9]+%?)?|rename-threshold=[0-9]+%?"
    rb"|subtree(?:=[A-Za-z0-9_./+-]*)?)"
)
# Options that git-am passes on to git-apply; not --unsafe-paths or --build-fake-ancestor.
_APPLY_OPTION = re.compile(
    rb"--whitespace=[a-z-]+|-C[0-9]+|-p[0-9]+|--(?:directory|exclude|include)=[^\x00-\x1f']*"
    rb"|--ignore-space-change|--ignore-whitespace|--reject|--(?:no-)?(?:3way|reject)"
)
# Words as git quotes them for a shell; outside of quotes nothing that a shell would interpret.
_ONE_WORD = rb"(?:'[^'\x00]*'(?:\\['!]'[^'\x00]*')*|[A-Za-z0-9_./=%+@:,-]+)"
_QUOTED_WORDS = re.compile(rb"\s*(?:" + _ONE_WORD + rb"(?:\s+|\Z))*")
_QUOTED_WORD = re.compile(_ONE_WORD)
_AUTHOR = re.compile(rb"(?:GIT_AUTHOR_(?:NAME|EMAIL|DATE)='(?:[^'\x00\n]|'\\['!]')*'\n?){0,3}")
_KEY_ID = re.compile(rb"(?:-S[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*|-S)?\n?")
# For a line without blanks around it.
_OPTS_LINE = re.compile(
    rb"\[options\]|(?P<key>[a-z-]+)[ \t]*="
    rb'(?:[ \t]*"(?P<quoted>[^"\\\x00-\x1f]*)"|(?P<plain>[^"\\#;\x00-\x08\x0a-\x1f]*))'
)
_SEQUENCER_FLAGS = frozenset(
    b"no-commit edit allow-empty allow-empty-message keep-redundant-commits drop-redundant-commits "
    b"signoff record-origin allow-ff mainline allow-rerere-auto default-msg-cleanup "
    b"commit-use-reference".split()
)

_Rule = Callable[[bytes], bool]


def judge_operation_state(
    folder_name: str, before: Mapping[str, bytes] | None, after: Mapping[str, bytes]
) -> list[str]:
    """Judge the folder of an unfinished operation: its files by name, before and after the run.

    Only regular files belong into the mappings. A link or a folder in such a folder, except for
    what `rebase-merge/rewritten` is in old versions of git, must be refused by the caller.
    """
    rules = _FOLDERS.get(folder_name)
    if rules is None:
        return [f"unknown state of git: {folder_name}"]
    before = before or {}
    known_lines = Counter(_lines_of(before, _TODO))
    reasons: list[str] = []
    for name, data in sorted(after.items()):
        where = f"{folder_name}/{name}"
        rule = rules.get(name) or _numbered(folder_name, name)
        if before.get(name) == data or rule is _is_data:
            continue
        if len(data) > MAX_BYTES:
            reasons.append(f"{where} is too large")
        elif name in _TODO:
            reasons += _judge_todo(where, data, known_lines)
        elif rule is None:
            reasons.append(f"{where} is a file that git is not known to write")
        elif not rule(data):
            reasons.append(f"{where} could make git run a program")
    return reasons


def judge_state_file(name: str, before: bytes | None, after: bytes) -> list[str]:
    """Judge a file of an unfinished operation in the git dir itself, as MERGE_HEAD."""
    rule = _FILES.get(name)
    if before == after or (rule is not None and len(after) <= MAX_BYTES and rule(after)):
        return []
    return [f"{name} could make git run a program" if rule else f"unknown state of git: {name}"]


def _lines_of(files: Mapping[str, bytes], names: Iterable[str]) -> Iterable[bytes]:
    """Their lines without blanks around them, where git ends a line and where it does not."""
    for name in names:
        for line in re.split(rb"[\r\n\0]", files.get(name, b"")):
            if line.strip():
                yield line.strip()


def _judge_todo(where: str, data: bytes, known: Counter[bytes]) -> list[str]:
    """Each line must be a harmless command, or have been in one of the lists before."""
    for line, times in Counter(_lines_of({"": data}, [""])).items():
        if not _is_harmless_command(line) and times > known[line]:
            shown = line[:100].decode(errors="replace")
            text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
            return [f"{where} runs a program: {text}"]
    return []


def _is_harmless_command(line: bytes) -> bool:
    if not _STARTS_WORD.match(line):
        return True
    command, *rest = line.split(None, 2)
    if command not in _COMMANDS:
        return False
    argument = rest[0] if rest else b""
    if command in (b"update-ref", b"u"):
        return is_ref(argument)
    if command in (b"label", b"l"):
        return is_ref(b"refs/rewritten/" + argument)
    return True


def _is_data(_: bytes) -> bool:
    return True


def _is_commit(data: bytes) -> bool:
    return is_oid(data.strip())


def _are_commits(data: bytes) -> bool:
    return all(is_oid(word) for word in data.split())


def _is_branch(data: bytes) -> bool:
    name = data.strip()
    return name == b"detached HEAD" or is_ref(name)


def _are_refs(data: bytes) -> bool:
    return all(is_ref(word) or is_oid(word) for word in data.split())


def _is_symbolic(data: bytes) -> bool:
    return data.startswith(b"ref:") and is_ref(data[4:].strip())


def _is_strategy(data: bytes) -> bool:
    return data.strip(b"\n") in STRATEGIES


def _words(data: bytes) -> list[bytes] | None:
    if len(data) > _MOST_PARSED or not _QUOTED_WORDS.fullmatch(data):
        return None
    return [word.strip(b"'") for word in _QUOTED_WORD.findall(data)]


def _are_strategy_options(data: bytes) -> bool:
    words = _words(data)
    return words is not None and all(_STRATEGY_OPTION.fullmatch(word) for word in words)


def _are_apply_options(data: bytes) -> bool:
    words = _words(data)
    return words is not None and all(_APPLY_OPTION.fullmatch(word) for word in words)


def _are_plain_words(data: bytes) -> bool:
    return _words(data) is not None


def _is_author(data: bytes) -> bool:
    """Old versions of git put every line of it into the environment."""
    return len(data) <= _MOST_PARSED and _AUTHOR.fullmatch(data) is not None


def _is_key_id(data: bytes) -> bool:
    return _KEY_ID.fullmatch(data) is not None


def _are_sequencer_options(data: bytes) -> bool:
    if len(data) > _MOST_PARSED:
        return False
    for line in filter(None, map(bytes.strip, data.split(b"\n"))):
        match = _OPTS_LINE.fullmatch(line)
        if match is None:
            return False
        key = match["key"]
        value = (match["quoted"] or match["plain"] or b"").strip()
        if key is None or key in _SEQUENCER_FLAGS:
            continue
        if not _is_sequencer_option(key, value):
            return False
    return True


def _is_sequencer_option(key: bytes, value: bytes) -> bool:
    if key == b"strategy":
        return value in STRATEGIES
    if key == b"strategy-option":
        return _STRATEGY_OPTION.fullmatch(value) is not None
    return key == b"gpg-sign" and not value.startswith(b"-")


def _is_bisect_start(data: bytes) -> bool:
    name = data.strip()
    return is_oid(name) or is_ref(name) or (name[:1] != b"-" and is_ref(b"refs/heads/" + name))


def _are_terms(data: bytes) -> bool:
    return all(re.fullmatch(rb"[A-Za-z][A-Za-z0-9_-]*", line) for line in data.split())


def _are_conflicts(data: bytes) -> bool:
    """MERGE_RR: an id, a tab and a path that git writes to, each with a zero at its end."""
    records = data.split(b"\0")
    return records[-1] == b"" and all(
        re.match(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?(?:\.[0-9]+)?\t", record)
        and not is_unsafe(record.partition(b"\t")[2])
        for record in records[:-1]
    )


def _numbered(folder_name: str, name: str) -> _Rule | None:
    """The patches that git-am has yet to apply."""
    is_patch = folder_name == "rebase-apply" and re.fullmatch(r"[0-9]{4,}", name)
    return _is_data if is_patch else None


_TODO = ("git-rebase-todo", "git-rebase-todo.backup", "todo", "done")

# What builtin/rebase.c writes for both of its backends.
_REBASE: dict[str, _Rule] = {
    "head-name": _is_branch,
    "onto": _is_commit,
    "orig-head": _is_commit,
    "autostash": _is_commit,  # an argument of git stash
    "strategy": _is_strategy,
    "strategy_opts": _are_strategy_options,
    "gpg_sign_opt": _is_key_id,
    "author-script": _is_author,
    **dict.fromkeys(
        ("quiet", "verbose", "signoff", "allow_rerere_autoupdate", "reschedule-failed-exec",
         "no-reschedule-failed-exec", "patch", "rewritten"),
        _is_data,
    ),
}  # fmt: skip

_FOLDERS: dict[str, dict[str, _Rule]] = {
    "rebase-merge": {
        **_REBASE,
        "squash-onto": _is_commit,
        "stopped-sha": _are_commits,
        "amend": _are_commits,
        "rewritten-list": _are_commits,
        "rewritten-pending": _are_commits,
        "refs-to-delete": _are_refs,
        "update-refs": _are_refs,
        **dict.fromkeys(
            ("msgnum", "end", "interactive", "message", "message-squash", "message-fixup",
             "current-fixups", "drop_redundant_commits", "keep_redundant_commits",
             "cdate_is_adate", "ignore_date", "dropped"),
            _is_data,
        ),
    },
    "rebase-apply": {
        **_REBASE,
        "apply-opt": _are_apply_options,
        "original-commit": _are_commits,
        "patch-merge-index": _is_data,
        "rewritten": _are_commits,
        "abort-safety": _are_commits,
        **dict.fromkeys(
            ("next", "last", "threeway", "utf8", "keep", "messageid", "scissors", "quoted-cr",
             "rerere-autoupdate", "sign", "dirtyindex", "rebasing", "applying", "final-commit",
             "info", "msg", "msg-clean", "no_inbody_headers", "no-verify",
             "no_verify", "empty", "keep_cr", "patch-format"),
            _is_data,
        ),
    },
    "sequencer": {
        "head": _is_commit,
        "abort-safety": _are_commits,
        "opts": _are_sequencer_options,
    },
}  # fmt: skip

_FILES: dict[str, _Rule] = {
    "MERGE_HEAD": _are_commits,
    "CHERRY_PICK_HEAD": _are_commits,
    "REVERT_HEAD": _are_commits,
    "REBASE_HEAD": _are_commits,
    "ORIG_HEAD": _are_commits,
    "AUTO_MERGE": _are_commits,
    "BISECT_HEAD": _are_commits,
    "BISECT_EXPECTED_REV": _are_commits,
    "MERGE_AUTOSTASH": _is_commit,
    "NOTES_MERGE_PARTIAL": _are_commits,
    "NOTES_MERGE_REF": _is_symbolic,
    "MERGE_RR": _are_conflicts,
    "BISECT_START": _is_bisect_start,  # an argument of git checkout
    "BISECT_TERMS": _are_terms,
    "BISECT_NAMES": _are_plain_words,  # old versions of git evaluate it in a shell
    **dict.fromkeys(
        ("MERGE_MSG", "MERGE_MODE", "SQUASH_MSG", "COMMIT_EDITMSG", "TAG_EDITMSG",
         "NOTES_EDITMSG", "FETCH_HEAD", "BISECT_LOG", "BISECT_ANCESTORS_OK",
         "BISECT_FIRST_PARENT", "ADD_EDIT.patch"),
        _is_data,
    ),
}  # fmt: skip
