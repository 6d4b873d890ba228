"""`sandboxctl dashboard`: a page with sessions, approvals and the trail, served by this process.

It listens on 127.0.0.1 only. The address that is printed has a token in its fragment, which no
server log or Referer shows; it can be used once and is exchanged for a cookie that other sites
cannot send. Host and Origin are checked, so no other site and no rebound name can talk to it, and
on Linux the user at the other end, who must be this one.
"""

from __future__ import annotations

import hmac
import os
import webbrowser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sandboxd_client.cli.approver_connection import running_daemon
from sandboxd_client.cli.dashboard_page import CSS, HTML, JS
from sandboxd_client.cli.dashboard_state import DashboardState
from sandboxd_client.cli.loopback_peer import is_other_user
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.jsontext import dumps, loads
from sandboxd_proto.errors import SandboxdError

MOST_BYTES = 64 * 1024
PATIENCE_S = 20
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FILES = {
    "/": ("text/html; charset=utf-8", HTML),
    "/page.css": ("text/css; charset=utf-8", CSS),
    "/page.js": ("text/javascript; charset=utf-8", JS),
}


def main(options: Options) -> int:
    port = options.one("--port") or "0"
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise UsageError(f"--port cannot be {port!r}", "write a number from 1 to 65535")
    with DashboardState(running_daemon(options)) as state:
        server = DashboardServer(int(port), state)
        print(server.address, flush=True)
        if not options.has("--no-open"):
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
        finally:
            server.server_close()
    return 0


class DashboardServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, state: DashboardState) -> None:
        super().__init__(("127.0.0.1", port), DashboardHandler)
        self.state = state
        self.host = f"127.0.0.1:{self.server_address[1]}"
        self._token: str | None = os.urandom(24).hex()
        self._cookie = os.urandom(24).hex()

    @property
    def address(self) -> str:
        return f"http://{self.host}/#{self._token}"

    def log_in(self, token: str) -> str | None:
        """The cookie, for the token that is good for one use."""
        if self._token is None or not hmac.compare_digest(self._token.encode(), token.encode()):
            return None
        self._token = None
        return self._cookie

    def knows(self, cookie: str) -> bool:
        return hmac.compare_digest(self._cookie.encode(), cookie.encode())


class DashboardHandler(BaseHTTPRequestHandler):
    server: DashboardServer
    timeout = PATIENCE_S
    server_version = "sandboxctl"
    sys_version = ""

    def do_GET(self) -> None:
        if not self._is_ours(changes=False):
            return self._refuse(403, "this page is for this address only")
        path = self.path.partition("?")[0]
        if path in _FILES:
            return self._send(200, *_FILES[path])
        if path == "/state":
            return self._with_cookie(lambda: self.server.state.read())
        return self._refuse(404, "there is no such page")

    def do_POST(self) -> None:
        if not self._is_ours(changes=True):
            return self._refuse(403, "this page is for this address only")
        body = self._body()
        if body is None:
            return self._refuse(400, "the request cannot be read")
        if self.path == "/login":
            return self._log_in(body)
        if self.path == "/decide":
            return self._with_cookie(lambda: self.server.state.decide(body))
        return self._refuse(404, "there is no such page")

    def _is_ours(self, *, changes: bool) -> bool:
        """A request of our own page: its Host, and for a change its Origin, are this server's, and
        its browser is this user's."""
        if is_other_user(self.client_address, ("127.0.0.1", self.server.server_address[1])):
            return False
        if self.headers.get_all("Host", []) != [self.server.host]:
            return False
        origin = self.headers.get("Origin")
        if origin != f"http://{self.server.host}" and (changes or origin is not None):
            return False
        return self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    def _body(self) -> dict[str, Any] | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return None
        if self.headers.get_content_type() != "application/json":
            return None
        try:
            value = loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def _log_in(self, body: dict[str, Any]) -> None:
        cookie = self.server.log_in(str(body.get("token", "")))
        if cookie is None:
            return self._refuse(403, "the address can be used once: start the dashboard again")
        value = f"{self._cookie_name}={cookie}; HttpOnly; SameSite=Strict; Path=/"
        return self._send(200, "application/json", b"{}", {"Set-Cookie": value})

    @property
    def _cookie_name(self) -> str:
        """Cookies of one host are shared by all its ports."""
        return f"sandboxd-{self.server.server_address[1]}"

    def _with_cookie(self, work: Any) -> None:
        given = dict(
            part.strip().partition("=")[::2] for part in self.headers.get("Cookie", "").split(";")
        )
        if not self.server.knows(given.get(self._cookie_name, "")):
            return self._refuse(401, "log in with the address that sandboxctl printed")
        try:
            return self._send(200, "application/json", dumps(work()))
        except SandboxdError as error:
            return self._refuse(409, error.message)

    def _refuse(self, status: int, message: str) -> None:
        self._send(status, "application/json", dumps({"error": message}))

    def _send(
        self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed: requests hold nothing that a terminal needs."""
