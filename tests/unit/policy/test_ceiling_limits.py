"""A limit that the request leaves out has the ceiling's value; one that it sets stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.rpc import RpcError

from sandboxd.config.config import Ceiling
from sandboxd.policy.ceiling import lower_limits
from sandboxd.policy.plan import Limits

FIELDS = {
    "max_memory_bytes": "memory_bytes",
    "max_cpu_secs": "cpu_s",
    "max_processes": "processes",
    "max_file_bytes": "file_bytes",
    "max_output_bytes": "output_bytes",
}


@pytest.mark.parametrize(("key", "name"), FIELDS.items())
def test_each_limit_gets_its_own_ceiling(key: str, name: str) -> None:
    found = lower_limits(Limits(), Ceiling(**{key: 77}))  # type: ignore[arg-type]
    assert found == Limits(**{name: 77})  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "name"), FIELDS.items())
def test_what_was_asked_for_stays(key: str, name: str) -> None:
    asked = Limits(**{name: 5})  # type: ignore[arg-type]
    assert lower_limits(asked, Ceiling(**{key: 77})) == asked  # type: ignore[arg-type]


def test_without_a_ceiling_nothing_is_limited() -> None:
    assert lower_limits(Limits(), Ceiling()) == Limits()


@pytest.mark.requires("bubblewrap")
def test_the_ceiling_holds_for_a_command_that_asked_for_nothing(
    start_daemon: Callable[..., Daemon], workspace: Path
) -> None:
    """The control: the same command under a daemon without a ceiling."""
    request = {
        "argv": ["sh", "-c", "head -c 50000 /dev/zero > file; head -c 50000 /dev/zero"],
        "preset": "workspace-write", "workspace": str(workspace),
    }  # fmt: skip
    with start_daemon().connect() as free:
        result = free.call("execute", request)
        assert (result["outcome"], result["stdout"]["bytes"]) == ("exited", 50_000)
        assert (workspace / "file").stat().st_size == 50_000
    (workspace / "file").unlink()
    config = "[ceiling]\nmax_file_bytes = 1024\nmax_output_bytes = 4096\n"
    with start_daemon(config=config).connect() as bound:
        result = bound.call("execute", request)
        printed = result["stdout"]["bytes"] + result["stderr"]["bytes"]  # the shell complains
        assert (result["outcome"], printed) == ("output_limit", 4096)
        assert (workspace / "file").stat().st_size <= 1024
        with pytest.raises(RpcError, match="beyond what"):
            bound.call("execute", {**request, "manifest": {"max_file_bytes": 4096}})
