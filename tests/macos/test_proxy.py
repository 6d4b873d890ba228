"""allow_hosts on macOS: a proxy on the host's loopback is the only way out.

The stand-in closes no network; the profile's rule for it is in test_profile. Here the proxy runs.
"""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from macos.stand_in.options import stand_in_daemon
from support.daemon import Daemon

pytestmark = pytest.mark.requires("tinyscheme", "curl")


PATIENCE_S = 10.0


class Quiet(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"reached")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running.server_address[1]
        running.shutdown()


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with stand_in_daemon() as running:
        yield running


def run(daemon: Daemon, allowed: str, script: str) -> dict[str, Any]:
    manifest = {"network": {"kind": "allow_hosts", "hosts": [allowed]}, "env": {"A": "b"}}
    with daemon.connect() as connection:
        params = {"argv": ["/bin/sh", "-c", script], "manifest": manifest}
        ran: dict[str, Any] = connection.call("execute", params)
    return ran


def text(ran: dict[str, Any]) -> str:
    return str(ran["stdout"]["data"])


# no_proxy names the loopback, where this test's server is.
GET = 'curl -s -m 10 --noproxy "" -x "$http_proxy" -w "%{http_code}" http://127.0.0.1:'


def test_an_allowed_host_is_reached_through_the_proxy(daemon: Daemon, server: int) -> None:
    ran = run(daemon, f"127.0.0.1:{server}", f"{GET}{server}/")
    assert text(ran) == "reached200", ran


def test_socks_is_spoken_too(daemon: Daemon, server: int) -> None:
    script = f'curl -s -m 10 --noproxy "" -x "$all_proxy" http://127.0.0.1:{server}/'
    assert text(run(daemon, f"127.0.0.1:{server}", script)) == "reached"


def test_another_host_is_refused_and_reported(daemon: Daemon, server: int) -> None:
    ran = run(daemon, "example.org:443", f"{GET}{server}/")
    assert text(ran).endswith("403")
    assert [denial["layer"] for denial in ran["denials"]] == ["gate"]


def test_without_the_executions_secret_nothing_is_reached(daemon: Daemon, server: int) -> None:
    """Any process of this machine can connect to the proxy's port."""
    script = "where=${http_proxy##*@}; " + GET.replace("$http_proxy", "$where") + f"{server}/"
    assert text(run(daemon, f"127.0.0.1:{server}", script)).endswith("407")


def test_the_port_is_the_sandboxs_own_and_ends_with_it(daemon: Daemon, server: int) -> None:
    ran = run(daemon, f"127.0.0.1:{server}", 'echo "$HTTPS_PROXY" "$no_proxy" "$A"')
    proxy, direct, own = text(ran).split()
    assert own == "b"
    assert direct == "localhost,127.0.0.1,::1"
    host, _, port = proxy.rpartition("@")[2].partition(":")
    assert host == "127.0.0.1"
    until = time.monotonic() + PATIENCE_S
    while _listens(host, int(port)):
        assert time.monotonic() < until
        time.sleep(0.02)


def _listens(host: str, port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex((host, port)) == 0
