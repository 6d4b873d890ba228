"""A short round of every fuzz target, the same in every run. `make fuzz` takes minutes instead."""

from __future__ import annotations

import pytest
from fuzz import target_file_server, target_init_messages
from fuzz.driver import Finding, Target, run
from fuzz.targets import TARGETS

SEED, COUNT = 1, 10_000
SLOWER = {"socks": 1000}
IN_C = {"init_messages", "file_server"}


@pytest.mark.parametrize("name", sorted(set(TARGETS) - IN_C))
def test_a_parser_refuses_only_as_it_declares(name: str) -> None:
    count = SLOWER.get(name, COUNT)
    assert run(TARGETS[name], SEED, count=count) == count


@pytest.mark.requires("sanitizers")
def test_the_init_reads_any_message_without_a_complaint_of_the_sanitizers() -> None:
    assert run(TARGETS["init_messages"], SEED, count=COUNT) == COUNT


@pytest.mark.requires("sanitizers")
def test_the_init_reads_what_the_daemon_writes() -> None:
    """Both ends of the wire agree on every field that is counted."""
    known = target_init_messages.known()
    assert target_init_messages.answers(target_init_messages.seeds()) == [k[3] for k in known]


@pytest.mark.requires("sanitizers")
def test_the_sanitizers_find_a_fault() -> None:
    with pytest.raises(AssertionError, match="heap-buffer-overflow"):
        target_init_messages.answers(target_init_messages.seeds(), "-DPLANTED_FAULT")


@pytest.mark.requires("sanitizers", "bubblewrap")
def test_the_file_server_takes_any_request_without_a_complaint_of_the_sanitizers() -> None:
    assert run(TARGETS["file_server"], SEED, count=2000, batch=1000) == 2000


@pytest.mark.requires("sanitizers", "bubblewrap")
def test_the_sanitizers_find_a_fault_of_the_file_server() -> None:
    """The control of both: without the fault the first request is carried out."""
    first = target_file_server.seeds()[:1]
    assert target_file_server.answers(first) == [0]
    with pytest.raises(AssertionError, match=r"insufficient space|heap-buffer-overflow"):
        target_file_server.answers(first, "-DPLANTED_FAULT")


def test_a_parser_with_a_fault_is_found_and_the_fault_repeated() -> None:
    def check(data: bytes) -> None:
        if b"\xff\xff" in data:
            raise IndexError("the fault")

    target = Target("faulty", lambda: [b"harmless"], check)
    with pytest.raises(Finding, match="IndexError: the fault") as caught:
        run(target, SEED, count=COUNT)
    number = int(str(caught.value).split("--first ")[1].split()[0])
    with pytest.raises(Finding, match="IndexError: the fault"):
        run(target, SEED, first=number, count=1)
