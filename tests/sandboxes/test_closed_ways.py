"""A folder above a granted path is closed to the command's user: no sandbox that waited and no
clone of a template shows the path any more."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon, running_daemon
from support.rpc import RpcError
from support.users import as_user, open_to_others, unprivileged_user

pytestmark = [pytest.mark.requires("bubblewrap", "root"), pytest.mark.isolation]
ANYBODY = 0xFFFFFFFF


def _close_by_mode(folder: Path) -> None:
    folder.chmod(0o700)


def _close_by_list(folder: Path) -> None:
    """`setfacl -m u:USER:---`: the mode stays as it is."""
    own, named, group, mask, others = 1, 2, 4, 16, 32
    uid = unprivileged_user().pw_uid
    of_all = [(own, 7, ANYBODY), (group, 5, ANYBODY), (mask, 5, ANYBODY), (others, 5, ANYBODY)]
    entries = sorted([*of_all, (named, 0, uid)])
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    mode = folder.stat().st_mode
    os.setxattr(folder, "system.posix_acl_access", packed)
    assert folder.stat().st_mode == mode


@pytest.fixture(params=["warm", "clone", "bwrap"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    enabled = "true" if request.param == "warm" else "false"
    template = {"SANDBOXD_POOL_TEMPLATE": "false" if request.param == "bwrap" else "true"}
    with running_daemon(config=f"[pool]\nenabled = {enabled}\n", env=template) as made:
        yield made


@pytest.mark.parametrize("close", [_close_by_mode, _close_by_list])
def test_no_later_command_reads_or_writes_there(
    daemon: Daemon, tmp_path: Path, close: Callable[[Path], None]
) -> None:
    user = unprivileged_user()
    workspace = tmp_path / "above" / "workspace"
    workspace.mkdir(parents=True)
    os.chown(workspace, user.pw_uid, user.pw_gid)
    open_to_others(tmp_path)
    file, made = workspace / "file", workspace / "made"
    file.write_text("before")
    file.chmod(0o644)
    params = {
        "argv": ["sh", "-c", f"cat {file}; touch {made}"], "cwd": "/", "workspace": str(workspace),
        "manifest": {"fs_write_allow": [str(workspace)], "network": "deny"},
    }  # fmt: skip
    with daemon.connect() as connection:
        for _ in range(3):
            result = connection.call("execute", params)
            assert result["stdout"]["data"] == "before", result["stderr"]
        made.unlink()
        close(workspace.parent)
        file.write_text("after")
        control = [*as_user(user), "cat", str(file)]
        assert subprocess.run(control, capture_output=True, check=False).returncode != 0
        for _ in range(3):
            with pytest.raises(RpcError) as refused:
                connection.call("execute", params)
            assert refused.value.kind in ("PathDenied", "SandboxUnavailable")
        assert not made.exists()
