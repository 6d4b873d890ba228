"""A workspace that its user may not list or enter is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.daemon import Daemon
from support.rpc import RpcError

pytestmark = [pytest.mark.requires("unprivileged", "bubblewrap")]


@pytest.mark.parametrize("method", ["execute", "sandbox/create", "manifest/check"])
@pytest.mark.parametrize("mode", [0o000, 0o300, 0o600])
def test_a_workspace_with_a_closed_mode_is_refused(
    daemon: Daemon, tmp_path: Path, method: str, mode: int
) -> None:
    workspace = tmp_path / "closed"
    workspace.mkdir()
    params = {"preset": "workspace-write", "workspace": str(workspace)}
    if method == "execute":
        params["argv"] = ["true"]  # type: ignore[assignment]
    with daemon.connect() as client:
        workspace.chmod(mode)
        with pytest.raises(RpcError) as refused:
            client.call(method, params)
        workspace.chmod(0o700)
        assert (refused.value.kind, refused.value.data["field"]) == ("PathDenied", "workspace")
        assert "list and enter" in refused.value.message
        client.call(method, params)  # the control: it is open
