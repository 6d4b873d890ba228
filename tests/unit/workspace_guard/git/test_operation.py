"""Unfinished operations: what git leaves is harmless; what makes `--continue` run a program is not.

Each harmful case is continued with git as well, which shows that it does run the program.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandboxd.workspace_guard.git.judge import judge_operation_state, judge_state_file

FOLDERS = ("rebase-merge", "rebase-apply", "sequencer")


@dataclass
class Repo:
    """A repository with two commits on `main` and three on `topic`, which conflict."""

    path: Path

    def git(self, *arguments: str, fails: bool = False, **more: str) -> str:
        who = {f"GIT_{w}_{x}": "A'B!" for w in ("AUTHOR", "COMMITTER") for x in ("NAME", "EMAIL")}
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.path),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_EDITOR": "true",
            **who,
            **more,
        }
        done = subprocess.run(
            ["git", *arguments], cwd=self.path, env=environment, capture_output=True, text=True
        )
        assert fails or done.returncode == 0, done.stderr
        return done.stdout

    def commit(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)
        self.git("add", name)
        self.git("commit", "-qm", f"{name} {text}")

    def state(self, folder: str) -> dict[str, bytes]:
        where = self.path / ".git" / folder
        return {p.name: p.read_bytes() for p in where.iterdir()} if where.is_dir() else {}

    def judge(self, before: dict[str, dict[str, bytes]] | None = None) -> list[str]:
        return [
            reason
            for folder in FOLDERS
            for reason in judge_operation_state(
                folder, (before or {}).get(folder), self.state(folder)
            )
        ]

    def judge_files(self) -> list[str]:
        """The files in capitals in the git dir itself."""
        return [
            reason
            for path in (self.path / ".git").iterdir()
            if path.is_file() and path.name.isupper() and path.name != "HEAD"
            for reason in judge_state_file(path.name, None, path.read_bytes())
        ]

    @property
    def pwned(self) -> Path:
        return self.path / "pwned"

    def program(self, name: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {self.pwned}\n")
        path.chmod(0o755)

    def settle(self) -> None:
        """Resolve the conflict, as a user does before `--continue`."""
        for path in (self.path / "f", self.path / "g"):
            path.write_text("settled")
        self.git("add", "f", "g")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo(tmp_path)
    repo.git("init", "-q", "-b", "main")
    repo.commit("f", "0")
    repo.commit("g", "0")
    repo.git("checkout", "-qb", "topic")
    for text in ("1", "2", "3"):
        repo.commit("f", text)
    repo.commit("h", "0")
    repo.git("checkout", "-q", "main")
    repo.commit("f", "main")
    repo.git("branch", "side", "topic~1")
    return repo


def rebase(repo: Repo, *options: str) -> None:
    repo.git("checkout", "-q", "topic")
    repo.git("rebase", *options, "main", fails=True)


def cherry_pick(repo: Repo, *options: str) -> None:
    repo.git("cherry-pick", *options, "topic~3..topic", fails=True)


def revert(repo: Repo) -> None:
    repo.git("checkout", "-q", "topic")
    repo.git("revert", "--no-edit", "topic~3", "topic~2", fails=True)


def am(repo: Repo, *options: str) -> None:
    repo.git("format-patch", "-q", "-o", ".git/patches", "main..topic")
    patches = sorted(str(p) for p in (repo.path / ".git/patches").iterdir())
    repo.git("am", *options, *patches, fails=True)


def merges(repo: Repo) -> None:
    repo.git("checkout", "-q", "topic")
    repo.git("checkout", "-qb", "third", "main~1")
    repo.commit("k", "0")
    repo.git("checkout", "-q", "topic")
    repo.git("merge", "-q", "--no-edit", "third")
    repo.git("rebase", "--rebase-merges", "--update-refs", "main", fails=True)


def autostash(repo: Repo) -> None:
    repo.git("checkout", "-q", "topic")
    (repo.path / "g").write_text("dirty")
    repo.git("rebase", "--autostash", "main", fails=True)


def bisect(repo: Repo) -> None:
    repo.git("checkout", "-q", "topic")
    repo.git("bisect", "start", "topic", "topic~3", "--", "f", "a file", "it's")


def merge(repo: Repo) -> None:
    repo.git("config", "rerere.enabled", "true")
    repo.git("merge", "topic", fails=True)


HARMLESS: dict[str, Callable[[Repo], None]] = {
    "rebase": rebase,
    "rebase with options": lambda r: rebase(
        r, "-s", "ort", "-Xpatience", "-Xfind-renames=40%", "--signoff", "-q", "--no-autosquash"
    ),
    "rebase of dates": lambda r: rebase(r, "--ignore-date", "--committer-date-is-author-date"),
    "rebase with a strategy": lambda r: rebase(r, "-s", "resolve", "-S1234ABCD"),
    "rebase interactively": lambda r: rebase(r, "-i", "--keep-empty", "--rerere-autoupdate"),
    "rebase by patches": lambda r: rebase(r, "--apply", "--whitespace=fix", "-C1"),
    "rebase the root": lambda r: rebase(r, "--root", "--onto"),
    "rebase with merges": merges,
    "rebase with a stash": autostash,
    "cherry-pick": cherry_pick,
    "cherry-pick with options": lambda r: cherry_pick(
        r, "-x", "-s", "--strategy=ort", "-Xpatience", "-Xsubtree=a", "--keep-redundant-commits"
    ),
    "revert": revert,
    "am": am,
    "am with options": lambda r: am(r, "-3", "-s", "-k", "--whitespace=fix", "--exclude=x y"),
    "bisect": bisect,
    "merge": merge,
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_git_leaves_is_harmless(repo: Repo, name: str) -> None:
    HARMLESS[name](repo)
    assert any(repo.state(f) for f in FOLDERS) or name in ("bisect", "merge")
    assert repo.judge() == []
    assert repo.judge_files() == []


def plant(repo: Repo, name: str, data: str) -> None:
    (repo.path / ".git" / name).write_text(data)


def todo(repo: Repo, text: str, name: str = "rebase-merge/git-rebase-todo") -> None:
    plant(repo, name, text)


TOUCH = "touch pwned"
# Each: how the operation starts, what is planted, and how the user goes on.
HARMFUL: dict[str, tuple[Callable[[Repo], None], Callable[[Repo], None], tuple[str, ...]]] = {
    **{
        f"todo {line!r}": (
            rebase,
            lambda r, line=line: todo(r, line),
            ("rebase", "--continue"),
        )
        for line in (
            f"exec {TOUCH}\n",
            f"x {TOUCH}",
            f" \t exec\t{TOUCH}\n",
            f"exec {TOUCH}\r\n",
            f"# comment\n\n\nx\t {TOUCH}\n",
            f"noop\r\nx {TOUCH}\n",
        )
    },
    "a strategy by its path": (
        rebase,
        lambda r: (
            r.program("d/x"),
            (r.path / "git-merge-").mkdir(),
            plant(r, "rebase-merge/strategy", "/../d/x\n"),
            todo(r, f"pick {r.git('rev-parse', 'topic~3')}\n"),
        )[0],
        ("rebase", "--continue"),
    ),
    "a strategy of a cherry-pick": (
        cherry_pick,
        lambda r: (
            r.program("d/x"),
            (r.path / "git-merge-").mkdir(),
            plant(r, "sequencer/opts", "[options]\n\tstrategy = /../d/x\n"),
        )[0],
        ("cherry-pick", "--continue"),
    ),
    "a strategy in quotes": (
        cherry_pick,
        lambda r: (
            r.program("d/x"),
            (r.path / "git-merge-").mkdir(),
            plant(r, "sequencer/opts", '[OPTIONS] Strategy = "/../d"\\\n/x # ort\n'),
        )[0],
        ("cherry-pick", "--continue"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMFUL)
def test_what_runs_a_program_is_harmful(repo: Repo, name: str) -> None:
    start, change, resume = HARMFUL[name]
    start(repo)
    before = {folder: repo.state(folder) for folder in FOLDERS}
    change(repo)
    reasons = repo.judge(before)
    assert len(reasons) == 1, reasons
    repo.settle()
    repo.git(*resume, fails=True)
    assert repo.pwned.exists(), "git does not run it: the case shows nothing"


def test_the_users_own_exec_lines_stay_allowed(repo: Repo) -> None:
    """Git moves lines from the todo list to the list of what is done."""
    rebase(repo, "-i", "-x", "true # mine")
    before = {folder: repo.state(folder) for folder in FOLDERS}
    assert repo.judge() != []
    repo.settle()
    repo.git("rebase", "--continue", fails=True)
    assert (repo.path / ".git/rebase-merge").is_dir()
    assert repo.judge(before) == []
    plant(repo, "rebase-merge/git-rebase-todo", "exec true # mine\n" * 9)
    assert repo.judge(before) != []


@pytest.mark.parametrize(
    ("folder", "name", "data"),
    [
        ("rebase-merge", "strategy", b"custom\n"),
        ("rebase-merge", "strategy", b"ort/../../x"),
        ("rebase-merge", "strategy_opts", b" '--ours x'"),
        ("rebase-merge", "strategy_opts", b" --index-output=x"),
        ("rebase-merge", "autostash", b"--index"),
        ("rebase-merge", "head-name", b"../../x"),
        ("rebase-merge", "head-name", b"refs/heads/../../x"),
        ("rebase-merge", "author-script", b"GIT_SSH_COMMAND='x'\n"),
        ("rebase-merge", "author-script", b"GIT_AUTHOR_NAME='x'; touch y\n"),
        ("rebase-merge", "author-script", b"GIT_AUTHOR_NAME=$(x)\n"),
        ("rebase-merge", "gpg_sign_opt", b"-S--output"),
        ("rebase-merge", "update-refs", b"config\n"),
        ("rebase-merge", "git-rebase-todo", b"update-ref HEAD\n"),
        ("rebase-merge", "git-rebase-todo", b"label ../../x\n"),
        ("rebase-merge", "git-rebase-todo", b"unknown x\n"),
        ("rebase-merge", "git-rebase-todo", b"pick 1\0\nexec x\n"),
        ("rebase-merge", "git-rebase-todo", b"pick 1\rexec x\n"),
        ("rebase-merge", "something", b""),
        ("rebase-apply", "apply-opt", b"'--unsafe-paths'"),
        ("rebase-apply", "apply-opt", b"'--build-fake-ancestor=x'"),
        ("rebase-apply", "strategy", b"/../x"),
        ("sequencer", "opts", b"[options]\n\tstrategy = x\n"),
        ("sequencer", "opts", b"[options]\n\tstrategy-option = index-output=x\n"),
        ("sequencer", "opts", b"[options]\n\tunknown = x\n"),
        ("sequencer", "opts", b"[include]\n\tpath = x\n"),
        ("sequencer", "todo", b"exec x\n"),
        ("other", "x", b""),
    ],
)
def test_other_state_that_is_refused(folder: str, name: str, data: bytes) -> None:
    assert len(judge_operation_state(folder, None, {name: data})) == 1
    assert judge_operation_state(folder, {name: data}, {name: data}) == [
        *([f"unknown state of git: {folder}"] if folder == "other" else [])
    ]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("MERGE_HEAD", b"--x\n"),
        ("MERGE_RR", b"1" * 40 + b"\t.git/hooks/pre-commit\0"),
        ("MERGE_RR", b"1" * 40 + b"\t../x\0"),
        ("BISECT_START", b"--x\n"),
        ("BISECT_NAMES", b"'a'; touch x\n"),
        ("BISECT_NAMES", b"$(x)"),
        ("BISECT_NAMES", b"`x`"),
        ("BISECT_NAMES", b"'a'\\''b"),
        ("BISECT_TERMS", b"bad;x\ngood\n"),
        ("SOMETHING", b""),
    ],
)
def test_files_that_are_refused(name: str, data: bytes) -> None:
    assert len(judge_state_file(name, None, data)) == 1
    assert judge_state_file(name, data, data) == []


@pytest.mark.parametrize("blank", [b" ", b"\t", b"\n", b"a ", b"'a' ", b"''", b"a", b"=", b"'"])
def test_no_file_takes_long(blank: bytes) -> None:
    """Each of these made a naive expression take time in the square of the length, or worse."""
    for before, after in (
        (b"", b""),
        (b"a =", b'"'),
        (b"#", b"\xff"),
        (b"[", b"\\"),
        (b"x ", b"!"),
    ):
        data = before + blank * ((1 << 20) // len(blank)) + after
        for folder, names in (
            ("rebase-merge", ("strategy_opts", "author-script", "git-rebase-todo", "update-refs")),
            ("rebase-apply", ("apply-opt", "gpg_sign_opt", "head-name")),
            ("sequencer", ("opts", "todo")),
        ):
            judge_operation_state(folder, None, dict.fromkeys(names, data))
        for name in ("BISECT_NAMES", "BISECT_TERMS", "BISECT_START", "MERGE_RR"):
            judge_state_file(name, None, data)


@pytest.mark.parametrize("name", ["git-rebase-todo~", ".git-rebase-todo.swp", "#message#"])
def test_the_files_of_an_editor_are_harmless(name: str) -> None:
    assert judge_operation_state("rebase-merge", {}, {name: b"exec touch ran\n"}) == []


@pytest.mark.parametrize("name", ["other~", ".other.swp", "git-rebase-todo~~", "~"])
def test_a_name_like_that_of_an_editor_alone_is_not(name: str) -> None:
    (reason,) = judge_operation_state("rebase-merge", {}, {name: b"exec touch ran\n"})
    assert "not known to write" in reason
