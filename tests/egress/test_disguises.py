"""Requests for another host, written so that a strict reader takes them for something else.

Each is sent to a server that reads as carelessly as any (internet.py, `lenient`): without the
sandbox it answers for the other host, through the gate it never does.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from runner import Runner, denied, out
from small_internet import Net

pytestmark = [pytest.mark.isolation, pytest.mark.requires("bubblewrap", "ip", "openssl")]

OTHER = b"Host: other.test\r\n\r\n"
SECOND = b"GET /2 HTTP/1.1\r\n" + OTHER
OWN = b"Host: %s\r\n"
# What is sent, in pieces with a pause between; %s is the host of the connection.
DISGUISES: dict[str, list[bytes]] = {
    "ssh in four bytes": [b"SSH-X / HTTP/1.1\r\n" + OTHER],
    "ssh with a comment": [b"SSH-2.0-x / HTTP/1.1\r\n" + OTHER],
    "ssh then http": [b"SSH-X / HTTP/1.1\r\n" + OWN + b"\r\n" + SECOND],
    "ssh in pieces": [b"SSH-", b"2.0-x /", b" HTTP/1.1\r\n" + OTHER],
    "ssh, lower case": [b"ssh-2.0-x / HTTP/1.1\r\n" + OTHER],
    "a high byte, cut": [b"GET /\x80", b" HTTP/1.1\r\n" + OTHER],
    "a control byte, cut": [b"GET /\x01", b" HTTP/1.1\r\n" + OTHER],
    "the version cut": [b"\x80X /", b" HT", b"TP/1.1\r\n" + OTHER],
    "a method of 70 letters": [b"M" * 70 + b" / HTTP/1.1\r\n" + OTHER],
    "a method of 9000 letters": [b"M" * 9000 + b" / HTTP/1.1\r\n" + OTHER],
    "a binary method": [b"\0\0\0\x08\x04\xd2 / HTTP/1.1\r\n" + OTHER],
    "http/2 without TLS": [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SECOND],
    "http/2, cut": [b"PRI * HT", b"TP/2.0\r\n\r\nSM\r\n\r\n" + SECOND],
    "http/0.9": [b"GET /\r\n" + OTHER],
    "http/0.9, cut": [b"GET", b" /\x80\r\n" + OTHER],
    "http/0.9, any method": [b"mm\x0b/\n" + OTHER],
    "http/3.7": [b"GET / HTTP/3.7\r\n" + OTHER],
    "empty lines first": [b"\r\n\n\r\n" + SECOND],
    "blanks first": [b" \t\0 " + SECOND],
    "line feeds only": [b"GET / HTTP/1.1\nHost: other.test\n\n"],
    "carriage returns only": [b"GET / HTTP/1.1\rHost: other.test\r\r"],
    "tabs": [b"GET\t/\tHTTP/1.1\r\n" + OTHER],
    "lower case": [b"get / http/1.1\r\n" + OTHER],
    "absolute": [b"GET http://other.test/ HTTP/1.1\r\n" + OWN + b"\r\n"],
    "a path like a host": [b"GET //other.test/ HTTP/1.1\r\n" + OWN + b"\r\n"],
    "a path like a host, and a body": [
        b"POST //other.test/ HTTP/1.1\r\n" + OWN + b"Content-Length: 1\r\n\r\nx"
    ],
    "two hosts": [b"GET / HTTP/1.1\r\n" + OWN + OTHER],
    "a blank before the colon": [b"GET / HTTP/1.1\r\n" + OWN + b"Host : other.test\r\n\r\n"],
    "a folded line": [b"GET / HTTP/1.1\r\n" + OWN + b" Host: other.test\r\n\r\n"],
    "a CR in a field": [b"GET / HTTP/1.1\r\n" + OWN + b"X: y\rHost: other.test\r\n\r\n"],
    "a port": [b"GET / HTTP/1.1\r\nHost: other.test:80\r\n\r\n"],
    "a user": [b"GET / HTTP/1.1\r\nHost: lenient.test@other.test\r\n\r\n"],
    "connect": [b"CONNECT / HTTP/1.1\r\n" + OWN + b"\r\n" + SECOND],
    "a body that the server does not read": [
        b"GET / HTTP/1.1\r\n" + OWN + b"Content-Length: %d\r\n\r\n" % len(SECOND) + SECOND
    ],
    "chunks that the server does not read": [
        b"POST / HTTP/1.1\r\n" + OWN + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"%x\r\n" % (len(SECOND) + 2) + b"\r\n" + SECOND + b"\r\n0\r\n\r\n"
    ],
    "two lengths": [
        b"POST / HTTP/1.1\r\n" + OWN + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n"
        % len(SECOND) + SECOND
    ],
    "length and chunks": [
        b"POST / HTTP/1.1\r\n" + OWN + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n"
        % len(SECOND) + SECOND
    ],
    "chunked after a vertical tab": [
        b"POST / HTTP/1.1\r\n" + OWN + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + SECOND
    ],
    "chunked dropped by Connection": [
        b"POST / HTTP/1.1\r\n" + OWN + b"Connection: transfer-encoding\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(SECOND) + SECOND + b"\r\n0\r\n\r\n"
    ],
    "underscores": [
        b"POST / HTTP/1.1\r\n" + OWN + b"Content_Length: %d\r\n\r\n" % len(SECOND) + SECOND
    ],
    "a line of chunks that ends in LF": [
        b"POST / HTTP/1.1\r\n" + OWN + b"Transfer-Encoding: chunked\r\n\r\n0\n\n" + SECOND
    ],
    "the proxy's preface": [b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 HTTP/\r\n\r\n" + SECOND],
    "an upgrade to http/2": [
        b"GET / HTTP/1.1\r\n" + OWN + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + SECOND
    ],
    "an upgrade that the server only pretends to accept": [
        b"GET /status/101 HTTP/1.1\r\n" + OWN + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", SECOND
    ],
    "an upgrade that is not accepted": [
        b"GET / HTTP/1.1\r\n" + OWN + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + SECOND
    ],
}  # fmt: skip

SEND = """
import base64, json, os, re, socket, sys, time
def exactly(s, n):
    data = b''
    while len(data) < n: data += s.recv(n - len(data))
    return data
def reach(host, port):
    if WAY == 'direct': return socket.create_connection((host, port))
    user, where = re.match('http://(.*)@(.*)', os.environ['http_proxy']).groups()
    s = socket.create_connection((where.split(':')[0], int(where.split(':')[1])))
    if WAY == 'connect':
        login = base64.b64encode(user.encode()).decode()
        s.sendall(f'CONNECT {host}:{port} HTTP/1.1\\r\\n'
                  f'Proxy-Authorization: Basic {login}\\r\\n\\r\\n'.encode())
        got = b''
        while b'\\r\\n\\r\\n' not in got: got += s.recv(1)
        assert b' 200 ' in got, got
    else:
        name, secret = (part.encode() for part in user.split(':'))
        s.sendall(b'\\5\\1\\2'); exactly(s, 2)
        s.sendall(bytes((1, len(name))) + name + bytes((len(secret),)) + secret); exactly(s, 2)
        s.sendall(b'\\5\\1\\0\\3' + bytes((len(host),)) + host.encode() + port.to_bytes(2, 'big'))
        assert exactly(s, 10)[1] == 0
    return s
def send(port, pieces):
    s = reach(HOST, port); s.settimeout(8)
    got = b''
    try:
        for i, piece in enumerate(pieces):
            if i: time.sleep(.15)
            s.sendall(bytes.fromhex(piece).replace(b'%s', HOST.encode()))
        s.shutdown(1)
        while more := s.recv(4096): got += more
    except OSError: pass
    return b'<answer of other.test' in got or b'<answer of lenient.test@other' in got
print(json.dumps({name: send(PORT, pieces) for name, pieces in PAYLOADS.items()}))
"""


def program(way: str, host: str, port: int, names: list[str]) -> str:
    pieces = {name: [piece.hex() for piece in DISGUISES[name]] for name in names}
    given = {"WAY": way, "HOST": host, "PORT": port, "PAYLOADS": pieces}
    return "\n".join([*(f"{name} = {value!r}" for name, value in given.items()), SEND])


@pytest.fixture(scope="module")
def control(net: Net) -> dict[str, bool]:
    """Without the gate each of them is answered for the other host."""
    answer = net.run("python3", "-c", program("direct", "93.184.216.37", 8080, list(DISGUISES)))
    found: dict[str, bool] = json.loads(answer.stdout or "{}")
    return found


def other_answers(net: Net) -> int:
    return sum(line.startswith("lenient") and "other.test" in line for line in net.seen())


def test_the_control_reaches_the_other_host(control: dict[str, bool]) -> None:
    assert [name for name in DISGUISES if not control.get(name)] == []


# At 443 a plain request is as much of a request as at 80.
@pytest.mark.parametrize(
    ("way", "host", "port", "rules"),
    [
        ("direct", "lenient.test", 80, ("lenient.test",)),
        ("direct", "lenient.test", 443, ("lenient.test",)),
        ("direct", "lenient.test", 8080, ("lenient.test:8080",)),
        ("connect", "www.lenient.test", 80, ("*.lenient.test",)),
        ("connect", "lenient.test", 8080, ("lenient.test:8000-8100",)),
        ("socks", "www.lenient.test", 443, ("*.lenient.test",)),
        ("socks", "lenient.test", 8080, ("lenient.test:8000-8100",)),
    ],
)
def test_no_disguise_reaches_another_host(
    run: Runner, net: Net, control: dict[str, bool],
    way: str, host: str, port: int, rules: tuple[str, ...],
) -> None:  # fmt: skip
    before = other_answers(net)
    result: dict[str, Any] = run.python(program(way, host, port, list(DISGUISES)), *rules)
    answered = json.loads(out(result) or "{}")
    assert [name for name, passed in answered.items() if passed] == [], result["denials"]
    assert list(answered) == list(DISGUISES), result
    assert other_answers(net) == before
    assert denied(result)


def test_a_request_for_the_own_host_is_answered_in_every_way(run: Runner) -> None:
    """The refusals above are those of the bytes: an honest request passes the same ways."""
    DISGUISES["honest"] = [b"GET / HTTP/1.1\r\n" + OWN + b"\r\n"]
    try:
        for way, host, port, rule in (
            ("direct", "lenient.test", 80, "lenient.test"),
            ("direct", "lenient.test", 8080, "lenient.test:8080"),
            ("connect", "www.lenient.test", 80, "*.lenient.test"),
            ("socks", "lenient.test", 8080, "lenient.test:8000-8100"),
        ):
            text = program(way, host, port, ["honest"]).replace("of other.test", f"of {host}")
            assert json.loads(out(run.python(text, rule))) == {"honest": True}, (way, port)
    finally:
        del DISGUISES["honest"]
