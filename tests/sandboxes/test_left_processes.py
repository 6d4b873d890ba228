"""What a command leaves running is ended with its sandbox, and its result says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon, stdout_of


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("", id="bubblewrap", marks=pytest.mark.requires("bubblewrap")),
        pytest.param("[pool]\ntemplate = false\n", marks=pytest.mark.requires("bubblewrap")),
        pytest.param('backend = "landlock"\n', marks=pytest.mark.requires("landlock")),
    ],
)
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with running_daemon(config=request.param) as daemon:
        yield daemon


def run(daemon: Daemon, line: str, **params: Any) -> Any:
    manifest = {"network": "deny"} if "sandbox" not in params else None
    with daemon.connect() as connection:
        request = {"argv": ["sh", "-c", line], "manifest": manifest, **params}
        return connection.call("execute", {k: v for k, v in request.items() if v is not None})


@pytest.mark.parametrize("params", [{}, {"pty": {"rows": 24, "cols": 80}}], ids=["", "pty"])
def test_what_a_command_left_is_in_its_result(daemon: Daemon, params: dict[str, Any]) -> None:
    result = run(daemon, "sleep 600 & sleep 0.1; echo started; exit 3", **params)
    assert (result["outcome"], result["exit_code"]) == ("exited", 3)
    assert result["left_processes"] == {"count": 1, "names": ["sleep"]}


@pytest.mark.parametrize(
    "line", ["true", "exit 7", "sleep 0.2 & wait", "sleep 600 & kill $!; wait", "kill -9 $$"]
)
def test_the_result_of_a_command_that_leaves_nothing_has_no_such_field(
    daemon: Daemon, line: str
) -> None:
    assert "left_processes" not in run(daemon, line)


def test_what_the_timeout_ended_was_not_left(daemon: Daemon) -> None:
    manifest = {"network": "deny", "timeout": 0.5}
    result = run(daemon, "sleep 600 & sleep 600", manifest=manifest)
    assert result["outcome"] == "timeout"
    assert "left_processes" not in result


def test_in_a_persistent_sandbox_nothing_is_ended(daemon: Daemon) -> None:
    with daemon.connect() as connection:
        made = connection.call("sandbox/create", {"manifest": {"network": "deny"}})["sandbox"]
        first = run(daemon, "sleep 600 > /dev/null 2>&1 & echo $!", sandbox=made)
        assert "left_processes" not in first
        assert run(daemon, f"kill {stdout_of(first)}", sandbox=made)["exit_code"] == 0
        connection.call("sandbox/destroy", {"sandbox": made})


def test_a_name_of_a_process_is_safe_to_print(daemon: Daemon) -> None:
    script = 'printf "\\033[31mred" > /proc/self/comm; read x < /dev/zero'
    result = run(daemon, f"bash -c '{script}' & sleep 0.1")
    assert result["left_processes"]["names"][0].isprintable()
