"""Git remotes that are folders of this machine: a push needs --write, and nothing else is said."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ctl import Ctl

from sandboxd_client.cli.hints.git import remotes
from sandboxd_client.cli.hints.git.remotes import remote_folders

ME = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *ME, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(inside: Ctl, folder: Path) -> Ctl:
    """A repository with a submodule, and beside it a bare one that nothing names."""
    work = inside.workspace
    subprocess.run(["rm", "-rf", str(work / ".git")], check=True)
    (folder / "lib").mkdir()
    for one in (folder / "lib", work):
        git(one, "init", "-q", "-b", "main")
        (one / "a").write_text("a\n")
        git(one, "add", "a")
        git(one, "commit", "-qm", "one")
    git(work, "submodule", "add", "-q", str(folder / "lib"), "sub")
    git(folder, "init", "-q", "--bare", str(folder / "up.git"))
    return inside


def said(ctl: Ctl, *words: str) -> list[str]:
    """What sandboxctl adds; a push that failed at its remote is not a success."""
    done = ctl("run", *words)
    assert done.returncode != 0
    lines = done.stderr.decode().splitlines()
    return [line for line in lines if line.startswith("sandboxctl: ")]


def pushes(ctl: Ctl, folder: Path, *push: str) -> None:
    """Hidden, and shown for reading: the same flag, once, and nothing that contradicts it."""
    flag = ("--write", str(folder))
    for given in ((), ("--read", str(folder))):
        lines = said(ctl, *given, "--", *push)
        assert lines[-1].endswith(f"writes into the remote, a folder: add {' '.join(flag)}"), lines
        assert "\n".join(lines).count(" add") == 1, lines
        assert not [line for line in lines if "proposed" in line], lines
    done = ctl("run", *flag, "--", *push)
    assert (done.returncode, b"sandboxctl" in done.stderr) == (0, False), done.stderr


def test_a_push_to_a_path_needs_to_write_it(project: Ctl, folder: Path) -> None:
    bare = folder / "up.git"
    pushes(project, bare, "git", "push", str(bare), "HEAD:refs/heads/one")
    pushes(project, bare, "git", "push", "../up.git", "HEAD:refs/heads/two")
    pushes(project, bare, "sh", "-c", f"git push -q file://{bare} HEAD:refs/heads/three")


def test_a_push_to_a_remote_needs_to_write_it(project: Ctl, folder: Path) -> None:
    bare = folder / "up.git"
    git(project.workspace, "remote", "add", "origin", str(bare))
    pushes(project, bare, "git", "push", "-q", "origin", "HEAD:refs/heads/one")
    git(project.workspace, "config", "push.default", "current")
    pushes(project, bare, "git", "push")


def test_a_push_of_a_submodule_needs_to_write_its_own_remote(project: Ctl, folder: Path) -> None:
    project.workspace = project.workspace / "sub"
    pushes(project, folder / "lib", "git", "push", "origin", "HEAD:refs/heads/one")


def test_a_push_that_fails_by_itself_gets_no_hint(project: Ctl, folder: Path) -> None:
    flag = ("--write", str(folder / "up.git"))
    assert said(project, *flag, "--", "git", "push", str(folder / "up.git"), "nosuch") == []
    assert said(project, "--", "git", "push", "nosuch", "main") == []


def test_what_a_command_reaches_is_read_from_the_settings(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name / "objects").mkdir(parents=True)
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / ".git/HEAD").write_text("ref: refs/heads/topic\n")
    (work / ".git/config").write_text(
        f'[remote "up"]\n\turl = "{tmp_path}/a"\n\tpushurl = ../b\n'
        '[remote "web"]\n\turl = git@example.org:x\n[branch "topic"]\n\tremote = up\n'
        f'[remote "other"]\n\turl = file://{tmp_path}/c\n'
    )

    def reached(*words: str) -> list[str]:
        return [Path(one).name for one in remote_folders([*words], str(work))]

    assert reached("push") == ["b"]
    assert reached("fetch") == ["a"]
    assert reached("fetch", "--all") == ["a", "c"]
    assert reached("push", "-o", "x", "other") == ["c"]
    assert reached("push", "../a", "main") == ["a"]
    assert reached("push", "web") == reached("push", "nosuch") == []


@pytest.mark.parametrize(
    ("place", "proposed"),
    [("me/src/x.git", True), ("me/.password-store", False), ("me/.dotfiles/x.git", False),
     ("you/x.git", False), ("srv/x.git", True)],
)  # fmt: skip
def test_homes_of_others_and_hidden_repositories_are_not_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, proposed: bool
) -> None:
    monkeypatch.setattr(remotes, "account_home", lambda: str(tmp_path / "me"))
    monkeypatch.setattr(remotes, "_HOMES", (str(tmp_path / "you"),))
    os.makedirs(tmp_path / place / "objects")
    words = ["push", str(tmp_path / place), "main"]
    assert bool(remote_folders(words, str(tmp_path))) == proposed
