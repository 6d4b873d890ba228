"""`network`: the host's, none, or named hosts only."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from support.rpc import RpcError
from support.subject import Subject

CONNECT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as client:
    print(client.recv(16).decode())
"""
OWN_SERVER = """
import socket, threading
family = socket.AF_INET
server = socket.create_server(("127.0.0.1", 0))
def serve():
    client, _ = server.accept()
    client.sendall(b"own")
threading.Thread(target=serve).start()
with socket.create_connection(server.getsockname(), timeout=5) as client:
    print(client.recv(16).decode())
"""


@pytest.fixture
def port() -> Iterator[int]:
    """A server on the host's loopback that says "host"."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        stopped = threading.Event()

        def serve() -> None:
            while not stopped.is_set():
                try:
                    client, _ = server.accept()
                except TimeoutError:
                    continue
                with client:
                    client.sendall(b"host")

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(server.getsockname()[1])
        stopped.set()
        thread.join()


@pytest.mark.holds("network")
@pytest.mark.parametrize("network", ["deny", {"kind": "deny"}])
def test_denied_it_does_not_reach_the_host(subject: Subject, port: int, network: object) -> None:
    ran = subject.python(CONNECT, "127.0.0.1", str(port), manifest={"network": network})
    assert "host" not in ran.stdout
    assert not ran.exited(0)


def test_inherited_it_does(subject: Subject, port: int) -> None:
    try:
        ran = subject.python(CONNECT, "127.0.0.1", str(port), manifest={"network": "inherit"})
    except RpcError as refusal:
        assert refusal.kind == "PolicyNotSupported"
    else:
        # A container inherits the engine's default network, which is not this machine's own.
        elsewhere = subject.product_name == "docker"
        held = ran.enforcement["network"] == "enforced"
        assert ran.stdout == "host\n" or elsewhere or not held, ran.story


@pytest.mark.holds("network")
def test_denied_it_is_not_mistaken_for_something_else(subject: Subject, port: int) -> None:
    """Where a denial can be told from the outside at all, it is the network's."""
    ran = subject.python(CONNECT, "127.0.0.1", str(port), manifest={"network": "deny"})
    assert not ran.exited(0)
    assert {denial["kind"] for denial in ran.denials} <= {"network"}, ran.story


@pytest.mark.asks("network")
def test_denied_a_command_can_still_talk_to_itself_or_is_told(subject: Subject) -> None:
    """localhost works in a network namespace; without one no socket can be made, and that shows."""
    ran = subject.python(OWN_SERVER, manifest={"network": "deny"})
    assert ran.stdout == "own\n" or "PermissionError" in ran.stderr, ran.story


@pytest.mark.holds("network")
def test_named_hosts_are_all_that_is_reached(subject: Subject, port: int) -> None:
    hosts = {"kind": "allow_hosts", "hosts": ["allowed.example.org"]}
    ran = subject.python(CONNECT, "127.0.0.1", str(port), manifest={"network": hosts})
    assert "host" not in ran.stdout


@pytest.mark.parametrize(
    "network",
    ["some", {"kind": "allow_hosts"}, {"kind": "allow_hosts", "hosts": []}, {"hosts": ["a.b"]},
     {"kind": "deny", "hosts": ["a.b"]}, {"kind": "allow_hosts", "hosts": ["a b"]}],
)  # fmt: skip
def test_what_means_nothing_is_refused(subject: Subject, network: object) -> None:
    with pytest.raises(RpcError) as refusal:
        subject.run("true", manifest={"network": network})
    assert refusal.value.code == -32602
