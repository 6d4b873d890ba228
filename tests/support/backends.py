"""A daemon for each backend that works here: others are skipped, or fail where CI promised them.

The names come from the product's own list, so a new backend is in every suite without being added.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from sandboxd.backends.registry import BACKENDS
from support.daemon import Daemon, running_daemon
from support.engine import shared_engine
from support.requirements import is_promised

# A backend that runs in two ways is two here: what holds must hold in both.
ATTACHED = "docker-attach"
# bubblewrap with `[pool] template` the other way round than in the rest of this pass.
OTHER_WAY = "bubblewrap-other-way"
TEMPLATE = "SANDBOXD_POOL_TEMPLATE"
ALL = (*(entry.name for entry in BACKENDS), ATTACHED)


def product_name(name: str) -> str:
    """What the daemon calls it."""
    return {ATTACHED: "docker", OTHER_WAY: "bubblewrap"}.get(name, name)


# What cannot be here is in `status`, and refuses; there is nothing to try.
_ELSEWHERE = {entry.name for entry in BACKENDS if not entry.is_here}
# With this set the suites test the backend sandbox-exec on Linux, over a stand-in and alone.
STAND_IN = "SANDBOXD_TEST_MACOS"
_NAMES = tuple(
    name for name in ALL if product_name(name) not in _ELSEWHERE and name != "opensandbox"
)
_remote: list[Callable[[], int]] = []


def remote_sandboxes() -> int:
    """How many the server has, where the backend opensandbox is tested."""
    return _remote[-1]()


# With this set the suites test the backend opensandbox alone: "real" or "real-all", over the server
# that SANDBOXD_TEST_OPENSANDBOX_SERVER names, or "fake", over one of the tests' own.
REMOTE = "SANDBOXD_TEST_OPENSANDBOX"
HERE = _NAMES
if STAND_IN in os.environ:
    HERE = ("sandbox-exec",)
elif REMOTE in os.environ:
    HERE = ("opensandbox",)
# Why one does not work here, as found out by the first daemon: each look tries all of them.
_REASONS: dict[tuple[str, ...], str | None] = {}
# Those whose commands run on this kernel, below our init, behind walls of its making.
LINUX = ("bubblewrap", "landlock", "docker")


def environment(name: str) -> dict[str, str]:
    """What makes a daemon use this backend and no other. `none` needs its second key."""
    keys = {"SANDBOXD_BACKEND": product_name(name)}
    if name == OTHER_WAY:
        keys[TEMPLATE] = "true" if os.environ.get(TEMPLATE) == "false" else "false"
    if keys["SANDBOXD_BACKEND"] == "docker":
        engine = shared_engine()
        keys["DOCKER_HOST"] = engine.url if engine else "unix:///nonexistent/engine.sock"
        keys["SANDBOXD_DOCKER_WAY"] = "attach" if name == ATTACHED else "init"
    return {**keys, "SANDBOXD_ALLOW_NO_SANDBOX": "1"} if name == "none" else keys


@contextmanager
def running_backend(
    name: str, *, env: Mapping[str, str] | None = None, **options: Any
) -> Iterator[Daemon]:
    """A daemon that uses `name`, after `status` said that it works here."""
    if name == "sandbox-exec" and sys.platform != "darwin":
        from macos.stand_in.options import stand_in_daemon

        with stand_in_daemon(env=env, **options) as daemon:
            yield daemon
        return
    if name == "opensandbox" and os.environ[REMOTE].startswith("real"):
        from support.opensandbox_server import real_options, shared_server

        server = shared_server()
        with (
            real_options(server, env or {}) as made,
            running_daemon(env=made, prefix=server.within, **options) as daemon,
        ):
            _remote.append(lambda: len(server.engine.containers()))
            yield daemon
        return
    if name == "opensandbox":
        from support.fake_opensandbox import fake_options

        with (
            fake_options(env or {}) as (fake, made),
            running_daemon(env=made, **options) as daemon,
        ):
            _remote.append(lambda: len(fake.sandboxes))
            yield daemon
        return
    # What is around the daemon (a namespace, a filter) may make a difference.
    known = (name, *options.get("prefix", ()))
    with running_daemon(env={**environment(name), **(env or {})}, **options) as daemon:
        if known not in _REASONS:
            _REASONS[known] = unavailable(daemon, product_name(name))
        reason = _REASONS[known]
        if reason is None:
            yield daemon
        elif is_promised(product_name(name)):
            pytest.fail(f"{name} is in SANDBOXD_TEST_REQUIRE and: {reason}", pytrace=False)
        else:
            pytest.skip(f"{name} does not work here: {reason}")


def unavailable(daemon: Daemon, name: str) -> str | None:
    """Why the backend does not work here; None when it does."""
    with daemon.connect() as connection:
        status = connection.call("status")
    for backend in status["backends"]:
        if backend["name"] == name:
            return None if backend["available"] else str(backend["reason"])
    return "this daemon does not know it"
