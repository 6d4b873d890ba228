"""A small Internet in a network namespace: hosts with public addresses, names, and what they serve.

Run in a namespace of its own, which is that of the daemon's machine: `internet.py FOLDER` makes
another one for the hosts, with their addresses on its loopback device, and a wire between the two.
It serves, prints one line and ends when its stdin is closed. FOLDER holds certificates and
repositories, and gets `seen`, one line for each connection: what the gate let through.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import http.server
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME_SERVER = "93.184.216.53"
ADDRESSES = {
    "example.test": "93.184.216.34",
    "www.example.test": "93.184.216.35",
    "api.example.test": "93.184.216.35",
    "other.test": "93.184.216.36",
    "xn--bcher-kva.test": "93.184.216.34",
    "bucket.r2.dev": "93.184.216.36",
    "inner.test": "10.20.30.40",
    "meta.test": "169.254.169.254",
    "loop.test": "127.0.0.1",
    "mapped.test": "::ffff:10.20.30.40",
    "six.test": "2606:2800:220:1::34",
    "lenient.test": "93.184.216.37",
    "www.lenient.test": "93.184.216.37",
    "ssh.test": "93.184.216.38",
    "home.test": "93.184.216.99",
    "home6.test": "2606:2800:220:1::99",
}
LENIENT, SSH = "93.184.216.37", "93.184.216.38"
HTTP_ADDRESSES = ("93.184.216.34", "93.184.216.35", "93.184.216.36", "10.20.30.40",
                  "169.254.169.254", "2606:2800:220:1::34")  # fmt: skip
# Of the machine that the daemon runs on.
OWN_ADDRESSES = ("93.184.216.99", "2606:2800:220:1::99")
GATEWAY, GATEWAY_6 = "192.0.2.1", "fd00:77::1"
CLONE_NEWNET = 0x40000000
ECHO, BANNER, SINK, SOURCE, SLOW = 7000, 7001, 7002, 7003, 7004


class Web(http.server.BaseHTTPRequestHandler):
    """Says who it was asked for; keeps connections open, so that a second request can follow."""

    protocol_version = "HTTP/1.1"
    folder = ""

    def do_GET(self) -> None:
        if self.path.startswith("/repo"):
            self._git(b"")
        elif self.path == "/redirect":
            self._answer(b"", ("Location", "http://other.test/landed"), status=302)
        elif self.headers.get("Upgrade") == "websocket":
            self._upgraded()
        else:
            self._answer(f"{self.headers['Host']} {self.path}\n".encode())

    def do_POST(self) -> None:
        body = self._body()
        if self.path.startswith("/repo"):
            self._git(body)
        else:
            self._answer(f"{self.headers['Host']} got {len(body)}\n".encode())

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes, *fields: tuple[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(len(body))), *fields):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _upgraded(self) -> None:
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "websocket")
        key = self.headers.get("Sec-WebSocket-Key", "") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        digest = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_header("Sec-WebSocket-Accept", digest)
        self.end_headers()
        while data := self.connection.recv(4096):
            self.connection.sendall(data)
        self.close_connection = True

    def _git(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        env = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": f"{self.folder}/git",
            "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
            "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)), "REMOTE_ADDR": "192.0.2.1",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }  # fmt: skip
        made = subprocess.run(["git", "http-backend"], input=body, env=env, stdout=-1, check=False)
        head, _, content = made.stdout.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((int(v.split()[0]) for k, v in fields if k == "Status"), 200)
        self._answer(content, *((k, v) for k, v in fields if k != "Status"), status=status)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Internet:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._seen = open(f"{folder}/seen", "a", buffering=1)  # noqa: SIM115
        self._asked: dict[str, int] = {}

    def note(self, *what: object) -> None:
        self._seen.write(" ".join(map(str, what)) + "\n")

    # names

    def answer(self, message: bytes) -> bytes:
        at, labels = 12, []
        while message[at]:
            labels.append(message[at + 1 : at + 1 + message[at]].decode())
            at += 1 + message[at]
        kind = struct.unpack_from("!H", message, at + 1)[0]
        question = message[12 : at + 5]
        name = ".".join(labels).lower()
        self.note("dns", name, kind)
        address = self._address(name, kind)
        known = address is not None or name in ADDRESSES or name.endswith(".rebind.test")
        record = b""
        if address is not None:
            record = b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(address)) + address
        code = 2 if name.startswith("servfail.") else 3
        flags = 0x8180 | (0 if known else code)
        return message[:2] + struct.pack("!HHHHH", flags, 1, bool(record), 0, 0) + question + record

    def _address(self, name: str, kind: int) -> bytes | None:
        text = ADDRESSES.get(name)
        if name.endswith(".rebind.test") and kind == 1:
            # The first answer is harmless, every later one leads home.
            self._asked[name] = self._asked.get(name, 0) + 1
            text = "93.184.216.34" if self._asked[name] == 1 else "127.0.0.1"
        if text is None:
            return None
        family = socket.AF_INET6 if ":" in text else socket.AF_INET
        if kind != (28 if family == socket.AF_INET6 else 1):
            return None
        return socket.inet_pton(family, text)

    def serve_names(self) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((NAME_SERVER, 53))

        def loop() -> None:
            while True:
                message, sender = sock.recvfrom(4096)
                sock.sendto(self.answer(message), sender)

        threading.Thread(target=loop, daemon=True).start()

    # services

    def lenient(self, sock: socket.socket) -> None:
        """Reads requests as the most careless of servers do: see test_disguises."""
        sock.settimeout(3)
        data = b""
        answered: list[str] = []
        with suppress(TimeoutError):
            while more := sock.recv(65536):
                data = self._answer_leniently(sock, data + more, answered)

    def ssh_like(self, sock: socket.socket) -> None:
        """The opening of SSH; what follows the client's line is noted."""
        sock.sendall(b"SSH-2.0-server\r\n")
        stream = sock.makefile("rb")
        line = stream.readline()
        sock.sendall(b"read " + line)
        after = stream.read(4)
        self.note("ssh", after.hex())
        sock.sendall(b"then %d\n" % len(after))

    def _answer_leniently(self, sock: socket.socket, data: bytes, answered: list[str]) -> bytes:
        """Answers every request in `data`, whose bodies it takes for requests; what is left."""
        while True:
            text = data.lstrip(bytes(range(33)))
            head, end, rest = re.sub(rb"\r\n?", b"\n", text).partition(b"\n\n")
            line, _, fields = head.partition(b"\n")
            words = line.split()
            if not end or not words:
                return data
            simple = len(words) == 2 and words[1].startswith(b"/")
            if not simple and b"HTTP/" not in line.upper():
                if not answered:
                    sock.shutdown(socket.SHUT_RDWR)
                    return b""
                data = fields + end + rest  # the remains of a body
                continue
            named = re.findall(rb"(?im)^[ \t]*host[ \t]*:[ \t]*(\S+)", fields) or [b"?"]
            absolute = re.search(rb"//([^/ ]+)", line)
            host = (absolute[1] if absolute else named[-1]).decode("latin-1")
            self.note("lenient", host)
            answered.append(host)
            body = f"<answer of {host}>".encode()
            if b"/status/101" in line:  # the request chooses the status, and nothing is switched
                sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nX: y\r\n\r\n")
            else:
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            if re.search(rb"(?im)^connection[ \t]*:[ \t]*close", fields):
                raise ConnectionAbortedError("the client wants it closed")
            data = rest

    def sink(self, sock: socket.socket) -> None:
        """Notes how much came, whatever became of the client."""
        total = 0
        buffer = bytearray(1 << 20)
        try:
            while size := sock.recv_into(buffer):
                total += size
        finally:
            self.note("sink", total)
        sock.sendall(f"{total}\n".encode())

    def serve_web(self, address: str) -> None:
        handler = type("Handler", (Web,), {"folder": self.folder})
        for port in (80, 443, 8080, 8443):
            server = _server(address, port, handler)
            if port in (443, 8443):
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(f"{self.folder}/cert.pem", f"{self.folder}/key.pem")
                server.socket = context.wrap_socket(
                    server.socket, server_side=True, do_handshake_on_connect=False
                )
            self._noting(server, address, port)
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def _noting(self, server: http.server.HTTPServer, address: str, port: int) -> None:
        get_request = server.get_request

        def noted() -> Any:
            request = get_request()
            self.note("tcp", address, port)
            return request

        server.get_request = noted  # type: ignore[method-assign]

    def serve_stream(self, address: str, port: int, talk: Any) -> None:
        listener = socket.create_server((address, port))

        def serve(sock: socket.socket) -> None:
            with sock, suppress(OSError):
                talk(sock)

        def loop() -> None:
            while True:
                sock, _ = listener.accept()
                self.note("tcp", address, port)
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

        threading.Thread(target=loop, daemon=True).start()


def _server(address: str, port: int, handler: Any) -> http.server.ThreadingHTTPServer:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    own = type("Server", (http.server.ThreadingHTTPServer,), {"address_family": family})
    made: http.server.ThreadingHTTPServer = own((address, port), handler)
    made.daemon_threads = True
    return made


def echo(sock: socket.socket) -> None:
    """Everything back, after the client has said that it is done: needs a half-close."""
    data = b""
    while more := sock.recv(65536):
        data += more
    sock.sendall(data)


def banner(sock: socket.socket) -> None:
    """The server speaks first, as in SMTP."""
    sock.sendall(b"220 ready\r\n")
    line = sock.makefile("rb").readline()
    sock.sendall(b"250 " + line)


def source(sock: socket.socket) -> None:
    """As many bytes as the first line asks for."""
    left = int(sock.makefile("rb").readline())
    block = bytes(1 << 20)
    while left > 0:
        left -= sock.send(block[: min(left, len(block))])


def slow(sock: socket.socket) -> None:
    """One byte every tenth of a second, for ever."""
    while True:
        sock.sendall(b".")
        time.sleep(0.1)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def leave_home() -> None:
    """Put this thread into a network namespace of its own, with a wire to the one it leaves."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    ip("link", "add", "home", "type", "veth", "peer", "name", "out", "netns", str(os.getpid()))
    ip("addr", "add", f"{GATEWAY}/30", "dev", "home")
    ip("addr", "add", f"{GATEWAY_6}/64", "dev", "home", "nodad")
    for device in ("lo", "home"):
        ip("link", "set", device, "up")


def settle_home() -> None:
    """The machine of the daemon: a loopback, public addresses of its own, and the wire."""
    ip("addr", "add", "192.0.2.2/30", "dev", "out")
    ip("addr", "add", "fd00:77::2/64", "dev", "out", "nodad")
    for device in ("lo", "out"):
        ip("link", "set", device, "up")
    ip("route", "add", "default", "via", GATEWAY)
    ip("-6", "route", "add", "default", "via", GATEWAY_6)
    for address in OWN_ADDRESSES:
        ip("addr", "add", address, "dev", "lo")


def serve_the_world(internet: Internet) -> None:
    for address in sorted({*HTTP_ADDRESSES, LENIENT, SSH, NAME_SERVER}):
        ip("addr", "add", address, "dev", "lo")
    internet.serve_names()
    for address in HTTP_ADDRESSES:
        internet.serve_web(address)
    own = (SINK, internet.sink)
    services = ((ECHO, echo), (BANNER, banner), own, (SOURCE, source), (SLOW, slow))
    for address in ("93.184.216.34", "93.184.216.36"):
        for port, talk in services:
            internet.serve_stream(address, port, talk)
    for port in (80, 443, 8080):
        internet.serve_stream(LENIENT, port, internet.lenient)
        internet.serve_stream(SSH, port, internet.ssh_like)


def main() -> None:
    folder = sys.argv[1]
    internet = Internet(folder)
    sshd: list[subprocess.Popen[bytes] | None] = []

    def outside() -> None:
        leave_home()
        serve_the_world(internet)
        sshd.append(_sshd(folder))

    world = threading.Thread(target=outside)
    world.start()
    world.join()
    settle_home()
    for address in ("127.0.0.1", *OWN_ADDRESSES):
        internet.serve_web(address)
    print("ready", flush=True)
    sys.stdin.read()
    for process in filter(None, sshd):
        process.terminate()
        process.wait()


def _sshd(folder: str) -> subprocess.Popen[bytes] | None:
    config = Path(folder, "sshd_config")
    if not config.exists():
        return None
    log = open(Path(folder, "sshd.log"), "wb")  # noqa: SIM115
    return subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", str(config)], stderr=log)


if __name__ == "__main__":
    main()
