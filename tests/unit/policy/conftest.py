"""A machine made of temporary folders: a home, a host whose root is shown, caches."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandboxd.config.config import Additions, Ceiling, Config
from sandboxd.policy.mounts.mount_plan import Host
from sandboxd.policy.mounts.own_paths import OwnPaths
from sandboxd.policy.paths import homes
from sandboxd.policy.plan import Plan
from sandboxd.policy.request import Machine, PolicyRequest
from sandboxd.policy.resolve import plan_for
from sandboxd_proto.manifest import Manifest

GIT_ENV = {
    "PATH": "/usr/bin:/bin",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
    # Submodules from local folders.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always",
}  # fmt: skip


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


@pytest.fixture
def home(base: Path) -> Path:
    path = base / "home" / "me"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def workspace(home: Path) -> Path:
    path = home / "src" / "project"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def machine_with(base: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    # Other tests make and remove secrets in the homes of this host.
    monkeypatch.setattr(homes, "ROOT", str(base / "root"))
    monkeypatch.setattr(homes, "FOLDER", str(base / "home"))

    def make(**changes: Any) -> Machine:
        config = Config(
            ceiling=Ceiling(roots=changes.pop("roots", None)),
            masks=Additions(add=changes.pop("masks", [])),
            protect=Additions(add=changes.pop("protect", [])),
        )
        values: dict[str, Any] = {
            "config": config,
            "host": Host(system=(("/usr", None),), homes=(str(home),)),
            "own": OwnPaths(),
            "home": str(home),
            "uid": 1000,
            "caches_root": str(base / "caches"),
        }
        return Machine(**(values | changes))

    return make


@pytest.fixture
def machine(machine_with: Callable[..., Machine]) -> Machine:
    return machine_with()


@pytest.fixture
def plan(machine: Machine) -> Callable[..., Plan]:
    """`plan(preset=…, workspace=…, machine=…, **manifest fields)`."""

    def make(**given: Any) -> Plan:
        on = given.pop("machine", machine)
        wish = {k: given.pop(k) for k in ("preset", "workspace", "cwd") if k in given}
        wish = {k: v if v is None else str(v) for k, v in wish.items()}
        return plan_for(PolicyRequest(manifest=Manifest(**given), manifest_given=True, **wish), on)

    return make


@pytest.fixture
def git(base: Path) -> Callable[..., str]:
    """The real git, without settings of a user."""

    def run(folder: Path, *arguments: str) -> str:
        env = {**GIT_ENV, "HOME": str(base)}
        done = subprocess.run(
            ["git", *arguments], cwd=folder, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout

    return run


@pytest.fixture
def repository(workspace: Path, git: Callable[..., str]) -> Path:
    git(workspace, "init", "-q", "-b", "main")
    (workspace / "file").write_text("1\n")
    git(workspace, "add", "file")
    git(workspace, "commit", "-q", "-m", "first")
    return workspace
