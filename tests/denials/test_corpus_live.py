"""The recorded commands, run for real through a daemon: precision and recall by kind.

`fs: workspace` showed the whole root read-only, the corpus included: here that is `base: host` with
the corpus allowed for reading. The files lie in the user's real home folder, because under the
minimal base a folder in /tmp would be the sandbox's own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from denials import corpus
from denials.scoring import Score
from support.daemon import Daemon, running_daemon

from sandboxd.denials.text.command_line import CommandLine
from sandboxd_proto.denial import Denial

pytestmark = [
    pytest.mark.requires("bubblewrap", "unprivileged"),
    pytest.mark.timeout(300),
]
PATH = "/usr/local/bin:/usr/bin:/bin"
PRECISION, RECALL = 0.97, 0.90
EXPLAINED_PRECISION, EXPLAINED_RECALL = 0.97, 0.97
# max_processes counts processes here: node runs in six.
_THREADS = frozenset({110})
# Not a program of any machine.
_MISSING_ON_PURPOSE = "no-such-command-xyz"
_BUILTINS = frozenset(
    ("", ":", "cd", "do", "done", "echo", "exec", "exit", "false", "for", "kill", "seq", "sleep",
     "test", "true", "ulimit", "wait", "while")
)  # fmt: skip


@dataclass(frozen=True)
class Live:
    daemon: Daemon
    root: Path


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    home = pwd.getpwuid(os.getuid()).pw_dir
    folder = Path(tempfile.mkdtemp(prefix="sandboxd-corpus-", dir=home)).resolve()
    try:
        with running_daemon() as daemon:
            yield Live(daemon, folder / "corpus")
    finally:
        # locked.txt and its like
        for path, folders, _ in os.walk(folder):
            for name in folders:
                os.chmod(os.path.join(path, name), 0o700)
        shutil.rmtree(folder, ignore_errors=True)


class Files:
    """The corpus, laid out again only after a command that has changed something."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._clean: dict[str, tuple[int, ...]] | None = None

    def restore(self) -> None:
        if self._clean is None or self._seen() != self._clean:
            corpus.lay_out(self._root)
            self._clean = self._seen()

    def _seen(self) -> dict[str, tuple[int, ...]]:
        found = {}
        for folder, _, names in os.walk(self._root):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                status = os.lstat(path)
                found[path] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino)
        return found


def why_not_run(record: corpus.Record) -> str | None:
    if "max_as_bytes" in record.manifest or record.id in _THREADS:
        return "a limit that sandboxd does not have: of addresses, of threads"
    if record.belongs_to_recording is not None:
        return record.belongs_to_recording
    for simple in CommandLine(record.argv).simple:
        name = simple.program
        known = name in _BUILTINS or name == _MISSING_ON_PURPOSE or "=" in name
        if not known and shutil.which(name, path=PATH) is None and not name.endswith(".sh"):
            return "a program that this machine lacks"
    return None


def request(record: corpus.Record, root: Path, *, explain: bool) -> dict[str, Any]:
    manifest = record.manifest_to_run()
    if record.manifest["fs"] == "workspace":
        manifest["fs_read_allow"] = [str(root)]
    manifest["env"] = [["PATH", PATH], ["HOME", str(root / "home")], ["LANG", "C.UTF-8"]]
    return {
        "argv": list(record.argv),
        "cwd": str(root / "ws"),
        "manifest": manifest,
        "explain": explain,
    }


def score(live: Live, *, explain: bool) -> Score:
    """Each command on files that no other one has changed."""
    found, skipped, files = Score(), Counter[str](), Files(live.root)
    with live.daemon.connect(timeout_s=60) as connection:
        for original in corpus.records():
            why = why_not_run(original)
            if why is not None:
                skipped[why] += 1
                continue
            files.restore()
            record = original.moved_to(str(live.root))
            result = connection.call("execute", request(record, live.root, explain=explain))
            denials = msgspec.convert(result["denials"], list[Denial])
            found.add(record, denials, exit_code=result["exit_code"])
    assert "Traceback" not in live.daemon.log, live.daemon.log
    print(f"\nexplain: {explain}; not run: {skipped.total()} ({dict(skipped)})\n{found.table()}")
    return found


def test_denials_of_real_runs_are_right(live: Live) -> None:
    found = score(live, explain=False)
    assert found.precision >= PRECISION, found.table()
    assert found.recall >= RECALL, found.table()


def test_with_explain_they_are_right_still_more_often(live: Live) -> None:
    found = score(live, explain=True)
    assert found.precision >= EXPLAINED_PRECISION, found.table()
    assert found.recall >= EXPLAINED_RECALL, found.table()
