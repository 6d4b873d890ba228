"""A daemon of root: folders of other users, and commands that run as the owner of a workspace."""

from __future__ import annotations

import os
import pwd
import subprocess

import pytest

from sandboxd_client.cli.hints.root import closed_folder

pytestmark = pytest.mark.requires("root")


def test_root_is_told_whose_folder_keeps_it_out(inside, folder):
    other = folder / "others"
    other.mkdir()
    os.chown(other, 12345, 12345)
    done = inside("run", "--write", str(other), "--", "touch", str(other / "made"))
    assert done.returncode == 1
    assert f"permission bits of {other} keep root out".encode() in done.stderr
    assert f"-w {other} runs it as user 12345".encode() in done.stderr
    says = "echo its own: Permission denied >&2; exit 3"
    kept = inside("run", "--write", str(other), "--", "sh", "-c", says)
    assert f"{other} belongs to user 12345, and a command has".encode() in kept.stderr
    failed = inside("run", "--write", str(other), "--", "sh", "-c", "echo its own >&2; exit 3")
    assert failed.stderr == b"its own\n", "nothing shows that the owner matters"
    folder.chmod(0o711)
    assert inside("run", "-w", str(other), "--", "touch", str(other / "made")).returncode == 0
    system = inside("run", "--", "touch", "/etc/made-by-a-test")
    assert b"all of /etc would have to be writable; do that outside of the" in system.stderr


def test_what_root_left_in_the_workspace_can_be_given_to_its_owner(inside, folder):
    folder.chmod(0o711)
    inside.workspace = folder / "others"
    left = inside.workspace / "build"
    (left / "deep").mkdir(parents=True)
    os.chown(inside.workspace, 12345, 12345)
    done = inside("run", "--", "touch", "build/deep/x").stderr.decode()
    assert f"{left}/deep belongs to root" in done
    assert f"chown -R 12345: {left}\n" in done


def test_a_build_folder_that_root_left_is_named_by_what_cmake_says_of_it(inside, folder):
    folder.chmod(0o711)
    inside.workspace = folder / "others"
    left = inside.workspace / "build"
    left.mkdir(parents=True)
    os.chown(inside.workspace, 12345, 12345)
    line = f"""echo 'CMake Error: Unable to (re)create the private pkgRedirects directory:
{left}/CMakeFiles/pkgRedirects' >&2; exit 1"""
    done = inside("run", "-c", line).stderr.decode()
    assert f"the command says: {left} could not be written: it belongs to root" in done
    assert f"chown -R 12345: {left}\n" in done


def test_root_is_told_that_it_is_the_owner_of_the_workspace_inside(inside, folder):
    folder.chmod(0o711)
    other = folder / "others"
    (other / "of-root").mkdir(parents=True)
    os.chown(other, 12345, 12345)
    for name, mode in (("open", 0o644), ("closed", 0o600)):
        (other / name).write_text("x")
        (other / name).chmod(mode)
    for line, path in (
        ("echo >> open", "open"),
        ("cat closed", "closed"),
        ("touch of-root/new", "of-root/new"),
        ("chmod 600 open", "open"),
        ('python3 -c \'open("open", "a")\'', "open"),
    ):
        told = inside("run", "-w", str(other), "--cwd", str(other), "-c", line).stderr.decode()
        assert f"perhaps denied: the command says: {other}/{path} could not be" in told
        assert "the owner of its workspace (user 12345)" in told
        assert "hint: " in told
        explained = inside("explain", "-w", str(other), "--cwd", str(other), "-c", line)
        assert f"{other}/{path}  " in explained.stderr.decode()
        assert b"own affair" not in explained.stderr
    checked = inside("check", "-w", str(other)).stdout.decode()
    assert "runs as    user 12345, the owner of what it may write" in checked
    assert "runs as" not in inside("check").stdout.decode()


def test_the_way_to_commit_as_the_owner_of_the_workspace_works_as_it_is_told(inside, folder):
    folder.chmod(0o711)
    other = folder / "others"
    other.mkdir()
    (folder / ".gitconfig").write_text("[user]\nname = R\nemail = root@example.org\n")
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    subprocess.run(["chown", "-R", "12345:12345", str(other)], check=True)
    where, commit = ("run", "-w", str(other), "--cwd", str(other)), ("commit", "-q", "-m", "x",
                                                                      "--allow-empty")  # fmt: skip
    refused = inside(*where, "--", "git", *commit, HOME=str(folder))
    assert b"hint: git runs as the owner of the workspace here (user 12345)" in refused.stderr
    named = ("-c", "user.name=NAME", "-c", "user.email=ADDRESS")
    assert inside(*where, "--", "git", *named, *commit).returncode == 0
    names = [
        f"-eGIT_{who}_{what}=x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    ]
    assert inside(*where, *names, "--", "git", *commit).returncode == 0
    config = inside(*where, "--", "git", "config", "user.name", "x")
    assert b"outside, do that as user 12345: git refuses root here" in config.stderr


@pytest.fixture
def repositories(folder):
    """A repository of user 12345, and a bare one of root that it could be pushed to."""
    folder.chmod(0o711)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run([*git, "init", "-q", "-b", "main", str(folder / "theirs")], check=True)
    subprocess.run(
        [*git, "-C", str(folder / "theirs"), "commit", "-qm", "x", "--allow-empty"], check=True
    )
    subprocess.run(
        [*git, "clone", "-q", "--bare", str(folder / "theirs"), str(folder / "r2.git")], check=True
    )
    subprocess.run(["chown", "-R", "12345:12345", str(folder / "theirs")], check=True)
    return folder / "theirs", folder / "r2.git"


def hint_of(done: subprocess.CompletedProcess[bytes]) -> str:
    return next(line for line in done.stderr.decode().splitlines() if "hint: " in line)


def test_a_push_to_a_repository_of_another_user_goes_by_a_file_as_it_is_told(inside, repositories):
    theirs, bare = repositories
    inside.workspace = theirs
    push = ("git", "push", str(bare), "HEAD:refs/heads/b")
    told = hint_of(inside("run", "--write", str(bare), "--", *push))
    assert f"{bare} belongs to root, and git runs as user 12345 here" in told
    assert "-w " not in told
    assert "git bundle create /PATH/FILE HEAD" in told
    assert f"as root: git -C {bare} fetch /PATH/FILE HEAD:BRANCH" in told
    file = theirs / "handed.bundle"
    assert inside("run", "--", "git", "bundle", "create", str(file), "HEAD").returncode == 0
    fetch = ["git", "-C", str(bare), "fetch", "-q", str(file), "HEAD:b"]
    assert subprocess.run(fetch, check=False).returncode == 0


@pytest.mark.parametrize("name", ["clone", "fetch"])
def test_a_repository_of_another_user_is_read_from_a_file_as_it_is_told(inside, repositories, name):
    theirs, bare = repositories
    inside.workspace = theirs
    for shown in ([], ["--read", str(bare)]):
        told = hint_of(inside("run", *shown, "--", "git", name, "-q", str(bare)))
        assert f"{bare} belongs to root, and git runs as user 12345 here" in told
        assert f"as root, git -C {bare} bundle create /PATH/FILE --all" in told
        assert f"--read {bare}" not in told
    file = theirs / "handed.bundle"
    create = ["git", "-C", str(bare), "bundle", "create", "-q", str(file), "--all"]
    subprocess.run(create, check=True)
    assert inside("run", "--", "git", name, "-q", str(file)).returncode == 0


def test_a_repository_of_another_user_is_not_read_as_root_either(inside, repositories, workspace):
    told = hint_of(inside("run", "--", "git", "clone", "-q", str(repositories[0])))
    assert "belongs to user 12345, and git runs as root here" in told
    trusted = ("GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
    flags = [f"-e{pair}" for pair in trusted]
    other = inside("run", *flags, "--", "git", "clone", "-q", str(repositories[0]))
    assert b"repositories of other users" not in other.stderr


def test_nobody_is_not_told_that_git_refuses_other_owners(inside, repositories):
    """Inside, files of users that are not mapped belong to 65534 too."""
    theirs, bare = repositories
    subprocess.run(["chown", "-R", "65534:65534", str(theirs)], check=True)
    inside.workspace = theirs
    told = inside("run", "--", "git", "clone", "-q", str(bare), "made").stderr.decode()
    assert f"--read {bare}" in told
    assert "other users" not in told
    done = inside("run", "--read", str(bare), "--", "git", "clone", "-q", str(bare), "made")
    assert done.returncode == 0


def test_nothing_is_proposed_that_the_owner_cannot_be_shown(inside, folder, repositories):
    theirs, bare = repositories
    inside.workspace = theirs
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    (closed / "note").write_text("x")
    os.rename(bare, closed / "r2.git")
    done = inside("run", "--", "cat", str(closed / "note")).stderr.decode()
    assert f"{closed} does not let user 12345 through" in done
    assert "--read" not in done
    told = hint_of(inside("run", "--", "git", "clone", "-q", str(closed / "r2.git")))
    assert f"cannot be shown: {closed} does not let user 12345 through. A file does" in told


def test_another_workspace_is_proposed_only_where_the_current_folder_does_not_count(inside, folder):
    folder.chmod(0o711)
    other = folder / "others"
    other.mkdir()
    os.chown(other, 12345, 12345)
    for words in (["cp", "note", str(other)], ["sh", "-c", f"echo > {other}/x"],
                  ["cp", str(inside.workspace / "note"), str(other)]):  # fmt: skip
        (inside.workspace / "note").write_text("x")
        told = hint_of(inside("run", "--write", str(other), "--", *words))
        assert "change its owner or its permission bits outside" in told
        assert "-w " not in told


def test_a_user_without_a_home_folder_has_one_for_the_command(inside, folder):
    folder.chmod(0o711)
    inside.workspace = folder / "others"
    inside.workspace.mkdir()
    os.chown(inside.workspace, 12345, 12345)
    done = inside("run", "-c", 'cd ~ && touch "$HOME/x" && pwd')
    assert (done.returncode, done.stdout) == (0, b"/tmp\n")
    lost = inside("run", "--", "git", "config", "--global", "user.name", "x")
    assert lost.returncode == 0
    assert "user 12345 has no home folder: $HOME is the private /tmp" in hint_of(lost)
    assert b"hint" not in inside("run", "--", "git", "config", "--global", "--list").stderr


def test_variables_of_root_that_are_replaced_are_named(inside, folder):
    folder.chmod(0o711)
    inside.workspace = folder / "others"
    inside.workspace.mkdir()
    os.chown(inside.workspace, 12345, 12345)
    asked = (["-e", "HOME"], ["-e", "HOME=/root"], ["--env-pass", "HOME"])
    for flags in asked:
        done = inside("run", *flags, "-c", "echo $HOME", HOME="/root")
        assert done.stdout == b"/tmp\n"
        assert b"HOME is the private /tmp, not /root: the command runs as user 12345" in done.stderr
    chosen = inside("run", "-e", "HOME=/srv", "-c", "echo $HOME", HOME="/root")
    assert (chosen.stdout, chosen.stderr) == (b"/srv\n", b"")
    assert inside("run", "-q", "-e", "HOME", "true", HOME="/root").stderr == b""
    assert inside("run", "true", HOME="/root").stderr == b""
    done = inside("run", "-c", "echo $HOME $USER", HOME=str(folder), USER="me")
    assert (done.stdout, done.stderr) == (b"/tmp\n", b"")


def test_a_program_that_the_owner_cannot_be_shown_is_not_proposed(inside, folder):
    folder.chmod(0o711)
    tools = folder / "closed" / "bin"
    tools.mkdir(parents=True)
    (tools / "tool").write_text("#!/bin/sh\n")
    (tools / "tool").chmod(0o755)
    (folder / "closed").chmod(0o700)
    inside.workspace = folder / "others"
    inside.workspace.mkdir()
    os.chown(inside.workspace, 12345, 12345)
    done = inside("run", "--", "tool", PATH=f"{tools}:/usr/bin:/bin")
    assert done.returncode == 127
    said = done.stderr.decode()
    assert f"{folder / 'closed'} does not let user 12345 through" in said
    assert "--read" not in said


def test_the_user_nobody_is_not_read_as_the_pronoun(inside, folder):
    folder.chmod(0o711)
    (folder / "closed" / "repository").mkdir(parents=True)
    (folder / "closed").chmod(0o700)
    inside.workspace = folder / "others"
    inside.workspace.mkdir()
    nobody = pwd.getpwnam("nobody")
    for path in (inside.workspace, folder / "closed" / "repository"):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    said = inside("run", "--", "git", "clone", f"{folder}/closed/repository").stderr.decode()
    assert "the user nobody cannot get there: " in said
    assert "closed does not let the user nobody through: put it where the user nobody can" in said


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_in_a_folder_of_another_owner_its_repository_is_proposed(inside, folder, mode):
    folder.chmod(0o711)
    top = folder / "others"
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    (top / "sub").mkdir(mode=mode)
    subprocess.run(["chown", "-R", "12345:12345", str(top)], check=True)
    os.chown(top / "sub", 0, 0)
    inside.workspace = top / "sub"
    said = hint_of(inside("run", "--", "git", "status"))
    flags = said.partition(": add ")[2].split()
    assert flags[:2] == ["-w", str(top)]
    if mode == 0o700:
        refused = inside("run", *flags[:2], "--", "git", "status").stderr.decode()
        assert f"add --cwd {top}" in refused
        assert "--read" not in refused
    done = inside("run", *flags, "--", "git", "status")
    assert done.returncode == 0, done.stderr
    for words in (["clone", "https://h.test/x"], ["init", "/usr/x"], ["ls-remote", "none"]):
        failed = inside("run", "--", "git", *words)
        assert failed.returncode == 128
        assert f"around it, {top}".encode() not in failed.stderr, "that is not concerned"


def test_no_folder_of_the_system_is_proposed_as_the_workspace(inside, folder):
    folder.chmod(0o711)
    inside.workspace = folder / "others"
    inside.workspace.mkdir()
    os.chown(inside.workspace, 12345, 12345)
    done = inside("run", "--read", "/etc/shadow", "--", "cat", "/etc/shadow").stderr.decode()
    assert "belongs to root" in done
    assert "-w /etc" not in done


def test_a_link_in_a_closed_folder_cannot_be_shown(folder):
    """As the python of a virtual environment, whose target everybody can reach."""
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    (closed / "python").symlink_to("/bin/sh")
    folder.chmod(0o711)
    assert closed_folder(str(closed / "python"), 12345) == str(closed)
    assert closed_folder("/bin/sh", 12345) is None
