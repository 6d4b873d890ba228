"""The hints after a git command rest on what that command did, and on nothing older."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ctl import Ctl

from sandboxd_client.cli.hints.git import user_settings
from sandboxd_client.cli.hints.git.hints import git_hint
from sandboxd_client.cli.hints.shell_lines import simple_commands

Git = Callable[..., str]


@pytest.fixture
def git(inside: Ctl) -> Git:
    """Git outside, in a repository with the branches main and topic, which conflict."""
    folder = inside.workspace

    def run(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
        return done.stdout.decode()

    subprocess.run(["rm", "-rf", str(folder / ".git")], check=True)
    run("init", "-q", "-b", "main")
    for name, value in (("name", "t"), ("email", "t@example.org")):
        run("config", f"user.{name}", value)
    for text in ("one", "two", "three", "four"):
        if text == "two":
            run("checkout", "-q", "-b", "topic")
        elif text == "three":
            run("checkout", "-q", "main")
        (folder / "a").write_text(text)
        run("add", "a")
        run("commit", "-qm", text)
    return run


def hint(ctl: Ctl, *words: str) -> str:
    done = ctl("run", "--", "git", *words)
    found = [line for line in done.stderr.decode().splitlines() if "sandboxctl: hint: " in line]
    return found[0] if found else ""


@pytest.mark.parametrize("command", ["checkout", "switch", "merge"])
def test_a_misspelt_branch_is_gits_own_affair(inside: Ctl, git: Git, command: str) -> None:
    done = inside("run", "--", "git", command, "NOSUCH")
    assert done.returncode != 0
    assert b"NOSUCH" in done.stderr
    assert b"sandboxctl" not in done.stderr


def test_a_rebase_with_a_conflict_is_not_told_of_an_older_one_that_lies_aside(
    inside: Ctl, git: Git
) -> None:
    assert "was moved aside" in hint(inside, "rebase", "--exec", "false", "main~1")
    assert "lies aside: if that is meant" in hint(inside, "rebase", "--abort")
    hint(inside, "checkout", "-q", "topic")
    assert hint(inside, "rebase", "main") == "", "a conflict: git knows of this rebase"
    assert (inside.workspace / ".git/rebase-merge").is_dir()
    assert hint(inside, "rebase", "main") == "", "there is one already"
    assert hint(inside, "rebase", "--continue") == "", "the conflict is not resolved"
    git("rebase", "--abort")
    assert hint(inside, "rebase", "nosuch") == ""


def own_lines(ctl: Ctl, *words: str) -> list[str]:
    said = ctl("run", "--", "git", *words).stderr.decode().splitlines()
    return [line for line in said if line.startswith("sandboxctl: ")]


def test_a_deleted_branch_without_settings_leaves_nothing_to_do(inside: Ctl, git: Git) -> None:
    git("branch", "plain")
    git("branch", "--track", 'tr"acked', "main")
    (line,) = own_lines(inside, "branch", "-d", "plain")
    assert "hint: the branch is deleted, although git could not write .git/config" in line
    assert line.endswith("it has no section there, and nothing is left to do")
    denied, told = own_lines(inside, "branch", "-d", 'tr"acked')
    assert denied.endswith("/.git/config is protected, because it can run code outside the sandbox "
                           "later")  # fmt: skip
    assert told.endswith("only its section in .git/config stays, which does no harm")
    git("branch", "merged")
    (partly,) = own_lines(inside, "branch", "-d", "merged", "topic")
    assert partly.endswith("what git calls deleted is deleted, although git could not write "
                           ".git/config: it has no section there")  # fmt: skip
    assert git("branch", "--list", "plain", "tr*", "merged", "topic").split() == ["topic"]


@pytest.mark.parametrize("option", ["-m", "-c"])
def test_a_renamed_branch_without_settings_leaves_nothing_to_do(
    inside: Ctl, git: Git, option: str
) -> None:
    git("branch", "plain")
    git("branch", "--track", "tracked", "main")
    git("checkout", "-q", "-b", "current")
    for words, made in ((["plain", "plain2"], "plain2"), (["other"], "other")):
        (line,) = own_lines(inside, "branch", option, *words)
        assert ".git/config: it has no section there, and nothing is left to do (exit code" in line
        assert git("branch", "--list", made, "--format=%(refname:short)").split() == [made]
    git("checkout", "-q", "tracked")
    for words in (["tracked", "tracked2"], ["tracked3"]):
        told = own_lines(inside, "branch", option, *words)[-1]
        assert "hint: the branch is " in told
        assert ", but not its settings" in told
        git("checkout", "-q", "-B", "tracked")


def test_writing_gits_settings_in_place_is_not_offered_for_what_git_replaces(
    inside: Ctl, git: Git
) -> None:
    def said(command: str, line: str) -> str:
        return inside(command, "--", "sh", "-c", line).stderr.decode()

    told = said("run", "true; git config a.b c")
    assert "--write" not in told
    assert "hint: run this git command outside of the sandbox" in told
    assert "--write" not in said("explain", "git config a.b c")
    assert said("run", "echo >> .git/config").endswith("nevertheless, with --write\n")
    assert "--write" in said("explain", "echo >> .git/config")


def test_only_what_was_moved_and_written_counts_as_that() -> None:
    """A read of a file says nothing about settings, and a refused change moves nothing aside."""
    read = {"kind": "filesystem_read", "target": "/h/.gitconfig", "message": "is not visible"}
    assert git_hint(["push"], 1, [read], "/w") is None
    stays = {"kind": "protected_path", "target": "/w/.git/rebase-merge", "operation": "create",
             "message": "/w/.git/rebase-merge stays as it is: it is protected"}  # fmt: skip
    assert "was moved aside" not in (git_hint(["rebase"], 1, [stays], "/w") or "")
    for words in (["submodule", "foreach", "false"], ["submodule", "status", "x"]):
        assert git_hint(words, 1, [], "/w") is None


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["../in2", "-b", "br2"], "git worktree prune, git branch -d br2"),
        (["-b", "br2", "../in2"], "git worktree prune, git branch -d br2"),
        (["../in2"], "git worktree prune, git branch -d in2"),
        (["../in2", "topic"], "git worktree prune"),
        (["--detach", "../in2"], "git worktree prune"),
        (["/tmp/in2"], "git worktree prune, git branch -d in2"),  # made, and lost
    ],
)
def test_a_worktree_that_was_not_made_names_what_it_left(
    inside: Ctl, git: Git, words: list[str], left: str
) -> None:
    told = hint(inside, "worktree", "add", *words)
    assert " was not made. A worktree is made outside of the sandbox" in told
    assert told.partition("To remove what this left, outside: ")[2].startswith(left)
    assert ("git branch" in told) == ("git branch" in left)


def test_a_folder_that_an_earlier_worktree_left_is_named_as_the_reason(
    inside: Ctl, git: Git
) -> None:
    assert hint(inside, "worktree", "add", "inner", "nosuch") == "", "git's own affair"
    hint(inside, "worktree", "add", "../in2")
    told = hint(inside, "worktree", "add", "inner")
    assert "an earlier one left that folder here, and git worktree prune, outside" in told
    assert "To remove what this left, outside: git branch -d inner" in told
    assert "in2" not in told
    git("worktree", "prune")
    assert hint(inside, "-C", ".", "worktree", "add", "inner") == ""
    assert (inside.workspace / "inner/a").exists()
    told = hint(inside, "worktree", "add", "second")
    assert "was not made" in told
    assert "prune" not in told, "there is another worktree, which it would not remove"


def test_the_line_for_outside_names_the_same_repository() -> None:
    denial = {"kind": "protected_path", "target": "/w/lib/.git/config"}
    words, before = ["remote", "add", "o", "/x"], ["git", "-C", "lib"]
    assert "git -C lib remote add o /x" in str(git_hint(words, 128, [denial], "/w", "", before))


@pytest.mark.parametrize("linked", [False, True])
def test_a_git_dir_that_lies_elsewhere_is_named(inside: Ctl, linked: bool) -> None:
    folder, place = inside.workspace, inside.workspace.parent / "sep.git"
    subprocess.run(["rm", "-rf", str(folder / ".git")], check=True)
    subprocess.run(["git", "init", "-q", "--separate-git-dir", str(place), str(folder)], check=True)
    if linked:
        (folder / ".git").unlink()
        (folder / ".git").symlink_to(place)
    assert f"is not visible in the sandbox: add --write {place}" in hint(inside, "status")
    done = inside("run", "--write", str(place), "--", "git", "status")
    assert done.returncode == 0, done.stderr
    done = inside("run", "--write", str(place), "--", "git", "log", "nosuch")
    assert b"--write" not in done.stderr
    hook = inside("run", "--write", str(place), "--", "sh", "-c", f"echo x > {place}/hooks/x")
    assert hook.returncode != 0 or not (place / "hooks/x").exists()


def test_no_hint_says_to_remove_a_repository(inside: Ctl, git: Git) -> None:
    git("checkout", "-q", "-b", "with-sub")
    source = str(inside.workspace / ".git")
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", source, "emb")
    git("commit", "-qm", "sub")
    left = hint(inside, "checkout", "main")
    assert ".gitmodules stays, because it is read-only inside" in left
    assert "emb: git leaves a repository also outside" in left
    back = hint(inside, "checkout", "with-sub")
    assert "(.gitmodules): remove it outside" in back
    (inside.workspace / ".gitmodules").unlink()
    git("checkout", "-q", "with-sub")
    git("rm", "-q", "--cached", ".gitmodules")
    git("commit", "-qm", "embedded")
    (inside.workspace / ".gitmodules").unlink()
    alone = hint(inside, "checkout", "main")
    assert "emb: git leaves" in alone
    assert "emove" not in alone


@pytest.mark.parametrize("hidden", [True, False])
def test_hooks_are_named_only_where_the_sandbox_hides_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    hook = tmp_path / "hooks" / "pre-commit"
    hook.parent.mkdir()
    hook.touch(mode=0o755)
    (tmp_path / "project/.git").mkdir(parents=True)
    (tmp_path / "project/.git/config").write_text(f"[core]\n\thooksPath = {hook.parent}\n")
    monkeypatch.setattr(user_settings, "HIDDEN", (str(tmp_path),) if hidden else ())
    found = user_settings.unseen_hooks(["commit"], str(tmp_path / "project"), ())
    assert (found is not None) == hidden


@pytest.mark.parametrize(
    "line",
    [
        "true && git config user.name x",
        "echo a | cat; git config user.name 'a b'; true",
        "cd . && X=1 git config user.name x || true",
        "echo one\ngit config user.name x\n# the end",
        "if true; then git config user.name x; fi",
    ],
)
def test_git_is_found_in_a_line_of_shell(inside: Ctl, git: Git, line: str) -> None:
    for typed in (("-c", line), ("--", "bash", "-ec", line)):
        done = inside("run", *typed)
        assert b"give the setting to one command: git -c KEY=VALUE" in done.stderr, done.stderr


def test_the_failure_of_a_later_command_is_no_failure_of_git(
    inside: Ctl, git: Git, tmp_path: Path
) -> None:
    user = ("--env", f"HOME={tmp_path}")
    assert b"hint" not in inside("run", *user, "-c", "git status -s; exit 3").stderr


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("make && git commit -m 'a; b'", [["make"], ["git", "commit", "-m", "a; b"]]),
        ("A=1 git add . >x 2>&1; ls|wc", [["git", "add", "."], ["ls"], ["wc"]]),
        ("for f in a b; do git add $f; done", [["for", "f", "in", "a", "b"], ["git", "add", "$f"],
                                               ["done"]]),
        ("git commit -m \\\n  x # git push", [["git", "commit", "-m", "x"]]),
        ("git checkout $(git branch)", []), ("git add `ls`", []), ("(cd a; git add .)", []),
        ("cat <<E\ngit push\nE", []), ("git commit -m 'open", []), ("git add x >", []),
        ("git push;" * 2000, []), ("", []),
    ],
)  # fmt: skip
def test_only_lists_of_simple_commands_are_taken_apart(
    line: str, commands: list[list[str]]
) -> None:
    assert simple_commands(line) == commands


@pytest.mark.parametrize(
    ("words", "branch"),
    [
        (["push", "-u", "origin", "HEAD"], "main"),
        (["push", "--set-upstream", "origin", "topic:other"], "topic"),
        (["checkout", "-t", "origin/x"], "x"),
        (["checkout", "x"], "x"),
        (["switch", "-c", "own", "--track", "origin/x"], "own"),
        (["branch", "own", "origin/x"], "own"),
    ],
)  # fmt: skip
def test_the_hint_about_a_missing_upstream_sets_it(
    inside: Ctl, git: Git, tmp_path: Path, words: list[str], branch: str
) -> None:
    remote = str(tmp_path / "remote.git")
    git("clone", "-q", "--bare", ".", remote)
    git("remote", "add", "origin", remote)
    git("push", "-q", "origin", "topic:x")
    git("fetch", "-q")
    done = inside("run", "--write", remote, "--", "git", *words)
    told = next(one for one in done.stderr.decode().splitlines() if "sandboxctl: hint: " in one)
    pasted = told.partition(": outside, ")[2]
    subprocess.run(["sh", "-c", pasted], cwd=inside.workspace, check=True)
    target = {"main": "main", "topic": "other"}.get(branch, "x")
    assert git("rev-parse", "--abbrev-ref", f"{branch}@{{upstream}}").strip() == f"origin/{target}"


@pytest.mark.parametrize(
    "command", [["git", "-C", "cl", "push", "-u", "origin", "x"],
                ["sh", "-c", "cd cl && git push -u origin x"]],
)  # fmt: skip
def test_the_hint_about_an_upstream_names_the_repository_that_git_was_in(
    inside: Ctl, git: Git, tmp_path: Path, command: list[str]
) -> None:
    remote = str(tmp_path / "remote.git")
    git("clone", "-q", "--bare", ".", remote)
    git("clone", "-q", remote, "cl")
    git("-C", "cl", "checkout", "-q", "-b", "x")
    said = inside("run", "--write", remote, "--", *command).stderr.decode()
    told = next(one for one in said.splitlines() if "sandboxctl: hint: " in one)
    pasted = told.partition(": outside, ")[2]
    subprocess.run(["sh", "-c", pasted], cwd=inside.workspace, check=True)
    upstream = git("-C", "cl", "rev-parse", "--abbrev-ref", "x@{upstream}").strip()
    assert upstream == "origin/x"


def test_a_renamed_branch_gets_its_upstream_back(inside: Ctl, git: Git, tmp_path: Path) -> None:
    remote = str(tmp_path / "remote.git")
    git("clone", "-q", "--bare", ".", remote)
    git("remote", "add", "origin", remote)
    git("push", "-q", "-u", "origin", "topic:x")
    told = hint(inside, "branch", "-m", "topic", "renamed")
    subprocess.run(["sh", "-c", told.partition(": outside, ")[2]], cwd=inside.workspace, check=True)
    assert git("rev-parse", "--abbrev-ref", "renamed@{upstream}").strip() == "origin/x"


def test_a_missing_upstream_that_is_not_known_is_told_with_placeholders(tmp_path: Path) -> None:
    config = {"target": str(tmp_path / ".git/config"), "kind": "protected_path"}
    said = git_hint(["push", "--all", "-u"], 0, [config], str(tmp_path)) or ""
    assert said.endswith("git branch --set-upstream-to=REMOTE/BRANCH BRANCH")


@pytest.mark.parametrize("words", [("stash", "pop"), ("merge", "new"), ("rebase", "new")])
def test_the_hint_undoes_what_git_changed_before_a_protected_file_stopped_it(
    inside: Ctl, git: Git, words: tuple[str, ...]
) -> None:
    """Its steps are run as they are, and git outside then does the whole."""
    folder = inside.workspace
    for name in (".envrc", "z", "mine"):
        (folder / name).write_text("old\n")
    git("add", "-A")
    git("commit", "-qm", "protected")
    if words[0] != "stash":
        git("checkout", "-q", "-b", "new")
    for name in (".envrc", "z", "added file"):
        (folder / name).write_text("new\n")
    if words[0] == "stash":
        git("stash", "-q", "-u")
    else:
        git("add", "-A")
        git("commit", "-qm", "changed")
        git("checkout", "-q", "main")
    if words[0] != "rebase":
        (folder / "mine").write_text("not yet committed\n")
    (folder / "untracked").write_text("not yet added\n")
    told = hint(inside, *words)
    steps = told.partition("undo that (")[2].partition("), then run")[0]
    assert steps == "git checkout -- z; rm 'added file'", told
    subprocess.run(["sh", "-ec", steps], cwd=folder, check=True)
    git(*words)
    assert [(folder / name).read_text() for name in (".envrc", "z", "added file")] == ["new\n"] * 3
    assert (folder / "untracked").exists()
    assert words[0] == "rebase" or (folder / "mine").read_text() == "not yet committed\n"


def test_a_line_of_shell_may_have_changed_files_before_git(inside: Ctl, git: Git) -> None:
    folder = inside.workspace
    (folder / ".envrc").write_text("old\n")
    git("add", "-A")
    git("commit", "-qm", "protected")
    (folder / ".envrc").write_text("new\n")
    git("stash", "-q")
    done = inside("run", "-c", "echo mine >> a; git stash pop")
    assert b"git cannot replace what is read-only inside (.envrc)" in done.stderr
    assert b"git checkout" not in done.stderr


@pytest.mark.parametrize("persistent", [False, True], ids=["one command", "a sandbox"])
def test_deleted_objects_are_said_to_be_lost(inside: Ctl, git: Git, persistent: bool) -> None:
    command, where = "run", []
    if persistent:
        command, where = "sandbox run", [inside("sandbox create").stdout.decode().strip()]
    done = inside(command, *where, "--", "rm", "-rf", ".git/objects")
    lost = f"{inside.workspace}/.git/objects could not be put right: what it held was deleted"
    assert lost in done.stderr.decode()
    assert (inside.workspace / ".git/objects").is_dir()
