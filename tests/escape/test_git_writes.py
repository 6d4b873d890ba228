"""Links in a git dir: git on the host writes through them, into files that run later."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.attacks import Box, freely, python
from support.git_attacks import HOW, attack, git, is_reported, make_repository

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

# Each puts a link to `args[1]`, outside the workspace, into the git dir.
_LINK = """
    here = args[0] + "/.git/"
    def link(name):
        try:
            os.unlink(here + name)
        except FileNotFoundError:
            pass
        os.symlink(args[1], here + name)
"""
LINKS = {
    "logs/HEAD": "link('logs/HEAD')",
    "the log of a branch": "link('logs/refs/heads/main')",
    "a folder of logs": "os.rename(here + 'logs', here + 'objects/logs'); "
    "os.symlink(os.path.dirname(args[1]), here + 'logs')",
    "a folder in logs": "os.rename(here + 'logs/refs', here + 'objects/logs'); "
    "os.symlink(os.path.dirname(args[1]), here + 'logs/refs')",
    "the log of a new worktree": "os.makedirs(here + 'worktrees/x/logs'); "
    "link('worktrees/x/logs/HEAD')",
    "COMMIT_EDITMSG": "link('COMMIT_EDITMSG')",
    "packed-refs": "link('packed-refs')",
    "ORIG_HEAD": "link('ORIG_HEAD')",
    "FETCH_HEAD": "link('FETCH_HEAD')",
}
_ALTERNATES = """
    os.makedirs(args[0] + "/.git/objects/info", exist_ok=True)
    open(args[0] + "/.git/objects/info/alternates", "w").write(args[0] + "/evil/objects\\n")
    worked()
"""


@pytest.fixture
def repository(workspace: Path) -> Path:
    made = make_repository(workspace)
    git(made, "commit", "-q", "--allow-empty", "-m", "x")
    git(made, "tag", "one")
    git(made, "pack-refs", "--all")
    git(made, "update-ref", "ORIG_HEAD", "HEAD")
    (made / ".git/FETCH_HEAD").write_text("")
    return made


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "profile").write_text("mine\n")
    return folder / "profile"


def _program(name: str) -> tuple[str, ...]:
    return python(_LINK, LINKS[name], "worked()")


def _links(git_dir: Path) -> list[Path]:
    return [path for path in git_dir.rglob("*") if path.is_symlink()]


def test_control(repository: Path, victim: Path) -> None:
    """Git writes the subject of a commit, which the command chose, into a start-up file."""
    program = python(_LINK, LINKS["logs/HEAD"], "worked()")
    assert freely(program, repository, victim).worked
    git(repository, "commit", "-q", "--allow-empty", "-m", "; touch ran;")
    assert "touch ran" in victim.read_text()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", LINKS)
def test_no_link_is_left_that_git_writes_through(
    box: Box, repository: Path, victim: Path, name: str, how: str
) -> None:
    ran = attack(box, how, repository, _program(name), repository, victim)
    assert _links(repository / ".git") == [], ran.story
    assert is_reported(ran), ran.story
    git(repository, "commit", "-q", "--allow-empty", "-m", "; touch ran;")
    git(repository, "pack-refs", "--all")
    assert victim.read_text() == "mine\n"
    if name != "packed-refs":  # which a command may remove as well
        assert len(git(repository, "log", "--oneline").splitlines()) == 3


def test_links_of_the_user_stay(box: Box, repository: Path, victim: Path) -> None:
    (repository / ".git/COMMIT_EDITMSG").unlink()
    (repository / ".git/COMMIT_EDITMSG").symlink_to(victim)
    ran = attack(box, "cold", repository, python("open('new', 'w').close(); worked()"))
    assert not is_reported(ran), ran.story
    assert (repository / ".git/COMMIT_EDITMSG").is_symlink()


@pytest.mark.parametrize("how", HOW)
def test_no_link_is_left_in_a_repository_that_the_command_made(
    box: Box, workspace: Path, victim: Path, how: str
) -> None:
    program = python(
        _LINK,
        """
        import subprocess
        subprocess.run(["git", "init", "-q", args[0]], check=True)
        os.mkdir(here + "logs")
        link("logs/HEAD")
        link("COMMIT_EDITMSG")
        worked()
        """,
    )
    ran = attack(box, how, workspace, program, workspace, victim)
    assert is_reported(ran), ran.story
    assert _links(workspace / ".git") == []
    git(workspace, "commit", "-q", "--allow-empty", "-m", "x")
    assert victim.read_text() == "mine\n"


@pytest.mark.parametrize("how", HOW)
def test_no_other_repository_is_asked_for_its_refs(box: Box, repository: Path, how: str) -> None:
    """Git runs `git --git-dir=<alternate> for-each-ref` in a fetch, with the settings there."""
    program = python(_ALTERNATES)
    alternates = repository / ".git/objects/info/alternates"
    assert freely(program, repository).worked
    assert alternates.exists()
    alternates.unlink()
    ran = attack(box, how, repository, program, repository)
    assert not alternates.exists(), ran.story
    assert is_reported(ran), ran.story


def test_alternates_of_the_user_stay(box: Box, repository: Path, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    alternates = repository / ".git/objects/info/alternates"
    alternates.parent.mkdir(exist_ok=True)
    alternates.write_text(f"{other}/.git/objects\n")
    ran = attack(box, "cold", repository, python(_ALTERNATES), repository)
    assert is_reported(ran), ran.story
    assert alternates.read_text() == f"{other}/.git/objects\n"


# Git makes and tidies files of its own in the folders of `refs` and `objects`.
_STORED = python("""
    here, folder = args[0] + "/.git/", os.path.dirname(args[1])
    for name in ("objects/info", "objects/pack", "lfs"):
        os.makedirs(here + name, exist_ok=True)
    os.symlink(args[1], here + "objects/info/commit-graph")
    os.symlink(args[1], here + "objects/pack/multi-pack-index")
    for name in ("refs/heads/a", "refs/heads/deep", "objects/00", "lfs/tmp"):
        if not os.path.lexists(here + name):
            os.symlink(folder, here + name)
    os.mkfifo(here + "refs/heads/pipe")
    worked()
""")


def _not_plain(git_dir: Path) -> list[Path]:
    return [p for p in git_dir.rglob("*") if p.is_symlink() or not (p.is_file() or p.is_dir())]


def test_control_of_refs_and_objects(repository: Path, victim: Path) -> None:
    assert freely(_STORED, repository, victim).worked
    (repository / ".git/refs/heads/pipe").unlink()  # it would block git
    git(repository, "branch", "a/made")
    git(repository, "commit-graph", "write", "--reachable")
    assert (victim.parent / "made").exists()
    assert victim.read_bytes() != b"mine\n"


@pytest.mark.parametrize("how", HOW)
def test_no_link_is_left_in_refs_and_objects(
    box: Box, repository: Path, victim: Path, how: str
) -> None:
    ran = attack(box, how, repository, _STORED, repository, victim)
    assert _not_plain(repository / ".git") == [], ran.story
    assert is_reported(ran), ran.story
    git(repository, "branch", "a/made")
    git(repository, "commit-graph", "write", "--reachable")
    git(repository, "gc", "--quiet")
    assert [path.name for path in victim.parent.iterdir()] == ["profile"]
    assert victim.read_text() == "mine\n"


def test_links_of_the_user_in_objects_stay(box: Box, repository: Path, tmp_path: Path) -> None:
    packs = tmp_path / "packs"
    (repository / ".git/objects/pack").rename(packs)
    (repository / ".git/objects/pack").symlink_to(packs)
    time.sleep(0.1)  # longer than a link must be there to count as the user's
    script = "git -c user.name=t -c user.email=t@e commit -q --allow-empty -m x"
    ran = attack(box, "cold", repository, ("sh", "-c", script))
    assert ran.exited(0), ran.story
    assert not is_reported(ran), ran.story
    assert (repository / ".git/objects/pack").is_symlink()


@pytest.mark.parametrize("how", HOW)
def test_no_hook_has_a_second_name_that_git_writes_to(box: Box, repository: Path, how: str) -> None:
    """The reflog gets lines with names of branches, which the command chose."""
    hook, log = repository / ".git/hooks/pre-commit", repository / ".git/logs/HEAD"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    program = python("""
        os.unlink(args[1])
        try:
            os.link(args[0], args[1])
        except OSError as error:
            blocked(error)
        worked()
    """)
    ran = attack(box, how, repository, program, hook, log)
    assert hook.stat().st_nlink == 1, ran.story
    git(repository, "checkout", "-q", "-b", "a;touch$IFS/ran;")
    assert hook.read_text() == "#!/bin/sh\n"
    assert freely(program, hook, log).worked
    git(repository, "checkout", "-q", "-b", "b;touch$IFS/ran;")
    assert "touch" in hook.read_text()
