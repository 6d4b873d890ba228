"""A slow or hostile peer on either side is cut off, and costs bounded memory only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from runner import Runner, denied, out
from small_internet import Net
from support.daemon import Daemon

pytestmark = pytest.mark.requires("bubblewrap", "ip", "openssl")
Start = Callable[..., Daemon]

READ_ALL = """
import socket, sys
s = socket.create_connection(('example.test', PORT)); s.settimeout(30)
try:
    while s.recv(65536): pass
    print('end')
except ConnectionResetError: print('reset')
"""


def test_a_header_that_never_ends_is_cut_off(start_in_net: Start, net: Net) -> None:
    daemon = start_in_net("connect_secs = 1")
    code = """
import socket, time
s = socket.create_connection(('example.test', 80)); s.settimeout(30)
try:
    s.sendall(b'GET / HTTP/1.1\\r\\n')
    for i in range(200): s.sendall(b'x: y\\r\\n'); time.sleep(.05)
    print(s.recv(12))
except OSError: print('cut')
"""
    with daemon.connect() as connection:
        result = Runner(connection, net).python(code, "example.test")
        assert "took longer than 1 s" in denied(result)[0][1], result
        assert out(result) in ("cut\n", "b'HTTP/1.1 408'\n")
        assert connection.call("status")["executions"] == 0


def test_silence_at_the_webs_ports_is_cut_off(start_in_net: Start, net: Net) -> None:
    daemon = start_in_net("connect_secs = 1")
    code = (
        "import socket; s = socket.create_connection(('example.test', 443)); s.settimeout(30); "
        "print(s.recv(1))"
    )
    with daemon.connect() as connection:
        assert out(Runner(connection, net).python(code, "example.test")) == "b''\n"


def test_a_huge_header_is_refused_without_being_kept(run: Runner, net: Net) -> None:
    before = net.connections()
    code = """
import socket
s = socket.create_connection(('example.test', 80)); s.settimeout(30)
try:
    s.sendall(b'GET / HTTP/1.1\\r\\n')
    for i in range(4096): s.sendall(b'x: ' + b'y' * 65536)
except OSError: pass
try: print(s.recv(12))
except OSError: print('reset')
"""
    result = run.python(code, "example.test")
    assert out(result) in ("b'HTTP/1.1 431'\n", "reset\n")
    assert "64 KiB" in denied(result)[0][1]
    assert net.connections() == before


@pytest.mark.parametrize(("key", "port"), [("idle_secs", 7000), ("total_secs", 7004)])
def test_a_connection_ends_at_its_time_limit(
    start_in_net: Start, net: Net, key: str, port: int
) -> None:
    """7000 says nothing before the client is done; 7004 never stops."""
    daemon = start_in_net(f"{key} = 1")
    with daemon.connect() as connection:
        code = READ_ALL.replace("PORT", str(port))
        result = Runner(connection, net).python(code, f"example.test:{port}")
    assert out(result) == "reset\n", result
    assert key in denied(result)[0][1]
    assert result["denials"][0]["remedy"] is None


@pytest.mark.parametrize("what", ["sent", "received"])
def test_byte_limits_end_the_connection(start_in_net: Start, net: Net, what: str) -> None:
    daemon = start_in_net(f"max_{what}_bytes = 1000000")
    code = """
import socket
port = 7002 if WHAT == 'sent' else 7003
s = socket.create_connection(('example.test', port)); s.settimeout(30)
got = 0
try:
    if WHAT == 'sent':
        for i in range(200): s.sendall(bytes(100000))
        s.shutdown(1)
    else: s.sendall(b'20000000\\n')
    while more := s.recv(65536): got += len(more)
    print('whole' if got == 20000000 or WHAT == 'sent' else 'part')
except OSError: print('reset')
"""
    with daemon.connect() as connection:
        hosts = ("example.test:7002", "example.test:7003")
        result = Runner(connection, net).python(f"WHAT = {what!r}\n{code}", *hosts)
    assert out(result) == "reset\n", result
    assert f"max_{what}_bytes" in denied(result)[0][1]


def test_connections_beyond_the_limit_wait_for_their_turn(start_in_net: Start, net: Net) -> None:
    daemon = start_in_net("max_connections = 4")
    code = """
import socket, threading
def one(n, got):
    s = socket.create_connection(('example.test', 7000)); s.settimeout(60)
    s.sendall(b'%d' % n); s.shutdown(1); got.append(s.recv(10))
got = []
threads = [threading.Thread(target=one, args=(n, got)) for n in range(40)]
for t in threads: t.start()
for t in threads: t.join()
print(sorted(map(int, got)) == list(range(40)))
"""
    with daemon.connect() as connection:
        result = Runner(connection, net).python(code, "example.test:7000")
    assert out(result) == "True\n", result


def test_a_sender_is_held_back_by_a_reader_that_does_not_read(
    run: Runner, gate_daemon: Daemon
) -> None:
    """A server sends without end, the client reads nothing: the daemon's memory stays as it is."""
    code = """
import socket, time
socks = [socket.create_connection(('example.test', 7003)) for _ in range(20)]
for s in socks: s.sendall(b'1000000000\\n')
time.sleep(3)
print('held')
"""

    def resident() -> int:
        status = Path(f"/proc/{gate_daemon.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) // 1024

    before = resident()
    result = run.python(code, "example.test:7003")
    assert out(result) == "held\n"
    received = result["network_usage"][0]["received_bytes"]
    assert received < 20 * (64 << 20)
    assert resident() - before < 100


def test_many_unknown_names_are_counted_not_kept(run: Runner) -> None:
    code = """
import socket
for n in range(300):
    try: socket.gethostbyname(f'n{n}.other.test')
    except OSError: pass
print('done')
"""
    result = run.python(code, "example.test")
    assert out(result) == "done\n"
    assert 0 < len(result["denials"]) <= 64


def test_broken_dns_messages_change_nothing(run: Runner) -> None:
    code = """
import os, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', 53))
for n in range(500): s.send(os.urandom(n % 80 + 1))
s.send(struct.pack('!HHHHHH', 1, 256, 1, 0, 0, 0) + b'\\xc0\\x0c' + b'\\0\\1\\0\\1')
t = socket.create_connection(('127.0.0.1', 53)); t.sendall(b'\\xff\\xff' + bytes(1000)); t.close()
print(socket.gethostbyname('example.test'))
"""
    assert out(run.python(code, "example.test")) == "127.77.0.1\n"
