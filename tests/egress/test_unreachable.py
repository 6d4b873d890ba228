"""An allowed host that does not exist or does not answer: an error for the program, and a warning.

A refusal by the gate is something else: it is a denial.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from runner import Runner, out
from support.daemon import Daemon
from support.git_attacks import wait_for
from support.processes import survivors

GONE, SILENT = "gone.example.test", "example.test:7999"


@pytest.mark.parametrize(
    ("url", "hosts", "named", "why"),
    [
        (f"http://{GONE}/", (GONE,), f"{GONE}:80", "no such host"),
        (f"https://{GONE}/", (GONE,), f"{GONE}:443", "no such host"),
        ("http://servfail.test/", ("servfail.test",), "servfail.test:80", "reports error 2"),
        (f"http://{SILENT}/", (SILENT,), SILENT, "Connection refused"),
        # Through the proxy, which the variables name where an entry is a wildcard.
        (f"http://{GONE}/", ("*.example.test",), f"{GONE}:80", "no such host"),
        (f"https://{GONE}/", ("*.example.test",), f"{GONE}:443", "no such host"),
        (f"--proxy $all_proxy https://{GONE}/", ("*.example.test",), f"{GONE}:443", "no such host"),
        (f"http://{GONE}:81/", ("*.example.test:80-90",), f"{GONE}:81", "no such host"),
    ],
)
def test_an_allowed_host_that_is_not_there_is_an_error_and_no_denial(
    run: Runner, url: str, hosts: tuple[str, ...], named: str, why: str
) -> None:
    result = run(f"curl -sS {url}", *hosts)
    assert result["exit_code"] != 0, out(result)
    assert out(result) == ""
    assert result["denials"] == []
    (warning,) = result["warnings"]
    assert warning.startswith(f"{named} is an allowed host, but could not be reached: ")
    assert warning.endswith(why)


@pytest.mark.parametrize(
    "command", ["curl -sS http://example.test:8080/", "bash -c ': < /dev/tcp/example.test/8080'"]
)
def test_another_port_of_an_allowed_host_is_a_denial_that_names_it(
    run: Runner, command: str
) -> None:
    result = run(f"{command}; exit 1", "example.test")
    (denial,) = result["denials"]
    assert (denial["confidence"], denial["evidence"]) == ("high", "gate")
    hosts = ["example.test", "example.test:8080"]
    assert denial["remedy"] == {"network": {"kind": "allow_hosts", "hosts": hosts}}


def test_a_host_that_answers_has_no_warning(run: Runner) -> None:
    result = run("curl -sS http://example.test/; curl -sS http://other.test/", "example.test")
    assert out(result) == "example.test /\n"
    assert result["warnings"] == []
    assert [one["target"] for one in result["denials"]] == ["other.test"]


def test_npm_gives_up_soon_on_a_refused_address(run: Runner, workspace: Path) -> None:
    """With npm's own settings it takes more than 70 s."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp"}
    network = {"kind": "allow_hosts", "hosts": ["example.test"]}
    params = {
        "argv": ["npm", "ping", "--registry=http://93.184.216.36/"],
        "preset": "workspace-write", "workspace": str(workspace), "cwd": str(workspace),
        "manifest": {"env": env, "network": network, "timeout": 40},
    }  # fmt: skip
    result = run.connection.call("execute", params)
    assert result["outcome"] == "exited", result
    assert result["exit_code"] != 0
    assert "93.184.216.36" in [one["target"] for one in result["denials"]]


def test_what_the_kernel_refused_is_known_when_the_command_has_ended_before_the_daemon_looks(
    run: Runner, gate_daemon: Daemon, workspace: Path
) -> None:
    """The daemon is stopped meanwhile: it finds the refusals and the end at the same moment, and
    more refusals than it reads in one turn."""
    ports = range(8001, 8025)
    script = f"""exec 2>/dev/null; address=$(getent hosts example.test | cut -d' ' -f1)
        while [ ! -e go ]; do sleep 0.1; done
        for port in {{{ports[0]}..{ports[-1]}}}; do : < /dev/tcp/$address/$port; done"""
    manifest = run.manifest("example.test", fs_read_allow=[str(workspace)])
    params = {"argv": ["bash", "-c", script], "cwd": str(workspace), "manifest": manifest}
    number = run.connection.start("execute", params)
    wait_for(lambda: "sleep" in {one.name for one in gate_daemon.descendants()})
    (command,) = [one for one in gate_daemon.descendants() if one.name == "bash"]
    gate_daemon.process.send_signal(signal.SIGSTOP)
    try:
        (workspace / "go").touch()
        assert not survivors([command])
    finally:
        gate_daemon.process.send_signal(signal.SIGCONT)
    denials = run.connection.result(number)["denials"]
    assert [one["evidence"] for one in denials] == ["gate"] * len(ports)
