"""A user leaves a group while a daemon of root keeps sandboxes for the user's commands ready."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import Daemon, running_daemon
from support.users import open_to_others, unprivileged_user

pytestmark = [pytest.mark.requires("bubblewrap", "root"), pytest.mark.isolation]
GROUP, NUMBER = "sandboxd-extra", 54777
# A directory service of its own for this daemon: neither /etc/passwd nor /etc/group changes.
OWN_RUN = 'mount -t tmpfs own /run && mkdir /run/userdb && exec "$@"'


@pytest.fixture(params=["true", "false"], ids=["warm", "cold"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    prefix = ["unshare", "--mount", "sh", "-c", OWN_RUN, "sh"]
    config = f"[pool]\nenabled = {request.param}\n"
    env = {"SANDBOXD_POOL_TEMPLATE": "true"}
    with running_daemon(prefix=prefix, config=config, env=env) as made:
        yield made


@pytest.mark.skipif(
    "systemd" not in Path("/etc/nsswitch.conf").read_text(), reason="no service to add groups with"
)
def test_a_group_that_was_taken_away_is_gone(daemon: Daemon, tmp_path: Path) -> None:
    user = unprivileged_user()
    records = Path(f"/proc/{daemon.pid}/root/run/userdb")
    member = records / f"{user.pw_name}:{GROUP}.membership"
    (records / f"{GROUP}.group").write_text(f'{{"groupName":"{GROUP}","gid":{NUMBER}}}')
    (records / f"{NUMBER}.group").symlink_to(f"{GROUP}.group")
    shared = tmp_path / "shared"
    shared.write_text("for the group\n")
    os.chown(shared, 0, NUMBER)
    shared.chmod(0o640)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    os.chown(workspace, user.pw_uid, user.pw_gid)
    open_to_others(tmp_path)
    params = {
        "argv": ["cat", str(shared)], "workspace": str(workspace), "preset": "workspace-write",
        "manifest": {"fs_read_allow": [str(shared)]},
    }  # fmt: skip

    def becomes(readable: bool) -> None:
        deadline = time.monotonic() + 60
        with daemon.connect() as connection:
            while (connection.call("execute", params)["exit_code"] == 0) is not readable:
                assert time.monotonic() < deadline, f"still {not readable}"

    becomes(readable=False)
    member.write_text("{}")
    becomes(readable=True)
    member.unlink()
    becomes(readable=False)
