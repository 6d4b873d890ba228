"""SSH at the web's ports passes, but only from its banner and its first packet on."""

from __future__ import annotations

import socket
import struct
import subprocess

import pytest
from runner import Runner, denied, out
from small_internet import Net

from sandboxd.egress.sniffing.ssh_opening import SshMalformed, banner, first_packet

LISTS = (b"curve25519-sha256", b"ssh-ed25519", b"aes128-ctr", b"aes128-ctr", b"hmac-sha2-256",
         b"hmac-sha2-256", b"none", b"none", b"", b"")  # fmt: skip


def packet(kind: int = 20, cookie: bytes = bytes(16), lists: tuple[bytes, ...] = LISTS,
           padding: bytes = bytes(8)) -> bytes:  # fmt: skip
    names = b"".join(struct.pack("!I", len(one)) + one for one in lists)
    payload = bytes((kind,)) + cookie + names + bytes(5)
    body = bytes((len(padding),)) + payload + padding
    return struct.pack("!I", len(body)) + body


def test_a_first_packet_is_known_at_its_last_byte() -> None:
    data = packet()
    assert [first_packet(data[:end]) for end in range(len(data))] == [None] * len(data)
    assert first_packet(data + b"more") == len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n", b"\0\0\0\1x", packet(kind=2), packet(lists=(b"a b", *LISTS[1:])),
        packet(lists=(b"x\ny", *LISTS[1:])), packet(padding=b"\r\nHost: x.test"),
        packet(cookie=b"\nhost : a.b\r\n\r\n\0"), packet(padding=b"abc"), packet(lists=LISTS[1:]),
    ],
)  # fmt: skip
def test_any_other_first_packet_is_refused(data: bytes) -> None:
    with pytest.raises(SshMalformed):
        first_packet(data)


@pytest.mark.parametrize(
    "line",
    [
        b"SSH-2.0-x / HTTP/1.1\r\n", b"SSH-2.0-x HTTP/1.1\r\n", b"SSH-2.0-x /\r\n",
        b"SSH-1.0-x\r\n", b"SSH-2.0-\r\n", b"SSH-2.0-\x80\r\n", b"SSH-2.0-a\tb\r\n", b"SSH-X\r\n",
        b"SSH-2.0-" + b"x" * 300 + b"\r\n", b"SSH-2.0-" + b"x" * 300,
    ],
)  # fmt: skip
def test_any_other_banner_is_refused(line: bytes) -> None:
    with pytest.raises(SshMalformed):
        banner(line)


@pytest.mark.requires("ssh")
def test_the_opening_of_a_real_client_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        client = subprocess.Popen(
            ["ssh", "-F", "none", "-p", port, "-o", "BatchMode=yes", "127.0.0.1"],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            server.settimeout(20)
            talk, _ = server.accept()
            with talk:
                talk.settimeout(20)
                talk.sendall(b"SSH-2.0-test\r\n")
                data = b""
                while (line := banner(data)) is None:
                    data += talk.recv(1)
                data = b""
                while first_packet(data) is None:
                    more = talk.recv(4096)
                    assert more
                    data += more
            assert line.startswith(b"SSH-2.0-")
        finally:
            client.kill()
            client.wait()


TALK = """
import socket
s = socket.create_connection((HOST, 443)); s.settimeout(8)
f = s.makefile('rb')
s.sendall(b'SSH-2.0-client with a comment\\r\\n'); print(f.readline(), f.readline())
s.sendall(REST)
try: print(f.readline())
except OSError as e: print(type(e).__name__)
"""


@pytest.mark.isolation
@pytest.mark.requires("bubblewrap", "ip", "openssl")
@pytest.mark.parametrize("whole", [True, False])
def test_after_the_banner_comes_the_key_exchange_or_nothing(
    run: Runner, net: Net, whole: bool
) -> None:
    rest = packet() if whole else b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n"
    names = f"REST = {rest!r}\n"
    control = net.run("python3", "-c", f"HOST = '93.184.216.38'\n{names}{TALK}").stdout
    assert control.endswith("b'then 4\\n'\n")
    noted = [line for line in net.seen() if line.startswith("ssh")]
    result = run.python(f"HOST = 'ssh.test'\n{names}{TALK}", "ssh.test")
    banners, then = out(result).splitlines()
    assert banners == "b'SSH-2.0-server\\r\\n' b'read SSH-2.0-client with a comment\\r\\n'"
    if whole:
        assert then == "b'then 4\\n'", result
        assert denied(result) == []
    else:
        assert then in ("ConnectionResetError", "b''"), result
        assert "first packet of SSH" in denied(result)[0][1]
        now = [line for line in net.seen() if line.startswith("ssh") and line != "ssh "]
        assert now == noted
