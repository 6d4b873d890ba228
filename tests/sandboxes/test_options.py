"""Options of `execute`: one ordered stream, how much is captured, narrowing, a silent terminal."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.backends import running_backend
from support.daemon import Daemon
from support.rpc import Connection, RpcError


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with running_backend(request.param) as found:
        yield found


@pytest.fixture
def connection(daemon: Daemon) -> Iterator[Connection]:
    with daemon.connect() as found:
        yield found


def shell(connection: Connection, script: str, **params: Any) -> Any:
    return connection.call("execute", {"argv": ["sh", "-c", script], **params})


MIXED = "for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done"


def test_stderr_goes_into_stdout_in_order(connection: Connection) -> None:
    result = shell(connection, MIXED, stderr="stdout")
    lines = [f"{kind}{n}" for n in range(1, 6) for kind in ("out", "err")]
    assert result["stdout"]["data"].split() == lines
    assert result["stderr"]["bytes"] == 0


def test_denials_are_found_in_the_merged_stream(connection: Connection, tmp_path: Path) -> None:
    params = {"preset": "workspace-write", "workspace": str(tmp_path), "stderr": "stdout"}
    # A place that this user may write: the modes of another would refuse it without a sandbox too.
    new = Path.home() / "sandboxd-test-new"
    result = shell(connection, f"echo x > {new}; exit 1", **params)
    assert [d["kind"] for d in result["denials"]] == ["filesystem_write"]
    assert not new.exists()


@pytest.mark.parametrize(
    ("keep", "data", "gap"), [("head", "0123", None), ("tail", "6789", None), ("both", "0189", 2)]
)
def test_capture_keeps_the_end_that_was_asked_for(
    connection: Connection, keep: str, data: str, gap: int | None
) -> None:
    result = shell(connection, "printf 0123456789", capture={"bytes": 4, "keep": keep})
    stdout = result["stdout"]
    assert (stdout["data"], stdout["bytes"], stdout["truncated"]) == (data, 10, True)
    assert stdout.get("gap_at") == gap


@pytest.mark.parametrize("keep", ["head", "tail", "both"])
def test_what_fits_is_whole(connection: Connection, keep: str) -> None:
    result = shell(connection, "printf 0123456789", capture={"bytes": 10, "keep": keep})
    assert (result["stdout"]["data"], result["stdout"]["truncated"]) == ("0123456789", False)


@pytest.mark.parametrize("keep", ["head", "tail", "both"])
def test_a_character_is_not_cut(connection: Connection, keep: str) -> None:
    result = shell(connection, "printf 'äöüäöüäöü'", capture={"bytes": 5, "keep": keep})
    assert result["stdout"]["encoding"] == "utf-8"


def test_much_output_keeps_its_tail_at_bounded_memory(connection: Connection) -> None:
    script = "seq 1 200000"
    result = shell(connection, script, capture={"bytes": 14, "keep": "tail"})
    assert result["stdout"]["data"] == "199999\n200000\n"


def test_bytes_that_are_no_text(connection: Connection) -> None:
    script = r"printf '\377\376aaaa\375\374'"
    result = shell(connection, script, capture={"bytes": 4, "keep": "both"})
    assert base64.b64decode(result["stdout"]["data"]) == b"\xff\xfe\xfd\xfc"


def test_a_capture_beyond_the_limit_is_refused(connection: Connection) -> None:
    with pytest.raises(RpcError) as error:
        shell(connection, "true", capture={"bytes": 1 << 30})
    assert (error.value.code, error.value.field) == (-32602, "capture.bytes")


@pytest.fixture
def sandbox(connection: Connection, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "sub").mkdir()
    params = {
        "preset": "workspace-write", "workspace": str(tmp_path),
        "manifest": {"env": {"A": "1", "B": "1"}, "timeout": 60},
    }  # fmt: skip
    made: str = connection.call("sandbox/create", params)["sandbox"]
    yield made
    connection.call("sandbox/destroy", {"sandbox": made})


def test_environment_of_a_command_is_added(connection: Connection, sandbox: str) -> None:
    manifest = {"env": {"B": "2", "C": "3"}}
    result = shell(connection, 'echo "$A$B$C"', sandbox=sandbox, manifest=manifest)
    assert result["stdout"]["data"] == "123\n"
    assert shell(connection, 'echo "$A$B$C"', sandbox=sandbox)["stdout"]["data"] == "11\n"


def test_limits_of_a_command(connection: Connection, sandbox: str) -> None:
    result = shell(connection, "sleep 60", sandbox=sandbox, manifest={"timeout": 0.3})
    assert result["outcome"] == "timeout"
    manifest = {"max_output_bytes": 1000}
    assert shell(connection, "yes", sandbox=sandbox, manifest=manifest)["outcome"] == "output_limit"


@pytest.mark.parametrize("field", ["fs_read_allow", "network", "base", "fs_deny"])
def test_what_belongs_to_the_sandbox_is_refused(
    connection: Connection, sandbox: str, field: str
) -> None:
    value = {"network": "deny", "base": "host"}.get(field, ["/usr"])
    with pytest.raises(RpcError) as error:
        shell(connection, "true", sandbox=sandbox, manifest={field: value})
    assert (error.value.code, error.value.field) == (-32602, f"manifest.{field}")


def test_a_relative_folder_is_relative_to_the_workspace(
    connection: Connection, sandbox: str, tmp_path: Path
) -> None:
    assert shell(connection, "pwd", sandbox=sandbox, cwd="sub")["stdout"]["data"] == (
        f"{tmp_path}/sub\n"
    )
    params = {"preset": "workspace-write", "workspace": str(tmp_path), "cwd": "sub"}
    assert shell(connection, "pwd", **params)["stdout"]["data"] == f"{tmp_path}/sub\n"
    with pytest.raises(RpcError) as error:
        shell(connection, "pwd", cwd="sub")
    assert error.value.code == -32602


@pytest.mark.parametrize("echo", [True, False])
def test_a_terminal_without_echo(connection: Connection, echo: bool) -> None:
    params = {"pty": {"rows": 24, "cols": 80, "echo": echo}, "execution_id": f"echo-{echo}"}
    running = connection.start(
        "execute", {"argv": ["sh", "-c", "read line; echo got-$line"], "capture": True, **params}
    )
    connection.call("execution/write", {"execution_id": f"echo-{echo}", "data": "typed\n"})
    seen = connection.result(running)["stdout"]["data"]
    assert "got-typed" in seen
    assert seen.count("typed") == (2 if echo else 1)
