"""What a command prints about hosts and sockets, and what the kernel saw of it."""

from __future__ import annotations

import pytest
from denials.settings import denials, host, setting
from msgspec.structs import replace

from sandboxd.denials import (
    ConnectAttempt,
    RunEvidence,
)
from sandboxd.policy.plan import NetworkRule

OK, FAILED = RunEvidence(exit_code=0), RunEvidence(exit_code=1)


def test_where_no_socket_can_be_made_a_swallowed_attempt_is_told() -> None:
    script = "curl -s https://example.org:8443/ || true"
    closed = setting("sh", "-c", script, network_namespace=False)
    (found,) = denials(closed, "", OK)
    assert (found.kind, found.target, found.confidence, found.remedy) == (
        "network", "example.org", "low", None,
    )  # fmt: skip
    (failed,) = denials(closed, "", FAILED)
    assert failed.confidence == "medium"
    assert failed.remedy is None  # that backend lets no single host through
    assert "bubblewrap" in failed.message
    # With a network namespace the kernel tells of each attempt: none was made.
    assert denials(setting("sh", "-c", script), "", OK) == []
    for harmless in ("echo https://example.org", "git -C https://example.org status", "true"):
        assert denials(setting("sh", "-c", harmless, network_namespace=False), "", OK) == []


def test_where_no_socket_can_be_made_the_kernel_tells_that_one_was_tried() -> None:
    words = "curl: (6) Could not resolve host: evil.example.net\n"
    closed = setting("sh", "-c", "make", network_namespace=False)
    stream = RunEvidence(exit_code=1, attempts_told=True, refused_sockets=("stream",))
    assert {d.target: (d.confidence, d.remedy) for d in denials(closed, words, stream)} == {
        None: ("high", None), "evil.example.net": ("low", None),
    }  # fmt: skip
    (swallowed,) = denials(closed, "", replace(stream, exit_code=0))
    assert (swallowed.confidence, swallowed.evidence) == ("medium", "kernel")
    lookup = RunEvidence(exit_code=0, attempts_told=True, refused_sockets=("datagram",))
    assert [d.confidence for d in denials(closed, "", lookup)] == ["low"]
    named = setting("curl", "https://a.example.org/", network_namespace=False)
    (asked,) = denials(named, words.replace("evil.example.net", "a.example.org"), stream)
    assert (asked.target, asked.claimed, asked.remedy) == ("a.example.org", False, None)
    assert denials(closed, words, RunEvidence(exit_code=1, attempts_told=True))[0].remedy is None


def test_sockets_that_the_c_library_makes_in_passing_explain_a_failure_only() -> None:
    closed = setting("sh", "-c", "make", network_namespace=False)
    for kind, confidence in (("blocking datagram", "low"), ("unix", "medium")):
        facts = RunEvidence(exit_code=0, attempts_told=True, refused_sockets=(kind,))  # type: ignore[arg-type]
        assert denials(closed, "", facts) == []
        (found,) = denials(closed, "", replace(facts, exit_code=1))
        assert (found.kind, found.confidence, found.evidence) == ("network", confidence, "kernel")
        assert found.remedy is None
    asked = setting("snmpget", "https://a.example.org/", network_namespace=False)
    facts = RunEvidence(exit_code=1, attempts_told=True, refused_sockets=("blocking datagram",))
    (named,) = denials(asked, "", facts)
    assert (named.target, named.confidence) == ("a.example.org", "medium")
    # Words are believed no more because of it.
    words = "curl: (6) Could not resolve host: evil.example.net\n"
    told = {d.target: d.confidence for d in denials(closed, words, facts)}
    assert told == {None: "low", "evil.example.net": "low"}


def test_a_host_that_the_kernel_saw_no_attempt_at_is_not_believed() -> None:
    words = "curl: (6) Could not resolve host: evil.example.net\n"
    where = setting("sh", "-c", "make")
    (unseen,) = denials(where, words, RunEvidence(exit_code=1, attempts_told=True))
    assert (unseen.confidence, unseen.remedy) == ("low", None)
    other = RunEvidence(exit_code=1, attempts_told=True, lookups=("index.example.org",))
    assert {d.target: d.confidence for d in denials(where, words, other)} == {
        "index.example.org": "high", "evil.example.net": "low",
    }  # fmt: skip
    # Something was looked up, and the kernel could not tell what: a host of the caller, perhaps.
    asked = RunEvidence(
        exit_code=1, attempts_told=True, notified=(ConnectAttempt("127.0.0.1", 53),)
    )
    assert {d.target: (d.confidence, d.remedy) for d in denials(where, words, asked)} == {
        None: ("medium", None), "evil.example.net": ("low", None),
    }  # fmt: skip
    caller = setting("curl", "https://evil.example.net/")
    (told,) = denials(caller, words, asked)
    assert (told.confidence, told.remedy is not None) == ("medium", True)
    tried = RunEvidence(exit_code=1, attempts_told=True, lookups=("evil.example.net",))
    assert [d.confidence for d in denials(where, words, tried)] == ["high"]


def test_a_lookup_beside_an_installation_that_succeeded_is_no_denial() -> None:
    asked = RunEvidence(exit_code=0, lookups=("registry.example.org",))
    for argv in (("npm", "install"), ("sh", "-c", "cd app && npm ci"), ("pip", "install", ".")):
        assert denials(setting(*argv), "", asked) == []
    failed = RunEvidence(exit_code=1, lookups=("registry.example.org",))
    for argv, facts in (
        (("npm", "install"), failed),
        (("sh", "-c", "npm install; curl -s https://registry.example.org"), asked),
        (("sh", "-c", "npm install x 2>/dev/null || true"), asked),
        (("make",), asked),
    ):
        assert [d.target for d in denials(setting(*argv), "", facts)] == ["registry.example.org"]
    words = "npm error getaddrinfo EAI_AGAIN registry.example.org\n"
    (told,) = denials(setting("sh", "-c", "npm install x || true"), words, asked)
    assert told.remedy is not None


@pytest.mark.parametrize(
    ("argv", "entry"),
    [
        (("ssh", "git@example.org"), "example.org:22"),
        (("ssh", "-p", "2222", "example.org", "ls"), "example.org:2222"),
        (("ssh", "-p2222", "example.org"), "example.org:2222"),
        (("ssh", "-p", "99999999", "example.org"), "example.org:22"),
        (("scp", "-P", "2222", "x", "me@example.org:"), "example.org:2222"),
        (("git", "clone", "git@example.org:a/b.git"), "example.org:22"),
        (("git", "clone", "https://example.org/a/b.git"), "example.org"),
        (("make",), "example.org"),
    ],
)
def test_a_lookup_is_allowed_with_the_port_that_the_command_line_means(
    argv: tuple[str, ...], entry: str
) -> None:
    facts = RunEvidence(exit_code=1, lookups=("example.org",))
    (found,) = denials(setting(*argv), "", facts)
    assert found.remedy == {"network": {"kind": "allow_hosts", "hosts": [entry]}}


def test_a_service_of_the_host_s_loopback_is_believed_when_it_was_tried() -> None:
    words = "curl: (7) Failed to connect to localhost port 8080: Connection refused\n"
    where = setting("make", view=host(ports=[8080]))
    silent = RunEvidence(exit_code=1, attempts_told=True)
    assert [d.confidence for d in denials(where, words, silent)] == ["low"]
    tried = RunEvidence(
        exit_code=1, attempts_told=True, notified=(ConnectAttempt("127.0.0.1", 8080),)
    )
    (found,) = denials(where, words, tried)
    assert (found.confidence, found.claimed) == ("high", False)
    assert found.remedy == {"network": {"kind": "allow_hosts", "hosts": ["localhost:8080"]}}
    both = replace(tried, notified=(*tried.notified, ConnectAttempt("::1", 8080)))
    (found,) = denials(where, words, both)
    assert (found.target, found.remedy) == ("localhost", found.remedy)


def test_an_ipv6_address_in_a_message_is_read_as_a_whole() -> None:
    address = "2606:4700::1111"
    tried = RunEvidence(exit_code=7, attempts_told=True, notified=(ConnectAttempt(address, 8080),))
    for words in (
        f"curl: (7) Failed to connect to {address} port 8080 after 0 ms: Couldn't connect",
        f"Error: connect ECONNREFUSED {address}:8080",
    ):
        for rule in (NetworkRule("deny"), NetworkRule("allow_hosts", (address,))):
            (found,) = denials(setting("make", network=rule), words + "\n", tried)
            assert (found.target, found.evidence) == (address, "kernel")
            assert f"[{address}]:8080 could not be reached" in found.message
            assert f"[{address}]:8080" in str(found.remedy)


@pytest.mark.parametrize("entry", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("address", ["localhost", "127.0.0.1"])
def test_of_this_machine_another_port_is_the_reason(entry: str, address: str) -> None:
    rule = NetworkRule("allow_hosts", (entry,))
    where = setting("make", network=rule, view=host(ports=[18999]))
    tried = RunEvidence(exit_code=1, notified=(ConnectAttempt(address, 18999),))
    (found,) = denials(where, "", tried)
    assert "of this host only ports 80 and 443 are allowed" in found.message
    assert "localhost:18999" in str(found.remedy)
