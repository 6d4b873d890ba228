"""What the init notices in a container: the same evidence as on this machine's own sandboxes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rpc import RpcError
from support.runs import Runner

SILENT = """
import socket
try: socket.create_connection(("192.0.2.7", 7777), 2)
except OSError: pass
"""


@pytest.mark.parametrize("base", ["minimal", "host"])
def test_refused_access_is_explained(box: Runner, workspace: Path, base: str) -> None:
    (workspace / "data").write_text("1\n")
    ran = box.run("cat", f"{workspace}/data", manifest={"base": base}, explain=True)
    assert ran.exit_code != 0
    assert ran.raw["explanation"]["missing"] == {"fs_read_allow": [f"{workspace}/data"]}
    (denial,) = ran.denials
    assert (denial["kind"], denial["evidence"]) == ("filesystem_read", "kernel")
    # What it proposes is enough.
    manifest = ran.raw["explanation"]["manifest"]
    assert box.run("cat", f"{workspace}/data", manifest=manifest).stdout == "1\n"


def test_refused_write_is_explained(box: Runner, workspace: Path) -> None:
    manifest = {"fs_read_allow": [str(workspace)]}
    ran = box.shell(f"echo x > {workspace}/new", manifest=manifest, explain=True)
    assert ran.raw["explanation"]["missing"] == {"fs_write_allow": [str(workspace)]}


def test_connection_that_fails_silently_is_a_denial_with_its_address(box: Runner) -> None:
    ran = box.run("python3", "-c", SILENT, manifest={"network": "deny"})
    assert ran.exited(0), ran.story
    (denial,) = ran.denials
    assert (denial["target"], denial["evidence"]) == ("192.0.2.7", "kernel")
    assert denial["remedy"] == {"network": {"kind": "allow_hosts", "hosts": ["192.0.2.7:7777"]}}


def test_attached_engine_refuses_to_explain(relayed: Runner) -> None:
    with pytest.raises(RpcError) as refused:
        relayed.run("true", explain=True)
    assert (refused.value.kind, refused.value.field) == ("PolicyNotSupported", "explain")
