"""The boxes that attacks are tried in, one for each Linux backend, and what they are after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box, Build, Victim, compiled
from support.backends import LINUX, running_backend
from support.bystander import Bystander, bystander

PROGRAMS = Path(__file__).parent / "programs"
# In the environment of every daemon here: no command may ever see it.
DAEMON_SECRET = "known-to-the-daemon-only"


@pytest.fixture(scope="session", params=LINUX)
def linux_backend(request: pytest.FixtureRequest) -> Iterator[Box]:
    """One daemon for all attacks on a backend."""
    with running_backend(request.param, env={"TEST_SECRET": DAEMON_SECRET}) as daemon:
        box = Box(request.param, daemon)
        yield box
        box.close()


@pytest.fixture
def box(linux_backend: Box) -> Iterator[Box]:
    """The same daemon on a connection of this test's own, which must find nothing running."""
    box = Box(linux_backend.backend, linux_backend.daemon)
    yield box
    box.close()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs").resolve()


@pytest.fixture(scope="session")
def build(programs: Path) -> Build:
    """Compile `programs/NAME.c`: the command line of the attack."""

    def build(name: str, *flags: str) -> tuple[str, ...]:
        return compiled(PROGRAMS / f"{name}.c", programs, *flags)

    return build


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace, which no manifest makes writable."""
    folder = tmp_path.resolve() / "outside"
    folder.mkdir()
    return folder


@pytest.fixture
def victim(outside: Path) -> Victim:
    return Victim(outside / "victim")


@pytest.fixture
def host_process(outside: Path) -> Iterator[Bystander]:
    """A process of the host with secrets in reach of any other process of its user."""
    with bystander(outside) as found:
        yield found
