"""A bwrap that another process kills before a command runs in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.daemon import Daemon
from support.rpc import RpcError

StartDaemon = Callable[..., Daemon]
pytestmark = pytest.mark.requires("bubblewrap")
REQUEST = {"argv": ["echo", "on"], "backend": "bubblewrap"}


def killed_bwrap(folder: Path, times: int) -> None:
    """Kills itself as often as that when it is to make a sandbox, and else is the real one."""
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "left").write_text("x" * times)
    program = folder / "bwrap"
    program.write_text(
        "#!/bin/sh\n"
        f"left=$(cat {folder}/left)\n"
        'if [ "$1" = --args ] && [ "$left" ]; then\n'
        f'  printf %s "${{left%x}}" > {folder}/left\n'
        "  kill -KILL $$\n"
        "fi\n"
        'exec /usr/bin/bwrap "$@"\n'
    )
    program.chmod(0o755)


def test_it_is_started_again(start_daemon: StartDaemon, tmp_path: Path) -> None:
    killed_bwrap(tmp_path / "bin", times=2)
    daemon = start_daemon(env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    with daemon.connect() as client:
        assert client.call("execute", REQUEST)["stdout"]["data"] == "on\n"
    assert (tmp_path / "bin/left").read_text() == ""


def test_one_that_never_comes_up_is_refused(start_daemon: StartDaemon, tmp_path: Path) -> None:
    killed_bwrap(tmp_path / "bin", times=50)
    daemon = start_daemon(env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    with daemon.connect() as client, pytest.raises(RpcError, match="killed by SIGKILL") as refused:
        client.call("execute", REQUEST)
    assert refused.value.kind == "SandboxUnavailable"
