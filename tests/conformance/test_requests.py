"""Around a command: detaching, many at once, what cannot be executed, what is asked for twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rpc import RpcError
from support.runs import Ran
from support.subject import Subject


def test_a_detached_command_outlives_its_connection(subject: Subject) -> None:
    with subject.daemon.connect() as first:
        params = {"argv": ["sh", "-c", "sleep 0.3; echo done; exit 8"], "detach": True}
        started = first.call("execute", params)
        assert set(started) == {"execution_id"}
    ran = Ran(subject.connection.call("execution/wait", started))
    assert (ran.exit_code, ran.stdout) == (8, "done\n")
    again = Ran(subject.connection.call("execution/wait", started))
    assert again.raw == ran.raw


def test_a_detached_command_can_be_ended_by_another_connection(subject: Subject) -> None:
    with subject.daemon.connect() as first:
        started = first.call("execute", {"argv": ["sleep", "60"], "detach": True})
    listed = subject.connection.call("execution/list")["executions"]
    assert started["execution_id"] in {one["execution_id"] for one in listed}
    subject.connection.call("execution/cancel", started)
    assert subject.connection.call("execution/wait", started)["outcome"] == "cancelled"


def test_many_run_at_once_and_answer_for_themselves(subject: Subject) -> None:
    """Slow ones first: answers come as they finish."""
    connection = subject.connection
    numbers = {
        code: connection.start(
            "execute", {"argv": ["sh", "-c", f"sleep {(11 - code) / 20}; echo {code}; exit {code}"]}
        )
        for code in range(12)
    }
    for code, number in numbers.items():
        ran = Ran(connection.result(number))
        assert (ran.exit_code, ran.stdout) == (code, f"{code}\n")


def test_many_connections_do_not_mix(subject: Subject) -> None:
    connections = [subject.daemon.connect(timeout_s=120) for _ in range(8)]
    try:
        params = [{"argv": ["cat"], "stdin": str(index) * 1000} for index in range(8)]
        numbers = [c.start("execute", p) for c, p in zip(connections, params, strict=True)]
        for index, (connection, number) in enumerate(zip(connections, numbers, strict=True)):
            assert Ran(connection.result(number)).stdout == str(index) * 1000
    finally:
        for connection in connections:
            connection.close()


def test_a_live_id_is_not_given_twice(subject: Subject) -> None:
    connection = subject.connection
    number = connection.start("execute", {"argv": ["sleep", "60"], "execution_id": "mine"})
    with pytest.raises(RpcError) as refusal:
        subject.run("true", execution_id="mine")
    assert refusal.value.code == -32602
    connection.call("execution/cancel", {"execution_id": "mine"})
    assert connection.result(number)["outcome"] == "cancelled"


def exec_failed(subject: Subject, *argv: str, **params: object) -> RpcError:
    with pytest.raises(RpcError) as refusal:
        subject.run(*argv, **params)
    assert (refusal.value.code, refusal.value.kind) == (-32004, "ExecFailed")
    return refusal.value


def test_a_missing_program_is_no_exit_code(subject: Subject) -> None:
    for name in ("no-such-program-anywhere", "/usr/bin/no-such-program"):
        assert name in exec_failed(subject, name).message


def test_a_failed_start_has_no_notifications(subject: Subject) -> None:
    exec_failed(subject, "no-such-program-anywhere", stream=True)
    told = {n["method"] for n in subject.connection.notifications}
    assert told <= {"execution/progress"}  # of a sandbox that is made


@pytest.fixture
def programs(workspace: Path) -> Path:
    for name, text, mode in (
        ("plain", "echo\n", 0o644),
        ("interpreter", "#!/no/such/interpreter\n", 0o755),
        ("garbage", "\x7fELF garbage", 0o755),
    ):
        (workspace / name).write_text(text)
        (workspace / name).chmod(mode)
    return workspace


@pytest.mark.parametrize("name", ["plain", "interpreter", "garbage"])
def test_what_cannot_be_executed_is_said_in_words(
    subject: Subject, programs: Path, name: str
) -> None:
    manifest = {"fs_read_allow": [str(programs)]}
    error = exec_failed(subject, str(programs / name), manifest=manifest)
    assert str(programs / name) in error.message
    if name == "interpreter":
        assert "/no/such/interpreter" in error.message


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"], ["true", "x" * (1 << 20)]])
def test_what_is_no_command_line_is_refused(subject: Subject, argv: list[str]) -> None:
    with pytest.raises(RpcError) as refusal:
        subject.run(*argv)
    assert refusal.value.code == -32602


def test_arguments_arrive_as_they_were_sent(subject: Subject) -> None:
    words = ["", " ", "grün", "a b", "'\"$(id)`id`\\", "-n", "--", "*", "\n"]
    code = "import sys; print('\\0'.join(sys.argv[1:]), end='')"
    assert subject.python(code, *words).stdout.split("\0") == words
