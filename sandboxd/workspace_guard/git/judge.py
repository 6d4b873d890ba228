"""Judges files of git that a command changed: the reasons why git would run a program.

Pure functions over the bytes before and after. An empty list means that the change is harmless. A
file that cannot be read is harmful. `operation` judges rebases and other unfinished work.
"""

from __future__ import annotations

from collections.abc import Callable

from sandboxd.policy.protected import git_config, git_index_parser
from sandboxd.policy.protected.git_index_parser import GitIndexError, IndexEntry, SharedIndex
from sandboxd.workspace_guard.git import ref_names
from sandboxd.workspace_guard.git.operation import judge_operation_state, judge_state_file

__all__ = [
    "judge_config", "judge_head", "judge_index", "judge_operation_state", "judge_ref",
    "judge_state_file", "shared_name",
]  # fmt: skip

_MOST_REASONS = 20
_MODES = frozenset(
    {
        git_index_parser.REGULAR,
        git_index_parser.EXECUTABLE,
        git_index_parser.SYMLINK,
        git_index_parser.GITLINK,
    }
)
# What HEAD says in a repository whose refs are in a reftable.
_REFTABLE_HEAD = b"refs/heads/.invalid"

_Key = tuple[bytes, int] | tuple[bytes, int, bytes]


def judge_index(
    before: bytes | None,
    after: bytes,
    *,
    hash_bytes: int,
    is_harmful_repository: Callable[[bytes], bool],
    shared: SharedIndex,
) -> list[str]:
    """Judge the entries that were not there before.

    `shared` returns the bytes of `sharedindex.<id>` for an id in hexadecimal. It is asked about
    the present files only: a shared index that the command rewrote fails its checksum.

    `is_harmful_repository` gets a path in the work tree, which it resolves as git does, following
    links. A path with a slash at its end is a folder of a sparse index, whose contents are in
    objects: the answer is then about every repository below that folder.
    """
    if before == after and not git_index_parser.may_be_split(after):
        return []
    try:
        entries = git_index_parser.all_entries(after, hash_bytes, shared)
    except GitIndexError as error:
        return [f"the index cannot be read: {error}"]
    known: set[_Key] = set()
    if before is not None:
        try:
            known = set(map(_key, git_index_parser.all_entries(before, hash_bytes, shared)))
        except GitIndexError:
            known = set()  # everything counts as added
    reasons: list[str] = []
    for entry in entries:
        if known and _key(entry) in known:
            continue
        reason = _judge_entry(entry, is_harmful_repository)
        if reason:
            reasons.append(reason)
            if len(reasons) >= _MOST_REASONS:
                break
    return reasons


def shared_name(data: bytes, hash_bytes: int) -> bytes | None:
    """The id of the base of a split index; None if it is whole, or cannot be read."""
    if not git_index_parser.may_be_split(data):
        return None
    try:
        return git_index_parser.parse(data, hash_bytes).shared
    except GitIndexError:
        return None


def judge_head(before: bytes | None, after: bytes) -> list[str]:
    """HEAD names a ref or a commit. With any other content git looks for another repository."""
    if before == after or _is_head(after):
        return []
    return ["HEAD is neither a ref below refs/ nor a commit"]


def judge_ref(before: bytes | None, after: bytes) -> list[str]:
    """A file below refs/ holds a commit's id or the name of another ref."""
    if before == after or _is_head(after):
        return []
    return ["a ref is neither a commit nor the name of a ref below refs/"]


def judge_config(before: bytes | None, after: bytes) -> list[str]:
    """Settings that were not there before and could make git run a program."""
    if before == after or git_config.harmless(after):
        return []
    if len(after) > git_config.MAX_BYTES:
        return ["the config is too large"]
    added = git_config.doubtful(after)
    if added is None:
        return ["the config has lines in an unusual form"]
    if before is not None:
        known = set(git_config.entries(before.decode(errors="surrogateescape")))
        added = [setting for setting in added if setting not in known]
    keys = list(dict.fromkeys(key for key, _ in added))
    return [f"the config sets {_printable(key)}" for key in keys[:_MOST_REASONS]]


def _key(entry: IndexEntry) -> _Key:
    """What makes an entry the same: a changed blob does not count, a changed kind does."""
    path, mode, _, oid, _ = entry
    return (path, mode, oid) if mode == git_index_parser.FOLDER else (path, mode)


def _judge_entry(entry: IndexEntry, is_harmful_repository: Callable[[bytes], bool]) -> str | None:
    path, mode = entry.path, entry.mode
    name = _printable(path)
    if mode == git_index_parser.FOLDER:
        if not path.endswith(b"/") or ref_names.is_unsafe(path[:-1]):
            return f"the index has an unsafe path: {name}"
        if is_harmful_repository(path):
            return f"the index leads git into a repository that runs programs, below {name}"
        return None
    if ref_names.is_unsafe(path):
        return f"the index has an unsafe path: {name}"
    if git_index_parser.is_gitlink(mode) and is_harmful_repository(path):
        return f"the index leads git into a repository that runs programs: {name}"
    if mode not in _MODES:
        return f"the index has an unknown mode, {mode:o}, for {name}"
    return None


def _is_head(data: bytes) -> bool:
    if data.startswith(b"ref:"):
        name = data[4:].strip(b" \t\n\r\v\f")
        return name == _REFTABLE_HEAD or ref_names.is_ref(name)
    return ref_names.is_oid(data.rstrip(b"\n"))


def _printable(name: bytes | str) -> str:
    text = name.decode(errors="replace") if isinstance(name, bytes) else name
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return shown if len(shown) <= 200 else shown[:200] + "…"
