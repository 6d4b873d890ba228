"""Judge the index of a protected git dir when it has changed: at most once for each version
while a command runs, and by its content at the end and by the guard's clock.

A large one is read and judged in a thread (`needs_thread`).
"""

from __future__ import annotations

import hashlib
import os
import stat
import time

from sandboxd.policy.protected import git_index_parser
from sandboxd.policy.protected.git_index_parser import GitIndexError
from sandboxd.workspace_guard import snapshot
from sandboxd.workspace_guard.dirfd import is_distrusted, is_gone, open_root, read_file, stat_at
from sandboxd.workspace_guard.git import judge
from sandboxd.workspace_guard.git.planned_git import PlannedGit
from sandboxd.workspace_guard.git.repository import harmful_check, hash_bytes, work_tree
from sandboxd.workspace_guard.quarantine.quarantine import (
    Moved,
    Offence,
    Quarantine,
    Undo,
    move_aside,
    put_back,
)
from sandboxd.workspace_guard.run_clock import COARSE_NS
from sandboxd.workspace_guard.snapshot import Node

MOST_BYTES = 128 << 20
_LIGHT_BYTES = 64 << 10
_READ_AT_ONCE = 1 << 20
_MOST_LINKS = 1024
_NAME = "index"

_Version = tuple[int, ...]


class GitIndexFile:
    """Make it before the command starts. `elder`: that of a command which runs already, and may
    have changed the index since."""

    def __init__(
        self, folder: int, path: str, planned: PlannedGit, elder: GitIndexFile | None = None
    ) -> None:
        self._elder = elder
        self._folder = folder
        self._path = os.path.join(path, _NAME)
        self._git_dir = path
        self._planned = planned
        self._status_before = self._status()
        self._base_name: str | None = None  # of a split index
        self._base_version: _Version | None = None
        self._base_before: tuple[str, Node] | None = None
        self._version_before = self._judged_version = self._final_version(self._status_before)
        self._harmless_digest = b""  # of the content that was judged last
        self._data_before: bytes | None = None
        self._empty_links: list[bytes] = []
        self._has_new_links = False
        self.large = self._status_before is not None and self._status_before.st_size > _READ_AT_ONCE
        if self._status_before is not None and not self.large:
            self.prepare()

    def follow(self, git_dir: str, planned: PlannedGit) -> None:
        """The git dir is at another path now: the index is judged again."""
        self._git_dir, self._planned = git_dir, planned
        self._judged_version, self._harmless_digest = None, b""

    def prepare(self) -> None:
        """Read what it is before the run; for a large one in a thread, while the command starts.

        If the command changes it first, everything in the new one is judged.
        """
        data = read_file(self._folder, _NAME, MOST_BYTES)
        if data is None or _version(self._status()) != _version(self._status_before):
            return
        elder, self._elder = self._elder, None
        if elder is not None and self._is_doubtful(data, elder):
            self._take_over(elder)
            return
        self._data_before = data
        self._keep_base(data)
        if git_index_parser.LINK_MODE in data or self._base_name is not None:
            tree = work_tree(self._folder, self._git_dir)
            self._empty_links = [
                link for link in self._gitlinks(data) if not _is_populated(tree, link)
            ]

    def _is_doubtful(self, data: bytes, elder: GitIndexFile) -> bool:
        """Whether this may be harmful, and have been written by the command of `elder`."""
        if data == elder._data_before and elder._base_before is None:
            return False
        reasons = self._added(elder._data_before, data)
        return bool(reasons) or self._has_new_links

    def _take_over(self, elder: GitIndexFile) -> None:
        """What was before that command counts; what is there now is judged."""
        self._data_before, self._status_before = elder._data_before, elder._status_before
        self._base_before, self._empty_links = elder._base_before, elder._empty_links
        self._version_before = self._judged_version = None

    def _keep_base(self, data: bytes) -> None:
        name = judge.shared_name(data, hash_bytes(self._folder))
        if name is None:
            return
        status = self._status(f"sharedindex.{name.decode()}")
        content = self._shared(name)
        if status is not None and self._base_name is not None:
            node = Node(status, content)
            node.whole = content is not None
            self._base_before = (self._base_name, node)
        self._version_before = self._judged_version = self._version_before and self._with_base(
            self._version_before
        )

    def _gitlinks(self, data: bytes) -> list[bytes]:
        try:
            size = hash_bytes(self._folder)
            return git_index_parser.gitlinks(data, size, self._shared)[:_MOST_LINKS]
        except GitIndexError:
            return []

    @property
    def unchanged(self) -> bool:
        """Whether nothing was written to it. False with links to folders where a repository could
        be made unnoticed."""
        return not self._empty_links and self._is_as_before(self._status())

    def _is_as_before(self, now: os.stat_result | None) -> bool:
        return self._version_before is not None and self._version(now) == self._version_before

    def forget(self) -> None:
        """Judge what was written by its content again: through a mapping it can change while its
        version stays the same."""
        if not self._is_as_before(self._status()):
            self._judged_version = None

    @property
    def needs_thread(self) -> bool:
        """A link leads into other repositories, whose indexes are read too."""
        now = self._status()
        if now is None or self._version(now) == self._judged_version:
            return False
        return now.st_size > _LIGHT_BYTES or git_index_parser.LINK_MODE in (
            read_file(self._folder, _NAME, _LIGHT_BYTES) or b""
        )

    def judge(self, *, finished: bool) -> list[Offence]:
        if not finished:
            return self._judge()
        self.forget()
        return self._judge_new_repositories() + self._judge()

    def _judge_new_repositories(self) -> list[Offence]:
        """Repositories that were made where the index already had a link to one."""
        tree = os.path.realpath(work_tree(self._folder, self._git_dir))
        is_harmful = harmful_check(tree, self._git_dir, self._planned)
        places = [
            os.path.join(tree, os.fsdecode(link)) for link in self._empty_links if is_harmful(link)
        ]
        return [Offence(f"{place}/.git", True, _remove(place), "git enters it") for place in places]

    def _judge(self) -> list[Offence]:
        now = self._status()
        if now is None or self._version(now) == self._judged_version:
            return []
        self._base_name = None
        certain = self._final_version(now)  # before it is read
        reasons = self._reasons(now)
        if not reasons:
            # The target of a new link can become harmful while the index stays the same.
            self._judged_version = (
                None if self._has_new_links else certain and self._with_base(certain)
            )
            return []
        before = (
            Node(self._status_before, self._data_before)
            if self._status_before is not None
            else None
        )
        if before is not None:
            before.whole = self._data_before is not None
        undo = put_back(self._folder, _NAME, self._path, before)
        return [Offence(self._path, True, undo, reasons[0]), *self._judge_base()]

    def _judge_base(self) -> list[Offence]:
        """A changed base of a split index is undone together with the index."""
        name, before = self._base_before or (self._base_name, None)
        if name is None or (before and snapshot.same(self._folder, name, before)):
            return []
        path = os.path.join(self._git_dir, name)
        undo = put_back(self._folder, name, path, before)
        return [Offence(path, True, undo, "the base of that index")]

    def _reasons(self, now: os.stat_result) -> list[str]:
        try:
            return self._judge_content(now)
        except Exception as error:  # unreadable: counts as harmful
            return [f"the index cannot be judged: {error}"]

    def _judge_content(self, now: os.stat_result) -> list[str]:
        if not stat.S_ISREG(now.st_mode):
            return ["the index is no plain file"]
        data = read_file(self._folder, _NAME, MOST_BYTES)
        if data is None:
            return [] if is_gone(self._folder, _NAME) else ["the index cannot be read"]
        digest = b"" if git_index_parser.may_be_split(data) else hashlib.sha256(data).digest()
        if digest and digest == self._harmless_digest and not self._has_new_links:
            return []
        reasons = self._added(self._data_before, data)
        self._harmless_digest = b"" if reasons else digest
        return reasons

    def _added(self, before: bytes | None, data: bytes) -> list[str]:
        """Why what was added is harmful."""
        tree = work_tree(self._folder, self._git_dir)
        is_harmful = harmful_check(tree, self._git_dir, self._planned)
        self._has_new_links = False

        def is_harmful_repository(path: bytes) -> bool:
            self._has_new_links = True
            return is_harmful(path)

        return judge.judge_index(
            before, data, hash_bytes=hash_bytes(self._folder),
            is_harmful_repository=is_harmful_repository, shared=self._shared,
        )  # fmt: skip

    def _shared(self, name: bytes) -> bytes | None:
        """Git does not check what it reads there: each version of that file is judged."""
        self._base_name = f"sharedindex.{name.decode()}"
        status = self._status(self._base_name)
        self._base_version = _version(status) if _is_past(status) else None
        return read_file(self._folder, self._base_name, MOST_BYTES)

    def _version(self, status: os.stat_result | None) -> _Version | None:
        """Of the index and, for a split one, of its base as it is now."""
        version = _version(status)
        return version + _version(self._status(self._base_name)) if self._base_name else version

    def _with_base(self, version: _Version) -> _Version | None:
        if self._base_name is None:
            return version
        return version + self._base_version if self._base_version is not None else None

    def _final_version(self, status: os.stat_result | None) -> _Version | None:
        """The version, or None if it can be written again without a change of its times."""
        return _version(status) if _is_past(status) else None

    def _status(self, name: str = _NAME) -> os.stat_result | None:
        return stat_at(self._folder, name)


def _is_populated(tree: str, link: bytes) -> bool:
    return os.path.lexists(os.path.join(tree, os.fsdecode(link), ".git"))


def _remove(place: str) -> Undo:
    def undo(quarantine: Quarantine) -> Moved:
        path = os.path.join(place, ".git")
        try:
            folder = open_root(place)
        except OSError as error:
            return Moved(path, None, os.strerror(error.errno or 0))
        try:
            return move_aside(folder, ".git", path)(quarantine)
        finally:
            os.close(folder)

    return undo


def _is_past(status: os.stat_result | None) -> bool:
    if status is None:
        return True
    past = status.st_ctime_ns < time.time_ns() - COARSE_NS
    return past and not is_distrusted(status.st_dev)


def _version(status: os.stat_result | None) -> _Version:
    """ctime is set by the kernel: a command cannot set it back."""
    if status is None:
        return ()
    return status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size
