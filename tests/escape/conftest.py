"""The boxes that attacks are tried in, one for each Linux backend, and what they are after."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box, Build, Victim, compiled
from support.backends import CLONED, LINUX, product_name, running_backend
from support.bystander import Bystander, bystander

PROGRAMS = Path(__file__).parent / "programs"
# In the environment of every daemon here: no command may ever see it.
DAEMON_SECRET = "known-to-the-daemon-only"
# What a sandbox can be; an attack is tried in each.
MODES = {"warm", "cold", "persistent"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In containers each attack is tried once for each mode, not in all its variants.

    What a variant differs in is decided by code that all backends share (the policy, the init, the
    workspace guard); that the container is made of it, one variant shows. Containers are slow.
    """
    here, seen, left_out = Path(__file__).parent, set(), []
    for item in items:
        if not isinstance(item, pytest.Function) or not item.path.is_relative_to(here):
            continue
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        words = {value for value in values if isinstance(value, str)}
        if "docker" in words:
            attack = (item.path, item.originalname, frozenset(words & MODES))
            if attack in seen:
                left_out.append(item)
            seen.add(attack)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


# Set in order to attack clones of a template, too; test_clones.py always does.
BACKENDS = (*LINUX, CLONED) if "SANDBOXD_TEST_CLONED" in os.environ else LINUX


@pytest.fixture(scope="session", params=BACKENDS)
def linux_backend(request: pytest.FixtureRequest) -> Iterator[Box]:
    """One daemon for all attacks on a backend."""
    with running_backend(request.param, env={"TEST_SECRET": DAEMON_SECRET}) as daemon:
        box = Box(product_name(request.param), daemon)
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
