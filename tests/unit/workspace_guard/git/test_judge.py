"""Judging the index, HEAD and config; the harmful indexes do make git run a program."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from sandboxd.policy.protected.git_index_parser import gitlinks
from sandboxd.workspace_guard.git.judge import (
    judge_config,
    judge_head,
    judge_index,
    judge_ref,
)
from sandboxd.workspace_guard.git.ref_names import is_unsafe


def index(*entries: tuple[bytes, int], oid: bytes = b"\1" * 20, more: bytes = b"") -> bytes:
    data = b"DIRC\0\0\0\2" + len(entries).to_bytes(4, "big")
    for name, mode in entries:
        data += bytes(24) + mode.to_bytes(4, "big") + bytes(12) + oid
        data += len(name).to_bytes(2, "big") + name + bytes(8 - (62 + len(name)) % 8)
    data += more
    return data + hashlib.sha1(data, usedforsecurity=False).digest()


def judge(before: bytes | None, after: bytes, *harmful: bytes, shared: bytes = b"") -> list[str]:
    return judge_index(
        before,
        after,
        hash_bytes=20,
        is_harmful_repository=lambda path: path in harmful,
        shared=lambda oid: shared or None,
    )


FILE, LINK, REPO, FOLDER = 0o100644, 0o120000, 0o160000, 0o040000


def _trap(folder: Path) -> None:
    """A repository whose fsmonitor writes `pwned` beside it."""
    subprocess.run(["git", "init", "-q", folder], check=True)
    program = folder.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {folder.parent}/pwned\n")
    program.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", program], cwd=folder, check=True)
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-mx"],
        cwd=folder,
        check=True,
    )
    (folder.parent / "pwned").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("path", "where"), [(b"sub", "top/sub"), (b"../trap", "trap"), (b"a/../sub", "top/sub")]
)
@pytest.mark.parametrize("mode", [0o160000, 0o160755])
def test_a_path_into_a_harmful_repository(
    tmp_path: Path, path: bytes, where: str, mode: int
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "a").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=top, check=True)
    _trap(tmp_path / where)
    after = index((path, mode))
    (top / ".git/index").write_bytes(after)
    assert len(judge(None, after, path)) == 1
    assert len(judge(index(), after, path)) == 1
    assert len(judge(index((path, FILE)), after, path)) == 1
    assert judge(after, after, path) == []
    subprocess.run(["git", "status"], cwd=top, capture_output=True)
    assert list(tmp_path.rglob("pwned")), "git does not run it: the case shows nothing"


def test_a_path_into_a_harmless_repository() -> None:
    assert judge(None, index((b"sub", REPO), (b"file", FILE), (b"link", LINK))) == []
    assert gitlinks(index((b"sub", REPO), (b"f", FILE)), 20, lambda _: None) == [b"sub"]


UNSAFE = [
    b"", b"..", b"../x", b"a/../b", b"a/..", b".", b"./a", b"a/./b", b"/etc/passwd", b"a//b", b"a/",
    b".git", b".git/config", b"a/.git/hooks/x", b".GIT/x", b".gIt", b".git /x", b".git./x",
    b".git. . /x", b"git~1/x", b"GIT~1", b"a/git~1", b".git::$INDEX_ALLOCATION/x", b".git:x",
    b"a\\.git\\config", b".git\\config",
    ".g\u200cit/x".encode(), "\u200c.git".encode(), ".git\u206f".encode(), "\ufeff.git".encode(),
    ".G\u202aI\u200eT/x".encode(),
]  # fmt: skip
SAFE = [
    b"a", b".gitignore", b".github/x", b".gitmodules", b"git", b"a.git/x", b"x/.gitkeep",
    b"git~2", b"...", b"..a", b"a..", b"a b", b"a\\b", b"\xff\xfe", "\u200c".encode(), b".git-x",
]  # fmt: skip


@pytest.mark.parametrize("path", UNSAFE)
def test_unsafe_paths(path: bytes) -> None:
    assert is_unsafe(path)
    assert len(judge(None, index((b"a", FILE), (path, FILE)))) == 1
    assert judge(index((path, FILE)), index((path, FILE), (b"z", FILE))) == []


@pytest.mark.parametrize("path", SAFE)
def test_safe_paths(path: bytes) -> None:
    assert not is_unsafe(path)
    assert judge(None, index((path, FILE))) == []


def test_git_refuses_the_unsafe_paths_too(tmp_path: Path) -> None:
    """git update-index checks a path; reading an index does not."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)

    def accepted(path: bytes) -> bool:
        command = [b"git", b"-c", b"core.protectHFS=true", b"-c", b"core.protectNTFS=true"]
        command += [b"update-index", b"--add", b"--cacheinfo", b"100644," + b"1" * 40 + b"," + path]
        return subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0

    assert [path for path in UNSAFE if accepted(path)] == []
    assert [path for path in SAFE if not accepted(path)] == []


def test_modes_and_damage() -> None:
    assert judge(None, index((b"a", 0o100777)))
    assert judge(None, index((b"a", 0o140000)))
    assert judge(None, b"")
    assert judge(index(), index()[:-1])


def test_sparse_folders_ask_about_everything_below() -> None:
    after = index((b"a/", FOLDER), more=b"sdir\0\0\0\0")
    assert judge(None, after) == []
    assert len(judge(None, after, b"a/")) == 1
    assert judge(after, after, b"a/") == []
    other = index((b"a/", FOLDER), oid=b"\2" * 20, more=b"sdir\0\0\0\0")
    assert len(judge(after, other, b"a/")) == 1
    assert judge(None, index((b"../", FOLDER), more=b"sdir\0\0\0\0"))
    assert judge(None, index((b"a", FOLDER), more=b"sdir\0\0\0\0"))


def test_a_shared_index_that_was_rewritten() -> None:
    """Git believes the checksum that stands in the file; the index itself need not change."""
    base = index((b"a", FILE))
    after = index(more=b"link\0\0\0\x14" + base[-20:])
    assert judge(None, after, shared=base) == []
    forged = index((b"../x", REPO))[:-20] + base[-20:]
    assert judge(after, after, shared=forged)
    assert judge(None, after)
    assert judge(None, after, shared=index((b"b", FILE)))


OID = b"0123456789" * 4


@pytest.mark.parametrize(
    ("data", "harmless"),
    [
        (b"ref: refs/heads/main\n", True),
        (b"ref: refs/heads/a/b.c", True),
        (b"ref:refs/heads/main", True),
        (b"ref: refs/heads/.invalid\n", True),
        (b"ref: refs/heads/.other\n", False),
        (OID + b"\n", True),
        (OID + b"0" * 24 + b"\n", True),
        (b"", False),
        (b"\n", False),
        (b"ref: HEAD\n", False),
        (b"ref: refs/heads/../../config\n", False),
        (b"ref: ../x\n", False),
        (b"ref: refs/heads/a.lock\n", False),
        (b"ref: refs/heads/a\nmore\n", False),
        (b"ref: refs/heads/\n", False),
        (b"ref: refs//x\n", False),
        (b"ref: refs/heads/a b\n", False),
        (b"gitdir: x\n", False),
        (OID[:-1] + b"\n", False),
        (OID + b"\nx", False),
    ],
)
def test_head(data: bytes, harmless: bool) -> None:
    for judge_one in (judge_head, judge_ref):
        assert (judge_one(None, data) == []) == harmless
        assert judge_one(data, data) == []


def test_config() -> None:
    plain = b"[core]\n\tbare = false\n"
    assert judge_config(None, plain) == []
    assert judge_config(None, plain + b"\tfsmonitor = x\n") == ["the config sets core.fsmonitor"]
    assert judge_config(plain + b"\tfsmonitor = x\n", plain + b"\tfsmonitor = x\n\n") == []
    assert judge_config(plain + b"\tfsmonitor = x\n", plain + b"\tfsmonitor = y\n") != []
    assert judge_config(plain, plain + b'[alias]\n\tx = "!y"\n') != []
    moved = b"[user]\n\tpath = x\n", b"[include]\n\tpath = x\n"
    assert judge_config(*moved) == ["the config sets include.path"]
