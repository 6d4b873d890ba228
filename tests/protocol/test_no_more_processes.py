"""Where no more processes can be made a request is refused as busy, with that reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.daemon import Daemon
from support.rpc import RpcError

pytestmark = [pytest.mark.requires("unprivileged", "bubblewrap", "landlock")]
CONFIG = "[pool]\nenabled = false\n[peers]\nallow_other_namespaces = true\n"


def limited(start_daemon: Callable[..., Daemon], processes: int) -> Daemon:
    """The kernel counts the user's processes in a user namespace of their own."""
    prefix = ["unshare", "--user", "--map-current-user", "prlimit", f"--nproc={processes}"]
    return start_daemon(config=CONFIG, prefix=prefix)


@pytest.mark.parametrize("processes", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_no_more_processes_is_busy(
    start_daemon: Callable[..., Daemon], backend: str, processes: int
) -> None:
    """However far the start of a sandbox gets before the limit is reached."""
    daemon = limited(start_daemon, processes)
    with daemon.connect() as client:
        for _ in range(2):
            asked = client.start("execute", {"argv": ["/bin/true"], "backend": backend})
            error = client.answer(asked).get("error")
            if error is not None:
                assert error["data"]["kind"] == "Busy", (processes, error, daemon.log)
                assert "no more processes" in error["message"]
                assert "TasksMax" in error["data"]["remedy"]
        client.call("status")
    assert "Traceback" not in daemon.log


def test_the_limit_is_reached_and_goes_away(start_daemon: Callable[..., Daemon]) -> None:
    """The control: refused with few, and served with enough of them."""
    with limited(start_daemon, 3).connect() as few, pytest.raises(RpcError, match="no more proc"):
        few.call("execute", {"argv": ["/bin/true"]})
    with limited(start_daemon, 64).connect() as enough:
        assert enough.call("execute", {"argv": ["/bin/true"]})["exit_code"] == 0
