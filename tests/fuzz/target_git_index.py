"""Git indexes: read or refused, with an output that is bounded by the input."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fuzz.driver import Target

from sandboxd.policy.protected import git_index_parser


@cache
def seeds() -> Sequence[bytes]:
    """Indexes that git wrote: versions 2, 3 and 4, split, and with names of many lengths."""
    made: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        env = {"PATH": os.environ["PATH"], "HOME": folder, "GIT_CONFIG_NOSYSTEM": "1"}

        def git(*words: str) -> None:
            subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True)

        git("init", "-q")
        for name in ("a", "b/c", "b/d", "b/" + "long" * 40, "run.sh"):
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(name)
        for version in ("2", "4"):
            git("update-index", "--index-version", version)
            git("add", "-A")
            made.append(Path(folder, ".git/index").read_bytes())
        git("update-index", "--index-version", "2", "--skip-worktree", "a")
        made.append(Path(folder, ".git/index").read_bytes())
        git("update-index", "--split-index")
        made.append(Path(folder, ".git/index").read_bytes())
    return made


def check(data: bytes) -> None:
    signed = data[:-20] + hashlib.sha1(data[:-20]).digest()
    for candidate in (data, signed):
        for hash_bytes in (20, 32):
            try:
                index = git_index_parser.parse(candidate, hash_bytes)
            except git_index_parser.GitIndexError:
                continue
            assert len(index.entries) * 40 <= len(candidate)
            assert all(len(entry.path) <= git_index_parser.MAX_PATH for entry in index.entries)


TARGET = Target("git_index", seeds, check, words=(b"DIRC", b"link", b"\xe0\0", b"../x\0", b"TREE"))
