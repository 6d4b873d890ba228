"""`sandboxctl kept`: protected files that a command brought in, looked at, put back, deleted."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ctl import Ctl

from sandboxd_client.cli import kept, parse, table
from sandboxd_client.cli.denial_lines import after_moving, is_moved_aside
from sandboxd_client.cli.hints.git.deletions import miscounted
from sandboxd_client.cli.hints.git.hints import git_hint, taken_for_deleted
from sandboxd_proto.errors import SandboxdError

AS_SOMEONE = ("-c", "user.name=t", "-c", "user.email=t@example.org")


@pytest.fixture
def project(inside: Ctl) -> Ctl:
    """A repository with a branch that brings a protected folder and file."""
    folder = inside.workspace

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words],
                       cwd=folder, check=True, capture_output=True)  # fmt: skip

    subprocess.run(["rm", "-rf", str(folder / ".git")], check=True)
    git("init", "-q", "-b", "main")
    (folder / "a").write_text("a\n")
    git("add", "a")
    git("commit", "-qm", "one")
    git("checkout", "-q", "-b", "other")
    (folder / ".vscode").mkdir()
    (folder / ".vscode" / "tasks.json").write_text('{"x": 1}\n')
    (folder / ".envrc").write_text("export A=1\n")
    (folder / "b").write_text("b\n")
    git("add", "-A")
    git("commit", "-qm", "two")
    git("checkout", "-q", "main")
    return inside


def test_a_checkout_that_brings_protected_files_goes_on_and_leaves_no_lock(project):
    done = project("run", "--", "git", "checkout", "-q", "other")
    assert done.returncode == 0, done.stderr
    assert (project.workspace / "b").exists()
    assert not (project.workspace / ".envrc").exists()
    assert not list((project.workspace / ".git").glob("*.lock"))
    assert b"sandboxctl kept list" in done.stderr
    listed = project("kept list").stdout.decode()
    assert ".vscode" in listed
    assert ".envrc" in listed
    status = subprocess.run(["git", "status", "--porcelain", "-uall"], cwd=project.workspace,
                            capture_output=True, check=True)  # fmt: skip
    assert b".sandboxd" not in status.stdout


def test_an_editors_backup_of_a_message_is_left_alone(project):
    editor = project.workspace / "editor"
    editor.write_text('#!/bin/sh\ncp "$1" "$1~"; echo message > "$1"\n')
    editor.chmod(0o755)
    who = ("-e", "GIT_AUTHOR_NAME=t", "-e", "GIT_AUTHOR_EMAIL=t@example.org",
           "-e", "GIT_COMMITTER_NAME=t", "-e", "GIT_COMMITTER_EMAIL=t@example.org")  # fmt: skip
    commit = ("git", "-c", f"core.editor={editor}", "commit", "--quiet", "--allow-empty")
    done = project("run", *who, "--", *commit)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (project.workspace / ".git" / "COMMIT_EDITMSG~").exists()


def test_the_exit_codes_of_kept(inside):
    """Without an action it is help, as for `sandbox`; there may be nothing to list."""

    def kept(*words):
        argv = [*inside.argv("kept list")[:3], "kept", *words]
        return subprocess.run(argv, capture_output=True, env=inside.env(), check=False)

    assert (alone := kept()).returncode == 0
    assert b"sandboxctl kept ACTION" in alone.stdout
    for action in ("list", "diff", "accept", "drop"):
        done = inside(f"kept {action}")
        assert done.returncode == 0
        assert b"nothing was moved aside in this workspace" in done.stderr
    assert kept("lits").returncode == 2
    for action in ("diff", "accept", "drop"):
        assert inside(f"kept {action}", "nosuch").returncode == 125
    for action in ("list", "diff", "accept", "drop"):
        missing = inside(f"kept {action}", "-w", "/nowhere")
        assert missing.returncode == 125
        assert b"/nowhere is not a folder" in missing.stderr


def test_one_is_looked_at_put_back_and_the_others_deleted(project):
    project("run", "--", "git", "checkout", "-q", "other")
    assert b"+export A=1" in project("kept diff", ".envrc").stdout
    assert b"+export A=1" in project("kept diff").stdout, "without a name: all of them"
    assert project("kept accept", ".envrc").returncode == 0
    assert (project.workspace / ".envrc").read_text() == "export A=1\n"
    refused = project("kept drop")
    assert (refused.returncode, b"needs a NAME, or --all" in refused.stderr) == (2, True)
    assert b".vscode" in project("kept list").stdout
    assert project("kept drop", "--all").returncode == 0
    assert project("kept drop").returncode == 0, "there is nothing that it would delete"
    assert project("kept list").stdout == b""
    assert not (project.workspace / ".sandboxd-kept").exists()


@pytest.mark.parametrize("what", ["a command", "a sandbox"])
def test_nothing_is_put_back_while_something_would_move_it_aside_again(project, what):
    """A command's stub of a folder stands there, too: it is not the user's."""
    folder, name = project.workspace, f"kept-{os.getpid()}"
    if what == "a command":
        assert project("run", "--detach", "--name", name, "sleep", "60").returncode == 0
        end = ("kill", name)
    else:
        assert project("sandbox create", "--name", name).returncode == 0
        end = ("sandbox destroy", name)
    try:
        (folder / ".vscode").mkdir()
        (folder / ".vscode" / "settings.json").write_text("precious")
        (folder / ".envrc").write_text("export A=1\n")
        while (folder / ".envrc").exists() or (folder / ".vscode" / "settings.json").exists():
            time.sleep(0.02)
        for names in ((".envrc",), (".vscode",), ("--all",)):
            refused = project("kept accept", *names)
            assert refused.returncode == 125
            assert f"end it first: sandboxctl {' '.join(end)}" in refused.stderr.decode()
            assert b"is back" not in refused.stderr
    finally:
        assert project(*end).returncode == 0
    while (folder / ".vscode").exists():
        time.sleep(0.02)
    assert project("kept accept", "--all").returncode == 0
    assert (folder / ".vscode" / "settings.json").read_text() == "precious"
    assert (folder / ".envrc").read_text() == "export A=1\n"


def test_what_another_daemon_moves_aside_again_is_not_said_to_be_back(project):
    """Of another user, say: this user's daemon does not list it."""
    name = f"kept-{os.getpid()}"
    assert project("run", "--detach", "--name", name, "sleep", "60").returncode == 0
    try:
        (project.workspace / ".envrc").write_text("export A=1\n")
        while (project.workspace / ".envrc").exists():
            time.sleep(0.02)
        refused = project("kept accept", "--socket", "/nowhere/d.sock", ".envrc")
    finally:
        assert project("kill", name).returncode == 0
    assert refused.returncode == 125
    assert b".envrc was moved aside again: something runs here" in refused.stderr
    assert b"is back" not in refused.stderr
    assert b".envrc" in project("kept list").stdout


def test_nothing_is_put_outside_of_the_workspace_or_over_something(project):
    (project.workspace / ".sandboxd-kept" / "abcd").mkdir(parents=True)
    run = project.workspace / ".sandboxd-kept" / "abcd"
    (run / "1-%2E%2E%2Foutside").write_text("x")
    (run / "2-a").write_text("\x1b[31mred\n")
    out = project("kept accept", "abcd-1")
    assert out.returncode == 125
    assert b"not in the workspace" in out.stderr
    over = project("kept accept", "a")
    assert b"kept drop abcd-2" in over.stderr
    for number, name in ((3, "one"), (4, "two")):
        (run / f"{number}-{name}").write_bytes(b"\0")
        (project.workspace / name).write_bytes(b"\0" * (number - 2))
    assert b"one is the same as what is there now" in project("kept diff", "one").stderr
    assert b"two differs, and is not text" in project("kept diff", "two").stderr
    assert project("kept accept", "one").stderr == b"sandboxctl: one is there already\n"
    assert not (run / "3-one").exists()
    assert b"\x1b" not in project("kept diff", "a").stdout
    assert b"is called" in project("kept diff", "nothing").stderr


@pytest.mark.parametrize("whose", ["the command's", "the user's, from before", "the user's, open"])
def test_only_the_lock_of_a_killed_git_is_removed(project, whose):
    lock = project.workspace / ".git" / "index.lock"
    script = "sleep 600"
    if whose == "the command's":
        script = "touch .git/index.lock; sleep 600"
    elif whose == "the user's, from before":
        lock.write_text("")
    else:
        script = "touch .git/index.lock; echo made; sleep 600"
    with project.start("run", "--timeout", "2s", "--", "sh", "-c", script) as running:
        if whose == "the user's, open":
            assert running.stdout.readline() == b"made\n"
            with lock.open():
                assert running.wait(60) == 124
                assert lock.exists()
            return
        assert running.wait(60) == 124
    assert lock.exists() == (whose != "the command's")


def test_what_appeared_again_and_again_is_listed_once(project):
    for _ in range(2):
        done = project("run", "--", "git", "checkout", "-q", "other")
        assert b"warning: where git tracks what was moved aside" in done.stderr
        assert project("run", "--", "git", "checkout", "-q", "main").returncode == 0
    shown = project("kept list").stdout.decode()
    assert [line.split()[2:] for line in shown.splitlines() if ".envrc" in line] == [
        [".envrc", "(and", "1", "older)"]
    ]
    assert project("kept accept", ".envrc").returncode == 0
    assert b".envrc" not in project("kept list").stdout
    assert project("kept drop", ".vscode").returncode == 0
    assert project("kept list").stdout == b""


def test_everything_is_put_back_at_once_or_nothing_is(project):
    project("run", "--", "git", "checkout", "-q", "other")
    refused = project("kept accept")
    assert (refused.returncode, b"needs a NAME, or --all" in refused.stderr) == (2, True)
    assert project("kept accept", "--all", ".envrc").returncode == 2
    (project.workspace / ".vscode").mkdir()
    exists = project("kept accept", "--all")
    assert exists.returncode == 125
    assert b".vscode exists" in exists.stderr
    assert b"move or remove yours first" in exists.stderr
    assert not (project.workspace / ".envrc").exists()
    (project.workspace / ".vscode").rmdir()
    assert project("kept accept", "--all").returncode == 0
    assert (project.workspace / ".envrc").read_text() == "export A=1\n"
    assert (project.workspace / ".vscode").is_dir()
    assert b"nothing was moved aside" in project("kept accept", "--all").stderr


def hint_after(ctl: Ctl, *words: str) -> str:
    done = ctl("run", "--", "git", *words)
    found = [line for line in done.stderr.decode().splitlines() if "sandboxctl: hint: " in line]
    return found[0] if found else ""


def test_a_git_command_that_did_half_of_its_work_says_what_is_left_to_do(project):
    assert "was not made" in hint_after(project, "worktree", "add", "../elsewhere")
    assert hint_after(project, "branch", "gone") == ""
    assert "the branch is deleted" in hint_after(project, "branch", "-d", "gone")
    assert "settings stay as they were" in hint_after(
        project, "branch", "--set-upstream-to", "main", "other"
    )
    said = hint_after(project, "remote", "add", "up", "https://example.org/x")
    assert "outside of the sandbox: git remote add up https://example.org/x." in said
    assert "git -c KEY=VALUE" in hint_after(project, "config", "user.name", "x")
    assert "outside of the sandbox" in hint_after(project, "submodule", "add", "./a", "sub")
    subprocess.run(
        ["git", "-C", str(project.workspace), "worktree", "add", "-q", "../beside"], check=True
    )
    assert "other worktrees" in hint_after(project, "gc")
    assert hint_after(project, "status") == ""


def test_a_submodule_that_was_added_by_half_is_removed_first(project):
    """What is left depends on when the guard moves .git/modules: here it is made by hand."""
    folder = project.workspace
    words = ["submodule", "add", "https://example.org/lib.git"]
    assert "remove" not in (git_hint(words, 1, [], str(folder)) or "")
    (folder / "lib").mkdir()
    assert "remove" not in (git_hint(words, 1, [], str(folder)) or ""), "it may be the user's"
    (folder / "lib" / ".git").write_text("gitdir: ../.git/modules/lib\n")
    said = git_hint(words, 1, [], str(folder)) or ""
    assert said.startswith("remove what is left (rm -rf lib), then run this git command outside")
    (folder / "lib" / ".git").unlink()
    message = "lib/.git appeared and was moved to .sandboxd-kept/1/lib/.git"
    target = str(folder / "lib" / ".git")
    aside = {"kind": "protected_path", "message": message, "target": target}
    said = git_hint([*words[:2], "--name", "a", words[2]], 1, [aside], str(folder)) or ""
    assert said.startswith("remove what is left (rm -rf lib), then run this git command outside")
    (folder / ".gitmodules").write_text("")
    subprocess.run(["git", "add", ".gitmodules"], cwd=folder, check=True)
    said = git_hint([*words, "lib"], 1, [aside], str(folder)) or ""
    assert "(git reset -q -- lib .gitmodules; rm -rf lib)" in said


def test_a_worktree_is_not_removed_by_half(project):
    folder = project.workspace
    subprocess.run(["git", "-C", str(folder), "worktree", "add", "-q", "inner"], check=True)
    for command in (["git", "worktree", "remove", "inner"], ["sh", "-c", "git worktree remove x"]):
        done = project("run", "--", *command)
        assert done.returncode == 125
        assert b"was not run" in done.stderr
    assert sorted(os.listdir(folder / "inner")) == [".git", "a"]


def test_git_clean_leaves_what_was_moved_aside(project):
    project("run", "--", "git", "checkout", "-q", "other")

    def listed() -> set[tuple[str, str]]:
        rows = (line.split() for line in project("kept list").stdout.decode().splitlines()[1:])
        return {(row[0], row[-1]) for row in rows}

    before = listed()
    assert {origin for _, origin in before} == {".envrc", ".vscode"}
    (project.workspace / "junk").write_text("")
    done = project("run", "--", "git", "clean", "-fdxq")
    assert b"the command deleted .sandboxd-kept; it was put back" in done.stderr
    assert not (project.workspace / "junk").exists()
    assert listed() == before
    assert project("kept accept", ".envrc").returncode == 0
    assert (project.workspace / ".envrc").read_text() == "export A=1\n"
    assert project("kept drop", "--all").returncode == 0
    assert project("run", "--", "git", "clean", "-fdxq").stderr == b""


def test_a_folder_in_place_of_what_was_moved_aside_is_left_alone(project, tmp_path):
    """A link there leads nowhere: nothing is written through it."""
    project("run", "--", "git", "checkout", "-q", "other")
    script = f"git clean -fdxq; ln -s {tmp_path} .sandboxd-kept"
    project("run", "--", "sh", "-c", script)
    assert os.listdir(tmp_path) == []


def test_hooks_that_the_sandbox_does_not_show_are_named(project, folder):
    hooks = folder / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\necho ran\n")
    (hooks / "pre-commit").chmod(0o755)
    git = ["git", "-C", str(project.workspace)]
    for key, value in (("core.hooksPath", hooks), ("user.name", "t"), ("user.email", "t@e.org")):
        subprocess.run([*git, "config", key, str(value)], check=True)
    commit = ("commit", "-q", "--allow-empty", "-m", "x")
    assert f"git did not run pre-commit: to run them inside, add --read {hooks}" in hint_after(
        project, *commit
    )
    done = project("run", "--read", str(hooks), "--", "git", *commit)
    assert b"ran" in done.stdout + done.stderr
    assert b"hint" not in done.stderr
    assert hint_after(project, "status") == ""
    assert hint_after(project, *commit, "--no-verify") == ""


def test_a_remote_that_the_sandbox_does_not_show_is_named(project, folder):
    remote = folder / "up.git"
    git = ["git", "-C", str(project.workspace)]
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    subprocess.run([*git, "remote", "add", "origin", str(remote)], check=True)
    assert f"add --write {remote}" in hint_after(project, "push", "origin", "main")
    for url in (remote, "../up.git", f"file://{remote}"):
        subprocess.run([*git, "remote", "set-url", "origin", str(url)], check=True)
        said = project("run", "--", "git", "fetch", "-q", "origin").stderr.decode()
        assert said.count(f"add --read {remote}") == 1, said
        assert "No change is proposed" not in said
    said = project("run", "--", "git", "fetch", "-q", str(remote)).stderr.decode()
    assert said.count(f"--read {remote}") == 1, said
    assert (
        project(
            "run", "--write", str(remote), "--", "git", "push", "-q", "origin", "main"
        ).returncode
        == 0
    )


def test_a_commit_that_the_settings_sign_says_why_it_failed(project, tmp_path):
    """The home folder has keys, which no sandbox shows."""
    home = tmp_path / "home"
    (home / ".gnupg").mkdir(parents=True)
    (home / ".gitconfig").write_text("")
    git = ["git", "-C", str(project.workspace)]
    for setting in ("commit.gpgsign", "tag.gpgsign"):
        subprocess.run([*git, "config", setting, "true"], check=True)
    for name, value in (("name", "t"), ("email", "t@example.org"), ("signingkey", "AB")):
        subprocess.run([*git, "config", f"user.{name}", value], check=True)

    def said(*words: str) -> str:
        return project("run", "--", "git", *words, HOME=str(home)).stderr.decode()

    unsigned = said("commit", "-q", "--allow-empty", "-m", "x")
    assert f"nothing could be signed: the keys in {home}/.gnupg are secret" in unsigned
    assert "git commit --no-gpg-sign …; then sign outside: git commit --amend" in unsigned
    assert "git -c tag.gpgsign=false tag" in said("tag", "-a", "v1", "-m", "v1")
    assert "hint" not in said("commit", "-q", "-m", "nothing to commit")
    assert "hint" not in said("merge", "-q", "nosuch")
    assert "hint" not in said("commit", "-q", "--no-gpg-sign", "--allow-empty", "-m", "x")
    assert "--no-gpg-sign" in said("commit", "-S", "-q", "--allow-empty", "-m", "x")


def test_switching_beside_a_protected_file_says_what_is_in_the_way(project):
    git = ["git", "-C", str(project.workspace)]
    subprocess.run([*git, "checkout", "-q", "other"], check=True)
    said = hint_after(project, "checkout", "main")
    assert "hint: .envrc, .vscode/tasks.json stay, because they are read-only inside" in said
    assert "Remove them outside" in said
    assert "git cannot replace what is read-only" in hint_after(project, "checkout", "other")
    for words in (["checkout", "nosuch"], ["merge", "nosuch"], ["pull"], ["reset", "nosuch"]):
        assert hint_after(project, *words) == "", words


def test_a_protected_file_that_git_cannot_replace_is_named(project):
    folder = project.workspace
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "checkout", "-q", "-b", "third", "other"], check=True)
    (folder / ".envrc").write_text("export A=2\n")
    subprocess.run([*git, "commit", "-qam", "three"], check=True)
    subprocess.run([*git, "checkout", "-q", "other"], check=True)
    assert "read-only inside (.envrc): run" in hint_after(project, "merge", "third")
    (folder / "a").write_text("changed\n")
    for words in (["checkout", "main", "--", "nosuch"], ["checkout", "nosuch"], ["pull"]):
        assert hint_after(project, *words) == "", words


def test_a_bisect_beside_a_protected_file_says_what_is_in_the_way(project):
    git = ["git", "-C", str(project.workspace)]
    subprocess.run([*git, "checkout", "-q", "other"], check=True)
    subprocess.run([*git, "bisect", "start"], check=True)
    assert "hint: .envrc" in hint_after(project, "bisect", "reset", "main")
    subprocess.run([*git, "bisect", "start"], check=True)
    (project.workspace / ".git" / "BISECT_START").write_text("other\n")
    assert "(.envrc" in hint_after(project, "bisect", "reset")


def test_git_that_stopped_at_a_conflict_is_not_to_be_run_again(project):
    folder = project.workspace
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for branch in ("main", "other"):
        subprocess.run([*git, "checkout", "-q", branch], check=True)
        (folder / "a").write_text(f"{branch}\n")
        subprocess.run([*git, "commit", "-qam", "changed"], check=True)
    said = hint_after(project, *AS_SOMEONE, "rebase", "main")
    assert "git stopped on its way (git status); a conflict is resolved as usual" in said
    assert "before --continue or --abort, outside of the sandbox: rm .envrc" in said
    assert "run this git command outside" not in said
    assert "run this git command outside" not in hint_after(project, "rebase", "--continue")


def test_a_stash_that_could_not_put_a_protected_file_back_is_not_made_twice(project):
    folder = project.workspace
    subprocess.run(["git", "-C", str(folder), "checkout", "-q", "other"], check=True)
    (folder / ".envrc").write_text("export A=2\n")
    said = hint_after(project, *AS_SOMEONE, "stash")
    assert "the stash was saved (git stash list): do not stash again" in said
    assert "utside of the sandbox: git checkout -- .envrc" in said
    assert "run this git command outside" not in said
    subprocess.run(["git", "-C", str(folder), "checkout", "--", ".envrc"], check=True)
    (folder / ".npmrc").write_text("x=1\n")
    (folder / ".pre-commit-config.yaml").write_text("x: 1\n")
    said = hint_after(project, *AS_SOMEONE, "stash", "-u")
    assert "utside of the sandbox: rm .pre-commit-config.yaml" in said
    listed = subprocess.run(["git", "-C", str(folder), "stash", "list"], capture_output=True)
    assert len(listed.stdout.splitlines()) == 2


def test_a_stash_that_could_not_remove_a_bare_repository_names_steps_that_finish_it(project):
    folder = project.workspace
    (folder / "a").write_text("changed\n")
    subprocess.run(["git", "init", "-q", "--bare", str(folder / "bare.git")], check=True)
    said = hint_after(project, *AS_SOMEONE, "stash", "-u")
    steps = said.partition("outside of the sandbox: ")[2]
    subprocess.run(["bash", "-e", "-c", steps], cwd=folder, check=True)
    git = ["git", "-C", str(folder)]
    status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, check=True)
    assert status.stdout == b""
    assert not (folder / "bare.git").exists()
    subprocess.run([*git, "stash", "pop", "-q"], check=True)
    assert (folder / "a").read_text() == "changed\n"
    assert (folder / "bare.git" / "config").exists()


@pytest.mark.parametrize("selects", [["--", "a"], ["-m", "x"], ["--keep-index"]])
def test_only_a_stash_of_everything_is_finished_with_a_reset(selects, tmp_path):
    """A change that is not in the stash would be lost."""
    denial = {"kind": "protected_path", "operation": "remove", "target": f"{tmp_path}/.envrc"}
    for rest, is_reset in ([["-u"], True], [["push", "-u", *selects], False]):
        hint = git_hint(["stash", *rest], 1, [denial], str(tmp_path))
        assert ("reset" in (hint or "")) == is_reset, rest


def test_recording_the_deletion_of_what_was_moved_aside_is_said(project):
    project("run", "--", "git", "checkout", "-q", "other")
    assert "git takes for deleted" in hint_after(project, "add", "-A")
    said = hint_after(project, *AS_SOMEONE, "commit", "-q", "-m", "x")
    assert "git takes for deleted what was moved aside: .envrc" in said, "the add staged it"
    project("run", "--", "touch", "c")
    project("run", "--", "git", "add", "c")
    said = hint_after(project, *AS_SOMEONE, "commit", "-q", "-m", "y")
    assert "git takes for deleted" not in said, "the commit before recorded it"
    project("run", "--", "git", "reset", "-q", "--hard", "main")
    project("run", "--", "git", "checkout", "-q", "main")
    assert hint_after(project, "add", "a") == "", "nothing is missing on this branch"


def test_a_merge_that_counts_too_late_is_explained(project):
    done = project("run", "--", "git", "merge", "other")
    wrong = any(line.split()[-2:] == ["|", "0"] for line in done.stdout.decode().splitlines())
    assert (b"its numbers for it are wrong" in done.stderr) == wrong
    assert hint_after(project, "merge", "other") == ""


def test_numbers_of_a_merge_are_called_wrong_only_where_they_are():
    moved = {"kind": "protected_path", "target": "/w/.vscode",
             "message": "/w/.vscode appeared and was moved to /w/k: it is"}  # fmt: skip
    counted = b" .vscode/tasks.json | 0\n a | 2 +-\n 2 files changed\n"
    assert "are wrong" in (miscounted(["merge", "x"], [moved], counted) or "")
    for right in (b" .vscode/tasks.json | 3 +++\n", b" other | 0\n", b""):
        assert miscounted(["pull"], [moved], right) is None, right


def test_a_commit_that_records_the_deletion_by_itself_is_said(project):
    project("run", "--", "git", "checkout", "-q", "other")
    project("run", "--", "touch", "c")
    project("run", "--", "git", "add", "c")
    said = hint_after(project, *AS_SOMEONE, "commit", "-q", "-m", "x")
    assert "git takes for deleted" not in said, "only c was recorded"
    said = hint_after(project, *AS_SOMEONE, "commit", "-q", "-am", "y")
    assert "git takes for deleted what was moved aside: .envrc" in said


@pytest.mark.parametrize("version", ["2", "4"])
def test_what_git_takes_for_deleted_is_read_from_its_index(project, version):
    folder = project.workspace
    steps = ("checkout -q other", "rm -q --cached a b", f"update-index --index-version {version}")
    for words in steps:
        subprocess.run(["git", "-C", str(folder), *words.split()], check=True)
    kept = folder / ".sandboxd-kept" / "abcd"
    kept.mkdir(parents=True)
    for number, name in enumerate((".envrc", ".vscode", ".vsco", "tasks.json", "a")):
        (kept / f"{number}-{name}").touch()
    for path in (".envrc", "a", ".vscode/tasks.json"):
        (folder / path).unlink()
    (folder / ".vscode").rmdir()
    known = {".envrc", ".vscode"}  # of version 4 nothing is known: each is named
    every = known | {".vsco", "tasks.json", "a"}
    assert set(taken_for_deleted(["add"], str(folder))) == (known if version == "2" else every)
    index = folder / ".git" / "index"
    index.unlink()
    os.mkfifo(index)  # as a command could: opening it waits for nothing
    assert ".envrc" in taken_for_deleted(["add"], str(folder))


def test_what_git_never_tracked_is_not_called_deleted(project):
    folder = project.workspace
    subprocess.run(["git", "-C", str(folder), "worktree", "add", "-q", "tree", "other"], check=True)
    subprocess.run(["rm", "-rf", str(folder / ".git" / "index")], check=True)
    for top in (folder, folder / "tree", folder / "tree" / ".vscode"):
        kept = top / ".sandboxd-kept" / "abcd"
        kept.mkdir(parents=True)
        (kept / "0-.tool-versions").touch()
        (kept / "1-tasks.json").touch()
        (kept / "2-.envrc").touch()
        for name in (".envrc", "tasks.json"):
            (top / name).unlink(missing_ok=True)
    assert taken_for_deleted(["add"], str(folder)) == [], "nothing is tracked without an index"
    assert taken_for_deleted(["commit"], str(folder)) == []
    assert taken_for_deleted(["add"], str(folder / "tree")) == [".envrc"]
    assert taken_for_deleted(["add"], str(folder / "tree" / ".vscode")) == ["tasks.json"]


def test_a_rebase_whose_state_was_moved_aside_says_how_to_go_on(project):
    editor = "GIT_SEQUENCE_EDITOR=sed -i -e 1aexec\\ false"
    roles = ("AUTHOR", "COMMITTER")
    names = [f"GIT_{role}_{what}" for role in roles for what in ("NAME=t", "EMAIL=t@example.org")]
    who = [word for name in names for word in ("-e", name)]
    done = project("run", "-e", editor, *who, "--", "git", "rebase", "-i", "--root")
    text = done.stderr.decode()
    assert "the state of the rebase was moved aside" in text
    assert "kept accept .git/rebase-merge" in text
    assert "kept accept .git/rebase-merge" in hint_after(project, "rebase", "--abort")


@pytest.mark.parametrize("way", ["folder", "folder/inner"])
def test_a_link_that_comes_after_the_check_is_not_followed(
    project: Ctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    """A command that runs meanwhile puts it there."""
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    folder = project.workspace
    (folder / "folder/inner").mkdir(parents=True)
    (folder / ".sandboxd-kept/0000").mkdir(parents=True)
    (folder / ".sandboxd-kept/0000/1-folder%2Finner%2Fplanted").write_text("x")
    checked = kept._check_target
    times = 0

    def check_and_swap(*args: Any) -> str:
        nonlocal times
        inside = checked(*args)
        times += 1
        if times == 2:
            (folder / way).rename(folder / "moved")
            (folder / way).symlink_to(outside if way == "folder" else outside / "inner")
        return inside

    monkeypatch.setattr(kept, "_check_target", check_and_swap)
    options = parse.parse(table.COMMANDS["kept accept"], ["--all", "--workspace", str(folder)])
    with pytest.raises(SandboxdError, match="cannot be put back"):
        kept.accept(options)
    assert times == 2
    assert not (outside / "inner/planted").exists()


@pytest.mark.parametrize("what", ["accept", "drop"])
def test_a_link_in_the_place_of_the_folder_is_not_followed(
    project: Ctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    """A running command names what it puts there as something of the user's is named."""
    home = tmp_path / "home"
    (home / "Pictures/2024-summer").mkdir(parents=True)
    (home / "Pictures/2024-summer/photo").write_text("x")
    folder = project.workspace
    (folder / ".sandboxd-kept/Pictures/2024-summer").mkdir(parents=True)
    entries = kept.entries

    def list_and_swap(workspace: str) -> Any:
        found = entries(workspace)
        if not (folder / ".sandboxd-kept").is_symlink():
            (folder / ".sandboxd-kept").rename(folder / "moved")
            (folder / ".sandboxd-kept").symlink_to(home)
        return found

    monkeypatch.setattr(kept, "entries", list_and_swap)
    words = ["--all", "--workspace", str(folder)]
    options = parse.parse(table.COMMANDS[f"kept {what}"], words)
    with pytest.raises(SandboxdError, match="cannot be"):
        getattr(kept, what)(options)
    assert (home / "Pictures/2024-summer/photo").exists()


@pytest.mark.parametrize("what", ["list", "diff", "accept", "drop"])
def test_what_another_user_keeps_is_not_taken_for_nothing(tmp_path, monkeypatch, what):
    (tmp_path / ".sandboxd-kept").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    options = parse.parse(table.COMMANDS[f"kept {what}"], ["--workspace", str(tmp_path)])
    with pytest.raises(SandboxdError, match=r"kept belongs to .*, and you cannot read it"):
        getattr(kept, what)(options)


def test_who_typed_sudo_is_told_to_use_it_for_what_another_user_keeps(tmp_path, monkeypatch):
    moved = f"stays as it is: it is protected, and was moved to {tmp_path}/.sandboxd-kept/a/0-b"
    denial = {"kind": "protected_path", "target": f"{tmp_path}/b", "message": f"b {moved}"}
    assert is_moved_aside(denial)
    for typed, prefix in ((os.getuid(), ""), (os.getuid() + 1, "sudo ")):
        monkeypatch.setenv("SUDO_UID", str(typed))
        assert after_moving([denial])[0].startswith(
            f"what was moved aside: {prefix}sandboxctl kept list"
        )
