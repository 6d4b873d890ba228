"""A full /tmp or /dev/shm of the sandbox is a denial, however a command filled it.

The kernel's numbers are the evidence: at the end of the command, and before each fallocate().
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.daemon import Daemon, running_daemon

pytestmark = pytest.mark.requires("bubblewrap")

PLACES = {"/dev/shm": "shm_bytes", "/tmp": "tmp_bytes"}
MIB = 1 << 20
OPEN = "import os, mmap; fd = os.open('%s/x', os.O_CREAT | os.O_RDWR)\n"
FAILING = {
    "a large file": "head -c 5M /dev/zero > %s/x",
    "many files": "i=0; while echo x > %s/$i; do i=$((i+1)); done 2> /dev/null; exit 1",
    "a command that a signal ends": "head -c 5M /dev/zero > %s/x || kill -9 $$",
    "a process of its own session": "setsid -w head -c 5M /dev/zero > %s/x; exit 1",
    "fallocate": OPEN + "os.posix_fallocate(fd, 0, 5 << 20)",
    "fallocate in a file that is removed": OPEN
    + "os.unlink('%s/x'); os.posix_fallocate(fd, 0, 5 << 20)",
    "a mapping": OPEN
    + "os.ftruncate(fd, 5 << 20)\nm = mmap.mmap(fd, 5 << 20)\n"
    + "for at in range(0, 5 << 20, 4096): m[at] = 1",
}


@pytest.fixture(scope="module", params=["true", "false"], ids=["template", "bwrap"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with running_daemon(config=f"[pool]\ntemplate = {request.param}\n") as daemon:
        yield daemon


@pytest.fixture(params=["fresh", "persistent"])
def execute(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Runs a program of Python, or else a line of shell, with small places."""
    manifest = {"network": "deny", "tmp_bytes": MIB, "shm_bytes": MIB}
    with daemon.connect() as connection:
        where: dict[str, Any] = {"manifest": manifest}
        if request.param == "persistent":
            where = {"sandbox": connection.call("sandbox/create", where)["sandbox"]}

        def run(program: str) -> Any:
            words = ["python3", "-c"] if program.startswith("import") else ["sh", "-c"]
            return connection.call("execute", {"argv": [*words, program], **where})

        yield run
        if "sandbox" in where:
            connection.call("sandbox/destroy", where)


def full(result: Any) -> list[tuple[str, str, str]]:
    return [
        (denial["target"], denial["confidence"], denial["evidence"])
        for denial in result["denials"]
        if denial["kind"] == "file_size"
    ]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", FAILING)
def test_a_full_place_is_a_denial_with_its_remedy(execute: Any, way: str, place: str) -> None:
    result = execute(FAILING[way].replace("%s", place))
    assert result["exit_code"] != 0
    assert full(result) == [(place, "high", "kernel")]
    assert result["denials"][0]["remedy"] == {PLACES[place]: 4 * MIB}


@pytest.mark.parametrize("place", PLACES)
def test_of_a_command_that_succeeds_it_is_less_certain(execute: Any, place: str) -> None:
    result = execute(f"head -c 5M /dev/zero > {place}/x 2> /dev/null; true")
    assert result["exit_code"] == 0
    assert full(result) == [(place, "medium", "kernel")]


@pytest.mark.parametrize("place", PLACES)
def test_words_are_no_evidence_of_a_full_place(execute: Any, place: str) -> None:
    said = f"x: error writing '{place}/x': No space left on device"
    assert execute(f'echo "{said}" >&2; exit 1')["denials"] == []


def test_what_has_room_is_no_denial(execute: Any) -> None:
    fits = OPEN.replace("%s", "/tmp") + "os.posix_fallocate(fd, 0, 1 << 19)\n"
    fits += "os.posix_fallocate(fd, 0, 1 << 19); os.posix_fallocate(fd, 4096, 700000); os._exit(3)"
    assert full(execute(fits)) == []


@pytest.mark.parametrize("execute", ["persistent"], indirect=True)
def test_a_place_that_was_full_before_is_less_certain(execute: Any) -> None:
    assert full(execute("head -c 5M /dev/zero > /tmp/x")) == [("/tmp", "high", "kernel")]
    assert full(execute("exit 3")) == [("/tmp", "medium", "kernel")]
    assert execute("true")["denials"] == []
    assert execute("rm /tmp/x")["denials"] == []
    assert execute("exit 3")["denials"] == []
