"""One suite for every backend. Tests name what a manifest promises, never a backend.

`@pytest.mark.holds("network")` says which field of the manifest a test shows to be held. A backend
that cannot hold it must say so: by refusing (PolicyNotSupported) or by the tier in `enforcement`.
Then there is nothing to show, and the test has passed; it is never skipped. With `fully=True` it
demands what only "enforced" promises. `@pytest.mark.asks("base")` is for tests that show something
else: there, too, a backend may refuse.

What a backend that says "enforced" and does nothing gets is in test_faulty_backends.py: every one
of these tests fails.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from support.backends import ATTACHED, HERE, REMOTE, STAND_IN, running_backend
from support.daemon import Daemon, running_daemon
from support.faulty_backends import faulty_options, impersonated
from support.subject import NotHeld, Subject


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "holds(field, fully=False): shows that this field of the manifest is held"
    )
    config.addinivalue_line(
        "markers", "asks(field): asks for something that a backend may refuse (PolicyNotSupported)"
    )


_NOT_RUN = pytest.StashKey[list[str]]()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(_NOT_RUN, []):
        terminalreporter.write_line(f"not run: {line}")


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Over a stand-in (for sandbox-exec, for a server) some tests are listed instead of run."""
    if REMOTE in os.environ:
        from support.opensandbox_selection import left_out

        here = Path(__file__).parent
        ours = [item for item in items if item.path.is_relative_to(here)]
        reasons = left_out(ours, os.environ[REMOTE])
    else:
        from macos.stand_in.selection import why_not

        found = {item.nodeid: why_not(item.nodeid) for item in items}
        reasons = {name: why for name, why in found.items() if why is not None}
    out = [item for item in items if item.nodeid in reasons]
    told = [one for one in reasons.items() if not one[1].startswith("runs over")]
    config.stash[_NOT_RUN] = [f"{name}: {why}" for name, why in told]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item.nodeid not in reasons]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What a backend promises it promises root, too. Where nothing is held nothing differs."""
    here = Path(__file__).parent
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(here):
            name = item.callspec.params.get("backend_daemon") if hasattr(item, "callspec") else None
            if name not in (None, "none"):
                item.add_marker(pytest.mark.isolation)
    _leave_out_variants(config, items)
    if STAND_IN in os.environ or REMOTE in os.environ:
        _leave_out(config, items)


# What these show is decided by the engine's create call, which is the same for both ways to run
# a command in a container. For the second way one variant of each test is enough.
_OF_THE_CONTAINER = {"test_base", "test_files", "test_network", "test_place", "test_presets"}


def _leave_out_variants(config: pytest.Config, items: list[pytest.Item]) -> None:
    seen, out = set(), []
    for item in items:
        if isinstance(item, pytest.Function) and item.path.stem in _OF_THE_CONTAINER:
            given = item.callspec.params if hasattr(item, "callspec") else {}
            if given.get("backend_daemon") == ATTACHED:
                test = (item.path, item.originalname)
                if test in seen:
                    out.append(item)
                seen.add(test)
    config.hook.pytest_deselected(items=out)
    gone = set(out)
    items[:] = [item for item in items if item not in gone]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    try:
        return (yield)
    except NotHeld as honest:
        pyfuncitem.user_properties.append(("not_held", str(honest)))
        return True


@pytest.fixture(scope="session", params=HERE)
def backend_daemon(request: pytest.FixtureRequest) -> Iterator[tuple[str, Daemon]]:
    """One daemon for all tests of a backend; the impersonated one: faulty_backends.py."""
    name = request.param
    if impersonated() is None:
        with running_backend(name, env={"TEST_SECRET": "of the daemon"}) as daemon:
            yield name, daemon
    elif name == impersonated():
        with running_daemon(**faulty_options(name)) as daemon:
            yield name, daemon
    else:
        pytest.skip("another backend is impersonated")


@pytest.fixture
def subject(
    backend_daemon: tuple[str, Daemon], request: pytest.FixtureRequest
) -> Iterator[Subject]:
    subject = Subject(*backend_daemon)
    subject.may_refuse = {
        marker.args[0] for name in ("holds", "asks") for marker in request.node.iter_markers(name)
    }
    marker = request.node.get_closest_marker("holds")
    if marker is not None:
        subject.field = marker.args[0]
        subject.fully = marker.kwargs.get("fully", False)
    yield subject
    subject.close()
