"""The boxes that attacks are tried in, one for each Linux backend, and what they are after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attacks import Box, Build, Victim, compiled
from support.backends import LINUX, OTHER_WAY, product_name, running_backend
from support.bystander import Bystander, bystander

PROGRAMS = Path(__file__).parent / "programs"
# In the environment of every daemon here: no command may ever see it.
DAEMON_SECRET = "known-to-the-daemon-only"
# What a sandbox can be; an attack is tried in each.
MODES = {"warm", "cold", "persistent"}
# Attacks on what a clone of a template gets in another way than a sandbox with a bwrap of its own.
BOTH_WAYS = {
    "test_clones", "test_descriptors_in_flight", "test_devices", "test_inherited", "test_ipc",
    "test_mounts", "test_moved_workspaces", "test_namespaces", "test_privileges", "test_proc",
    "test_processes", "test_swaps", "test_unreachable_mounts",
}  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In containers each attack is tried once for each mode, not in all its variants.

    What a variant differs in is decided by code that all backends share (the policy, the init, the
    workspace guard); that the container is made of it, one variant shows. Containers are slow.
    On bubblewrap a sandbox is a clone of a template in the user's pass and has a bwrap of its own
    in root's (scripts/test). What depends on how it is made is tried in both ways in both passes,
    there too once for each mode.
    What is protected in a repository is decided by the plan and judged by the workspace guard when
    a command ends, in whatever sandbox it ran: there all variants are tried in sandboxes that are
    made for them, and one in a sandbox that was ready and in one that stays.
    """
    here, seen, left_out = Path(__file__).parent, set(), []
    for item in items:
        if not isinstance(item, pytest.Function) or not item.path.is_relative_to(here):
            continue
        if "test_git_" not in item.path.stem and item.get_closest_marker("isolation"):
            item.add_marker(pytest.mark.attack)
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        words = {value for value in values if isinstance(value, str)}
        if OTHER_WAY in words and item.path.stem not in BOTH_WAYS:
            left_out.append(item)
        seldom = words & {"docker", OTHER_WAY}
        if "git_" in item.path.stem or "repositories" in item.path.stem:
            seldom |= words & {"warm", "persistent"}
        if seldom and item.path.stem != "test_clones":
            place = words & {*MODES, *LINUX, OTHER_WAY}
            attack = (item.path, item.originalname, frozenset(place))
            if attack in seen:
                left_out.append(item)
            seen.add(attack)
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


@pytest.fixture(scope="session", params=(*LINUX, OTHER_WAY))
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
