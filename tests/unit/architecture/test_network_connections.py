"""Only the egress gate and the backends of an engine open network connections."""

from __future__ import annotations

import ast
from pathlib import Path

import sandboxd

PERMITTED = ("egress/", "backends/docker/", "backends/opensandbox/")
# A Unix socket: whether a daemon listens there. A process inside a sandbox is asked to connect to a
# port of the sandbox's own loopback.
OTHERS = {
    ("rpc/transport/unix_listener.py", "connect"),
    ("supervisor/sandboxes/files.py", "connect"),
    ("supervisor/sandboxes/forward.py", "connect"),
}
CALLS = {
    "connect", "connect_ex", "connect_tcp", "create_connection", "create_datagram_endpoint",
    "create_connected_udp_socket", "open_connection", "open_unix_connection", "sock_connect",
    "urlopen", "getaddrinfo",
}  # fmt: skip
MODULES = {"aiodocker", "aiohttp", "ftplib", "http", "httpx", "requests", "smtplib", "urllib3"}


def uses(source: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            found |= {name} & CALLS
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module.partition(".")[0]} & MODULES
    return found


def test_no_other_module_opens_a_connection() -> None:
    root = Path(sandboxd.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        where = path.relative_to(root).as_posix()
        if not where.startswith(PERMITTED):
            found |= {(where, name) for name in uses(path.read_text())}
    assert found == OTHERS


def test_the_search_finds_the_permitted_ones() -> None:
    root = Path(sandboxd.__file__).parent
    assert "connect" in uses((root / "egress/sockets.py").read_text())
    assert "aiohttp" in uses((root / "backends/docker/engine.py").read_text())
