"""Limits that an engine holds for a container as a whole, and how their end is told."""

from __future__ import annotations

import pytest
from support.rpc import RpcError
from support.runs import Runner

PYTHON = "/usr/bin/python3"
MEMORY = {"max_memory_bytes": 48 << 20}
EAT = "x = bytearray(200 << 20); print('ate', len(x))"


def test_memory_is_enforced_for_the_container(either: Runner) -> None:
    ran = either.run(PYTHON, "-c", EAT, manifest=MEMORY)
    assert ran.outcome == "memory"
    assert ran.enforcement["max_memory_bytes"] == "enforced"
    assert [denial["kind"] for denial in ran.denials] == ["memory"]


def test_enough_memory_is_enough(either: Runner) -> None:
    ran = either.run(PYTHON, "-c", EAT, manifest={"max_memory_bytes": 400 << 20})
    assert ran.exited(0)


def test_memory_of_many_processes_counts_together(either: Runner) -> None:
    """The ulimit of each would let eight of them have eight times as much."""
    code = (
        "import os, time\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        "        x = bytearray(12 << 20); x[::4096] = b'1' * len(x[::4096]); time.sleep(20)\n"
        "while True: os.waitpid(-1, 0)[1] and os._exit(9)\n"
    )
    assert either.run(PYTHON, "-c", code, manifest=MEMORY).outcome == "memory"


def test_kill_in_a_shared_container_is_not_every_commands(box: Runner) -> None:
    """OOMKilled is a container's: a command that came to a good end beside it was not ended."""
    sandbox = box.connection.call("sandbox/create", {"manifest": MEMORY})["sandbox"]
    eat = {"argv": ["dd", "if=/dev/zero", "of=/tmp/f", "bs=1M", "count=200"], "sandbox": sandbox}
    beside = box.connection.start(
        "execute", {"argv": ["sh", "-c", "sleep 2; echo on"], "sandbox": sandbox}
    )
    assert box.connection.call("execute", eat)["outcome"] == "memory"
    result = box.connection.result(beside)
    assert (result["outcome"], result["stdout"]["data"]) == ("exited", "on\n")
    box.connection.call("sandbox/destroy", {"sandbox": sandbox})


def test_forks_beyond_the_limit_are_refused(either: Runner) -> None:
    script = "for i in $(seq 40); do sleep 2 & done; wait"
    ran = either.shell(script, manifest={"max_processes": 10})
    assert not ran.exited(0)
    assert ran.enforcement["max_processes"] == "enforced"
    assert "processes" in [denial["kind"] for denial in ran.denials]


def test_cpu_seconds_are_an_amount_of_the_whole_container(box: Runner) -> None:
    """Children share the budget, and SIGXCPU cannot be ignored away."""
    script = "trap '' XCPU; for i in 1 2 3; do while :; do :; done & done; wait"
    ran = box.shell(script, manifest={"max_cpu_secs": 0.5, "timeout": 60})
    assert ran.outcome == "cpu"
    assert ran.enforcement["max_cpu_secs"] == "enforced"


def test_cpu_seconds_without_the_init(relayed: Runner) -> None:
    ran = relayed.shell("while :; do :; done", manifest={"max_cpu_secs": 0.5, "timeout": 60})
    assert ran.outcome == "cpu"
    assert ran.enforcement["max_cpu_secs"] == "best_effort"


def test_cpus_are_a_rate(either: Runner) -> None:
    quota = "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null"
    ran = either.shell(quota, manifest={"max_cpus": 0.5})
    assert ran.stdout.split()[0] == "50000"
    assert ran.enforcement == {"max_cpus": "enforced"}


def test_cpus_that_the_machine_does_not_have_are_refused(either: Runner) -> None:
    with pytest.raises(RpcError) as refused:
        either.run("true", manifest={"max_cpus": 10_000})
    assert (refused.value.kind, refused.value.field) == ("PolicyNotSupported", "max_cpus")


def test_file_size_is_enforced(either: Runner) -> None:
    script = "head -c 100000 /dev/zero > /tmp/f; wc -c < /tmp/f"
    ran = either.shell(script, manifest={"max_file_bytes": 4096})
    assert ran.outcome == "exited", ran.story
    assert int(ran.stdout) <= 4096, ran.story


def test_time_is_up_for_the_whole_container(either: Runner) -> None:
    script = "trap '' TERM; sleep 60 & sleep 60 & wait; wait"
    ran = either.shell(script, manifest={"timeout": 0.5})
    assert ran.outcome == "timeout"


def test_output_beyond_the_cap_ends_the_command(either: Runner) -> None:
    ran = either.shell("yes", manifest={"max_output_bytes": 10_000})
    assert ran.outcome == "output_limit"
    assert len(ran.stdout) == 10_000


def test_other_backends_refuse_a_number_of_cpus(start_daemon) -> None:  # type: ignore[no-untyped-def]
    runner = Runner(start_daemon(env={"SANDBOXD_BACKEND": "bubblewrap"}))
    try:
        with pytest.raises(RpcError) as refused:
            runner.run("true", manifest={"max_cpus": 1})
        assert (refused.value.kind, refused.value.field) == ("PolicyNotSupported", "max_cpus")
    finally:
        runner.close()
