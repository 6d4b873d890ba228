"""A persistent sandbox outlives its user's ordinary work, and that of its commands. What it was
made for is looked at again before each use."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon, stdout_of
from support.rpc import Connection, RpcError

pytestmark = pytest.mark.requires("bubblewrap", "git")
OWN = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

OUTSIDE = (
    "echo one >a.txt; git add a.txt; git commit -qm one",
    "git checkout -qb topic; mkdir -p src/deep; echo x >src/deep/x.py; git add src; "
    "git commit -qm two; git checkout -q main; git merge -q topic",
    "echo two >a.txt; git stash -q; git stash pop -q; git commit -qam three; git tag v1; git gc -q",
    "git config --global user.name someone; git config --global alias.st status",
    "mkdir -p node_modules/.bin node_modules/pad; echo 1 >node_modules/pad/index.js; "
    "ln -s ../pad/index.js node_modules/.bin/pad; echo '{}' >package.json",
    "mkdir -p build/a/b/c/d/e/f/g; touch build/a/b/c/d/e/f/g/h; rm -r build",
    "git clone -q . vendor/lib",
    "mv src source; ln -s source latest; ln -sfn node_modules latest; chmod 700 source",
    "ln a.txt b.txt; git add a.txt b.txt; git commit -qm four; git checkout -q topic; "
    "git checkout -q main",
    'mkdir -p "$HOME/.cache/x" "$HOME/.config/app" "$HOME/projects"; date >"$HOME/.bash_history"',
    'mkdir -p "$HOME/dotfiles"; date >"$HOME/dotfiles/rc"; ln -sfn dotfiles/rc "$HOME/.vimrc"',
)
INSIDE = (
    "echo i >inside.txt; git add inside.txt; git commit -qm inside",
    "git checkout -qb own; echo b >>inside.txt; git commit -qam b; git checkout -q main; "
    "git merge -q own",
    "git init -q new; cd new; echo 1 >f; git add f; git commit -qm x",
    "mkdir -p target/debug/deps; touch target/debug/deps/a.o; mkdir closed; chmod 000 closed",
    "git rebase -q own; git stash -q -u; git stash pop -q",
    "ln -s inside.txt link; ln -sfn a.txt link; mv inside.txt moved.txt; git gc -q",
    "git clone -q . cloned; mkdir -p x/y/z; echo 1 >x/y/z/w; rm -rf target",
)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as one:
        yield one


@pytest.fixture
def connection(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as one:
        yield one


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def _on_the_host(daemon: Daemon, workspace: Path, script: str) -> None:
    env = {**OWN, "HOME": str(daemon.home), "PATH": os.environ["PATH"]}
    subprocess.run(["sh", "-ec", script], cwd=workspace, env=env, check=True)


@pytest.mark.parametrize("home_shows", [False, True])
def test_it_outlives_ordinary_work(
    connection: Connection, daemon: Daemon, workspace: Path, home_shows: bool
) -> None:
    _on_the_host(daemon, workspace, "git init -qb main; git commit -q --allow-empty -m zero")
    request: dict[str, Any] = {"preset": "workspace-write", "workspace": str(workspace)}
    if home_shows:
        request["manifest"] = {"fs_read_allow": [str(daemon.home)]}
    kept = {"sandbox": connection.call("sandbox/create", request)["sandbox"]}

    def inside(script: str) -> None:
        argv = ["sh", "-ec", script]
        result = connection.call("execute", {"argv": argv, "manifest": {"env": OWN}, **kept})
        assert (result["outcome"], result["exit_code"]) == ("exited", 0), (script, result)

    inside("touch /tmp/mine")
    for script in OUTSIDE:
        _on_the_host(daemon, workspace, script)
        inside("test -e /tmp/mine")
    for script in INSIDE:
        inside(script)
        inside("test -e /tmp/mine")
    assert connection.call("fs/list", {"path": str(workspace), **kept})["entries"]


def test_a_workspace_that_is_gone_is_said(connection: Connection, workspace: Path) -> None:
    request = {"preset": "workspace-write", "workspace": str(workspace)}
    kept = {"sandbox": connection.call("sandbox/create", request)["sandbox"]}
    stdout_of(connection.call("execute", {"argv": ["true"], **kept}))
    shutil.rmtree(workspace)
    for method, params in (("execute", {"argv": ["true"]}), ("fs/list", {"path": "/tmp"})):
        with pytest.raises(RpcError, match="was removed"):
            connection.call(method, {**params, **kept})


def test_forwards_are_refused_too(connection: Connection, daemon: Daemon, workspace: Path) -> None:
    _on_the_host(daemon, workspace, "git init -q; mkdir hooks")
    request = {"preset": "workspace-write", "workspace": str(workspace)}
    made = connection.call("sandbox/create", request)["sandbox"]
    _on_the_host(daemon, workspace, "git config --global core.hooksPath hooks")
    with pytest.raises(RpcError, match=r"hooks is protected now"):
        connection.call("sandbox/forward", {"sandbox": made, "port": 8000})
    _on_the_host(daemon, workspace, "git config --global --unset core.hooksPath")
    with pytest.raises(RpcError, match="there is no sandbox"):
        connection.call("execute", {"argv": ["true"], "sandbox": made})


def test_what_a_grant_unmasks_stays(connection: Connection, daemon: Daemon) -> None:
    """A request that names a secret shows it: no later look takes that for a mask that is lost."""
    secret = daemon.home / ".netrc"
    secret.write_text("token")
    manifest = {"fs_read_allow": [str(daemon.home), str(secret)], "network": "deny"}
    kept = {"sandbox": connection.call("sandbox/create", {"manifest": manifest})["sandbox"]}
    for name in ("one", "two"):
        (daemon.home / name).write_text(name)
        shown = connection.call("execute", {"argv": ["cat", str(secret)], **kept})
        assert stdout_of(shown) == "token"
    secret.unlink()
