"""A server on the host's loopback: the first remedy works as it is printed."""

from __future__ import annotations

import shlex
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ctl import Ctl

FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=30).read().decode())"


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        pass


class V6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


@pytest.fixture(params=["127.0.0.1", "::1"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    kind = V6 if request.param == "::1" else ThreadingHTTPServer
    with kind((request.param, 0), Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize("given", [[], ["--net", "example.org"]])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_remedy_for_a_local_server_works(
    inside: Ctl, port: int, host: str, given: list[str]
) -> None:
    fetch = ["--", "python3", "-c", FETCH, f"http://{host}:{port}/"]
    refused = inside("run", *given, *fetch)
    assert refused.returncode == 1
    said = refused.stderr.decode()
    assert said.count("denied: ") == 1, said
    flags = shlex.split(said.rpartition("to allow it add: ")[2])
    assert flags == ["--net", f"localhost:{port}"], said
    done = inside("run", *given, *flags, *fetch)
    assert done.stdout == b"hello\n", done.stderr
