"""Folders of a home as the workspace, and git settings in it, as `sandboxctl run` meets them.

The home is `HOME` of the caller and of the daemon, which need not be the user database's.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def at_home(ctl, start_daemon):
    """(run a command in a folder of the home, the home). Not below /tmp, which a sandbox has of its
    own: nothing that the presets add is shown there."""
    own = Path(tempfile.mkdtemp(dir=Path.home(), prefix="sandboxd-test-"))
    daemon = start_daemon(env={"HOME": str(own), "SANDBOXD_MASKS_ADD": '["~/src/secrets"]'})
    ctl.socket_path = daemon.socket

    def run(folder, *words, home=own):
        folder.mkdir(parents=True, exist_ok=True)
        return subprocess.run(
            ctl.argv("run", *words), capture_output=True, text=True, timeout=60, cwd=folder,
            env=ctl.env(HOME=str(home)),
        )  # fmt: skip

    yield run, own
    shutil.rmtree(own)


def test_a_mask_and_git_settings_below_home_are_those_of_the_variable(at_home):
    run, home = at_home
    (home / "src/secrets").mkdir(parents=True)
    (home / "src/secrets/key").write_text("secret\n")
    (home / ".gitconfig").write_text("[user]\n\tname = Of HOME\n")
    done = run(home / "src", "-c", "git config user.name; ls secrets")
    assert done.stdout == "Of HOME\n"
    assert "src/secrets is masked" in done.stderr


@pytest.mark.parametrize("preset", ["workspace-write", "read-only"])
@pytest.mark.parametrize("name", [".ssh", ".aws", ".config/gh"])
def test_a_folder_of_secrets_is_no_workspace(at_home, name, preset):
    run, home = at_home
    (home / name).mkdir(parents=True)
    (home / name / "key").write_text("secret\n")
    done = run(home / name, "--preset", preset, "--", "cat", "key")
    assert (done.returncode, done.stdout) == (125, "")
    assert f"{home / name} cannot be the workspace: it is hidden by default" in done.stderr
    assert "--write" not in done.stderr
    named = run(home / name, "--write", ".", "--", "cat", "key")
    assert (named.returncode, named.stdout) == (0, "secret\n")  # control: who names it may


@pytest.mark.parametrize("name", ["bin", ".local/bin", ".config/systemd/user"])
def test_a_folder_of_programs_is_no_workspace(at_home, name):
    run, home = at_home
    done = run(home / name, "--", "touch", "made")
    assert done.returncode == 125
    assert "cannot be the workspace" in done.stderr
    assert not (home / name / "made").exists()
    assert run(home / "src" / "bin", "--", "touch", "made").returncode == 0


def test_home_of_the_caller_counts_where_the_daemon_has_another(at_home, folder):
    run, _ = at_home
    other = folder / "other"
    assert run(other / ".ssh", "--", "true").returncode == 0  # control: nobody's home
    done = run(other / ".ssh", "--", "true", home=other)
    assert done.returncode == 125
    assert "cannot be the workspace" in done.stderr


@pytest.mark.requires("bubblewrap", "root")
def test_git_settings_in_included_files_are_those_of_outside(start_daemon, ctl, folder):
    """The daemon has a user database of its own, which names the home."""
    own = Path(tempfile.mkdtemp(dir=Path.home(), prefix="sandboxd-test-"))
    users = folder / "passwd"
    users.write_text(f"root:x:0:0:root:{own}:/bin/sh\n")
    script = 'mount --make-rprivate / && mount --bind "$0" /etc/passwd && exec "$@"'
    ctl.socket_path = start_daemon(
        config="[peers]\nallow_other_namespaces = true\n",
        prefix=["unshare", "--mount", "sh", "-c", script, str(users)],
    ).socket
    project = own / "src" / "project"
    project.mkdir(parents=True)
    (own / "dotfiles").mkdir()
    (own / "dotfiles" / "me").write_text("[user]\n\tname = Included\n\temail = me@example.org\n")
    (own / "dotfiles" / "ignored").write_text("*.log\n")
    (own / "dotfiles" / "here").write_text("[core]\n\tabbrev = 21\n")
    (own / "dotfiles" / "other").write_text("not shown\n")
    (own / ".gitconfig").write_text(
        "[include]\n\tpath = dotfiles/me\n"
        '[includeIf "gitdir:~/src/"]\n\tpath = ~/dotfiles/here\n'
        "[core]\n\texcludesFile = ~/dotfiles/ignored\n"
    )
    subprocess.run(["git", "init", "-q", project], check=True)

    def run(line):
        return subprocess.run(
            ctl.argv("run", "-c", line), capture_output=True, text=True, timeout=60, cwd=project,
            env=ctl.env(HOME=str(own)),
        )  # fmt: skip

    try:
        settings = run("git config user.name && git config core.abbrev")
        assert (settings.stdout.split(), settings.stderr) == (["Included", "21"], "")
        commit = (
            "touch a b.log && git add . && git commit -qm x && git log --format=%an --name-only"
        )
        assert run(commit).stdout.split() == ["Included", "a"]
        assert run("cat ~/dotfiles/other").returncode == 1
    finally:
        shutil.rmtree(own)


@pytest.mark.parametrize("command", ["run", "explain"])
def test_a_project_without_git_is_named_where_a_command_leaves_its_subfolder(inside, command):
    """The workspace is the subfolder alone; the project around it is named, and works as named."""
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix="sandboxd-test-") as made:
        project = Path(made) / "plain"
        inside.workspace = project / "src"
        inside.workspace.mkdir(parents=True)
        for line, around in (("echo x > ../out", project), ("touch ../../out", made)):
            done = inside(command, "--", "sh", "-c", line)
            said = done.stderr.decode()
            assert done.returncode != 0
            assert f"only {project}/src, because no git repository holds it" in said, said
            assert said.rstrip().endswith(f" add --workspace {around}"), said
            assert "protected" not in said
        named = ("--workspace", str(project))
        assert inside(command, *named, "--", "sh", "-c", "echo x > ../out").returncode == 0
        for name in ("objects", "refs", "HEAD"):
            (project / "src/.git" / name).mkdir(parents=True)
        said = inside(command, "--", "sh", "-c", "echo x > ../other").stderr.decode()
        assert "that would open a folder around the workspace" in said
        assert "--workspace" not in said
