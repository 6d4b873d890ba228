"""A command closes a folder of its user (chmod), so that the daemon finds nothing in it, and the
next one opens it again: what lies in there stays masked and protected."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.attacks import Box, freely, python, weakest
from support.backends import running_backend
from support.git_attacks import content, make_repository
from support.rpc import RpcError

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]
CLOSE = python("""
    os.chmod(args[0], int(args[1], 8))
    worked()
""")
_OPEN = """
    try:
        os.chmod(args[0], 0o755)
    except OSError:
        pass
"""
OPEN_AND_WRITE = python(f"""{_OPEN}
    with open(args[1], "a") as file:
        file.write("# changed")
    worked()
""")
OPEN_AND_READ = python(f"""{_OPEN}
    worked() if open(args[1]).read() == "token" else blocked("it is masked")
""")
MODES = ["000", "311", "600"]  # nothing, not listed, not searched


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(workspace: Path) -> Iterator[Path]:
    folder = workspace / "a"
    folder.mkdir()
    yield folder
    os.chmod(folder, 0o755)


@pytest.mark.parametrize("name", [".git/hooks/post-checkout", ".git/config"])
def test_a_repository_in_it_stays_protected(
    box: Box, workspace: Path, opened: Path, mode: str, name: str
) -> None:
    victim = make_repository(opened / "b") / name
    before = content(victim)
    policy = {"preset": "workspace-write", "workspace": str(workspace)}
    assert freely(OPEN_AND_WRITE, opened, victim).worked
    assert content(victim) != before
    victim.write_bytes(before) if before is not None else victim.unlink()
    assert box.attack(CLOSE, opened, mode, **policy).worked
    if box.firm:
        box.attack(OPEN_AND_WRITE, opened, victim, **policy)
    else:  # it cannot keep a command from opening the folder
        with suppress(RpcError):
            box.attack(OPEN_AND_WRITE, opened, victim, **policy)
    os.chmod(opened, 0o755)
    assert content(victim) == before


@pytest.fixture(scope="module")
def masked(
    linux_backend: Box, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Box, Path]]:
    """A daemon whose config hides a file in a folder, and that file."""
    secret = tmp_path_factory.mktemp("masked").resolve() / "a" / "b" / "key"
    secret.parent.mkdir(parents=True)
    secret.write_text("token")
    with running_backend(linux_backend.backend, config=f'[masks]\nadd = ["{secret}"]\n') as daemon:
        box = Box(linux_backend.backend, daemon)
        yield box, secret
        box.close()


def test_a_secret_in_it_stays_masked(masked: tuple[Box, Path], mode: str) -> None:
    box, secret = masked
    folder = secret.parent.parent
    manifest = weakest(folder.parent)
    assert freely(OPEN_AND_READ, folder, secret).worked
    try:
        assert box.attack(CLOSE, folder, mode, manifest=manifest).worked
        assert not box.attack(OPEN_AND_READ, folder, secret, manifest=manifest).worked
    finally:
        os.chmod(folder, 0o755)
    assert not box.attack(OPEN_AND_READ, folder, secret, manifest=manifest).worked


def _included(project: Path) -> tuple[Path, Path]:
    (project / "inc").mkdir()
    (project / "inc" / "settings").write_text("[core]\n\tfsmonitor = tools/run\n")
    _set(project, "include.path", "../inc/settings")
    return project / "inc", _program(project / "tools" / "run")


def _link_to_program(project: Path) -> tuple[Path, Path]:
    (project / "tools").mkdir()
    (project / "tools" / "run").symlink_to("../real/run")
    _set(project, "core.fsmonitor", "tools/run")
    return project / "tools", _program(project / "real" / "run")


def _link_to_hooks(project: Path) -> tuple[Path, Path]:
    (project / "tools").mkdir()
    (project / "tools" / "hooks").symlink_to("../real")
    _set(project, "core.hooksPath", "tools/hooks")
    return project / "tools", _program(project / "real" / "pre-commit")


def _link_in_hooks(project: Path) -> tuple[Path, Path]:
    (project / "hooks").mkdir()
    (project / "hooks" / "pre-commit").symlink_to("../real/run")
    _set(project, "core.hooksPath", "hooks")
    return project / "hooks", _program(project / "real" / "run")


def _module(project: Path) -> tuple[Path, Path]:
    _set(project, "core.fsmonitor", "python3 -m tools.run")
    return project / "tools", _program(project / "tools" / "run.py")


def _set(project: Path, name: str, value: str) -> None:
    subprocess.run(["git", "-C", project, "config", name, value], check=True)


def _program(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    return path


@pytest.mark.parametrize(
    "make", [_included, _link_to_program, _link_to_hooks, _link_in_hooks, _module]
)
def test_what_settings_and_links_in_it_lead_to_stays_protected(
    box: Box, workspace: Path, make: Callable[[Path], tuple[Path, Path]]
) -> None:
    """One command keeps it closed while another is planned, and opens it again: here the test."""
    folder, victim = make(make_repository(workspace / "project"))
    policy = {"preset": "workspace-write", "workspace": str(workspace / "project")}
    before = content(victim)
    assert freely(OPEN_AND_WRITE, folder, victim).worked
    assert content(victim) != before
    victim.write_bytes(before or b"")
    box.attack(OPEN_AND_WRITE, folder, victim, **policy)
    assert content(victim) == before
    os.chmod(folder, 0)
    try:
        if os.geteuid() == 0 or not box.firm:  # root looks into every folder
            with suppress(RpcError):
                box.attack(OPEN_AND_WRITE, folder, victim, **policy)
        else:
            with pytest.raises(RpcError) as refused:
                box.attack(OPEN_AND_WRITE, folder, victim, **policy)
            assert f"chmod u+rwx {folder}" in refused.value.data["remedy"]
    finally:
        os.chmod(folder, 0o755)
    assert content(victim) == before
    box.attack(OPEN_AND_WRITE, folder, victim, **policy)
    assert content(victim) == before
