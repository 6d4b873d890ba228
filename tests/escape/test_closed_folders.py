"""A command closes a folder of its user (chmod), so that the daemon finds nothing in it, and the
next one opens it again: what lies in there stays masked and protected."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
