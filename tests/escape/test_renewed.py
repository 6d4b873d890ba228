"""The host changes what is to be hidden or protected: a persistent sandbox that was made before
does not go on with less, and a run that such a change meets has no output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon, stdout_of
from support.rpc import Connection, RpcError

pytestmark = [pytest.mark.isolation, pytest.mark.requires("bubblewrap", "git")]
HOOK = "#!/bin/sh\ntouch {}\n"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running_daemon() as one:
        yield one


@pytest.fixture
def connection(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as one:
        yield one


class Project:
    """A repository of the user, whose settings are those of the daemon's user."""

    def __init__(self, folder: Path, daemon: Daemon) -> None:
        self.folder = folder
        self.home = daemon.home
        self.request = {"preset": "workspace-write", "workspace": str(folder)}
        self.git("init", "-q")
        (self.home / ".gitconfig").unlink(missing_ok=True)

    def git(self, *args: str) -> None:
        own = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
        env = {**dict.fromkeys(own, "a"), "HOME": str(self.home), "PATH": os.environ["PATH"]}
        command = ["git", "-C", str(self.folder), *args]
        subprocess.run(command, check=True, env=env, stdin=subprocess.DEVNULL)

    def write(self, name: str, text: str = "#!/bin/sh\n") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def link(self, name: str, target: str) -> None:
        """As `ln -sfn`."""
        made = self.folder / f"{name}.new"
        made.symlink_to(target)
        made.rename(self.folder / name)


def _global(project: Project) -> tuple[str, Callable[[], object]]:
    project.write(".githooks/pre-commit")
    return ".githooks/pre-commit", lambda: project.git(
        "config", "--global", "core.hooksPath", ".githooks"
    )


def _in_place(project: Project) -> tuple[str, Callable[[], object]]:
    project.write(".githooks/pre-commit")

    def change() -> None:
        with (project.folder / ".git" / "config").open("a") as config:
            config.write("[core]\n\thooksPath = .githooks\n")

    return ".githooks/pre-commit", change


def _included(project: Project) -> tuple[str, Callable[[], object]]:
    project.write(".githooks/pre-commit")
    included = project.home / "included"
    included.write_text("[user]\n\tname = x\n")
    project.git("config", "include.path", str(included))
    setting = "[core]\n\thooksPath = .githooks\n"
    return ".githooks/pre-commit", lambda: included.write_text(setting)


def _hook_link(project: Project) -> tuple[str, Callable[[], object]]:
    project.write("scripts/one")
    project.write("scripts/two")
    (project.folder / ".git" / "hooks").mkdir(exist_ok=True)
    project.link(".git/hooks/pre-commit", "../../scripts/one")
    return "scripts/two", lambda: project.link(".git/hooks/pre-commit", "../../scripts/two")


@pytest.mark.parametrize("prepare", [_global, _in_place, _included, _hook_link])
@pytest.mark.parametrize("how", ["control", "fresh", "persistent"])
def test_what_git_runs(
    connection: Connection, daemon: Daemon, tmp_path: Path, how: str,
    prepare: Callable[[Project], tuple[str, Callable[[], object]]],
) -> None:  # fmt: skip
    (tmp_path / "project").mkdir()
    project = Project(tmp_path / "project", daemon)
    script, change = prepare(project)
    ran = tmp_path / "ran"
    request: dict[str, Any] = dict(project.request)
    if how == "persistent":
        request = {"sandbox": connection.call("sandbox/create", request)["sandbox"]}
        stdout_of(connection.call("execute", {"argv": ["true"], **request}))
    change()
    path = project.folder / script
    if how == "control":
        path.write_text(HOOK.format(ran))
    else:
        attack = ["sh", "-c", 'printf "$1" >"$2"; chmod +x "$2"', "sh", HOOK.format(ran), str(path)]
        if how == "persistent":
            with pytest.raises(RpcError, match="the sandbox is ended") as refused:
                connection.call("execute", {"argv": attack, **request})
            assert refused.value.kind == "SandboxUnavailable"
            assert str(path).startswith(refused.value.message.split()[4])
            assert "sandbox/create" in str(refused.value.data)
        else:
            connection.call("execute", {"argv": attack, **request})
    project.git("commit", "-q", "--allow-empty", "-m", "x")
    assert ran.exists() == (how == "control")


def _secret(folder: Path, way: str) -> tuple[Path, Callable[[], object]]:
    """A folder `secret` with a file, and what exchanges it."""
    secret, old, new = folder / "secret", folder / "old", folder / "new"
    for one, text in ((old, "OLD"), (new, "NEW")):
        one.mkdir()
        (one / "token").write_text(text)
    if way == "folder":
        old.rename(secret)
    else:
        secret.symlink_to("old")

    def change() -> None:
        if way == "folder":
            secret.rename(old)
            new.rename(secret)
        elif way == "link to folder":
            secret.unlink()
            new.rename(secret)
        else:
            (folder / "link").symlink_to("new")
            (folder / "link").rename(secret)

    return secret, change


WAYS = pytest.mark.parametrize("way", ["folder", "link to folder", "link to link"])
WHAT = pytest.mark.parametrize("what", ["denied", "default"])


def _manifest(what: str, secret: Path, folder: Path, *writable: Path) -> dict[str, Any]:
    denied = {"fs_deny": [str(secret)]} if what == "denied" else {}
    writes = {"fs_write_allow": list(map(str, writable))} if writable else {}
    return {"fs_read_allow": [str(folder)], "network": "deny", **denied, **writes}


@pytest.fixture
def place(daemon: Daemon, tmp_path: Path, what: str) -> Iterator[Path]:
    """A folder in which `secret` is to be hidden: by a manifest, or because ~/.aws leads there."""
    folder = tmp_path / "place"
    folder.mkdir()
    default = daemon.home / ".aws"
    if what == "default":
        default.symlink_to(folder / "secret")
    yield folder
    default.unlink(missing_ok=True)


@WAYS
@WHAT
def test_a_secret_in_a_persistent_sandbox(
    connection: Connection, place: Path, what: str, way: str
) -> None:
    secret, change = _secret(place, way)
    token = str(secret / "token")
    manifest = _manifest(what, secret, place)
    made = connection.call("sandbox/create", {"manifest": manifest})["sandbox"]
    fresh = {"argv": ["cat", token], "manifest": manifest}
    inside = {"argv": ["cat", token], "sandbox": made}
    shown = {"argv": ["cat", str(place / "new" / "token")], "sandbox": made}
    assert connection.call("execute", inside)["stdout"]["data"] == ""
    assert connection.call("execute", shown)["stdout"]["data"] == "NEW"
    change()
    for method, params in (("fs/read", {"path": token, "sandbox": made}), ("execute", inside)):
        with pytest.raises(RpcError) as refused:
            connection.call(method, params)
        assert refused.value.kind in ("SandboxUnavailable", "NotFound")
    assert connection.call("execute", fresh)["stdout"]["data"] == ""


@WAYS
@WHAT
@pytest.mark.parametrize("kind", ["run", "persistent"])
def test_a_secret_while_a_command_runs(
    connection: Connection, place: Path, tmp_path: Path, what: str, way: str, kind: str
) -> None:
    secret, change = _secret(place, way)
    shared = tmp_path / "shared"
    shared.mkdir()
    manifest = _manifest(what, secret, place, shared)
    script = 'touch "$1/up"; until [ -e "$1/go" ]; do sleep 0.02; done; cat "$2"; touch "$1/read"'
    argv = ["sh", "-c", script, "sh", str(shared), str(secret / "token")]
    request: dict[str, Any] = {"argv": argv}
    if kind == "run":
        request["manifest"] = manifest
    else:
        request["sandbox"] = connection.call("sandbox/create", {"manifest": manifest})["sandbox"]
    number = connection.start("execute", request)
    while not (shared / "up").exists():
        pass
    change()
    (shared / "go").touch()
    result = connection.result(number)
    assert result["outcome"] == "isolation_lost"
    assert result["stdout"]["data"] == ""
