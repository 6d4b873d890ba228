"""Commands run with allow_hosts, and what tests read off their results."""

from __future__ import annotations

from typing import Any

from small_internet import Net
from support.rpc import Connection


class Runner:
    """Runs shell text with allow_hosts and answers the result of `execute`."""

    def __init__(self, connection: Connection, net: Net) -> None:
        self.connection = connection
        self.net = net

    def manifest(self, *hosts: str, **more: Any) -> dict[str, Any]:
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "CURL_CA_BUNDLE": self.net.ca,
            "GIT_SSL_CAINFO": self.net.ca, "NODE_EXTRA_CA_CERTS": self.net.ca, "LANG": "C.UTF-8",
        }  # fmt: skip
        return {
            "network": {"kind": "allow_hosts", "hosts": list(hosts)},
            "fs_read_allow": [str(self.net.folder)],
            "env": {**env, **more.pop("env", {})},
            "timeout": 60,
            **more,
        }

    def __call__(
        self, script: str, *hosts: str, argv: list[str] | None = None, **more: Any
    ) -> dict[str, Any]:
        params = {"argv": argv or ["bash", "-c", script], "manifest": self.manifest(*hosts, **more)}
        result: dict[str, Any] = self.connection.call("execute", params)
        return result

    def python(self, code: str, *hosts: str, **more: Any) -> dict[str, Any]:
        return self("", *hosts, argv=["/usr/bin/python3", "-c", code], **more)


def out(result: dict[str, Any]) -> str:
    text: str = result["stdout"]["data"]
    return text


def denied(result: dict[str, Any]) -> list[tuple[str, str]]:
    """(target, message) of the gate's denials."""
    return [(d["target"], d["message"]) for d in result["denials"] if d["layer"] == "gate"]
