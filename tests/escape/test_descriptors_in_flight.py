"""Descriptors on their way through sockets are counted for the user, over all sandboxes, and are
refused above the limit of files of the sender. Answers of templates and inits carry some, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.attacks import Box, python
from support.backends import OTHER_WAY, product_name, running_backend

pytestmark = pytest.mark.isolation
MOST = 3000  # of the daemon: other programs of this user, which have more, are not disturbed
FILL = python("""
    import socket
    fd, kept, sent = os.open("/dev/null", os.O_RDONLY), [], 0
    try:
        while sent < 100000:
            if sent % (40 * 253) == 0:
                kept.append(socket.socketpair())
            socket.send_fds(kept[-1][0], [b"x"], [fd] * 253)
            sent += 253
    except OSError as error:
        print(sent, error.errno, flush=True)
    sys.stdin.read()
""")
ETOOMANYREFS = 109


@pytest.fixture(params=["bubblewrap", OTHER_WAY])
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    prefix = ("prlimit", f"--nofile={MOST}:{MOST}")
    with running_backend(request.param, prefix=prefix) as daemon:
        box = Box(product_name(request.param), daemon)
        yield box
        box.close()


def test_no_command_uses_up_what_the_daemon_needs(box: Box, tmp_path: Path) -> None:
    workspace = tmp_path.resolve()
    (workspace / "own").mkdir()
    with box.daemon.connect() as attacker, box.daemon.connect(timeout_s=60) as other:
        params = {"argv": list(FILL), "stream": True, "stdin_open": True, "execution_id": "fill"}
        request = attacker.start("execute", params)
        attacker.wait_until(lambda: "\n" in attacker.output("fill"))
        sent, error = map(int, attacker.output("fill").split())
        assert (sent > MOST // 2, error) == (True, ETOOMANYREFS), "the control: it was refused"
        for more in (
            {},
            {"pty": {"rows": 24, "cols": 80}, "stream": True},
            {"preset": "read-only"},
        ):
            policy: dict[str, Any] = {"preset": "workspace-write"}
            params = {**policy, "workspace": str(workspace / "own"), "argv": ["true"], **more}
            result = other.result(other.start("execute", params))
            assert (result["outcome"], result["exit_code"]) == ("exited", 0), result
        attacker.call("execution/close_stdin", {"execution_id": "fill"})
        assert attacker.result(request)["outcome"] == "exited"
