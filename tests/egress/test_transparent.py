"""Named hosts simply exist: programs need no proxy settings, and TLS is theirs from end to end."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner import Runner, denied, out
from small_internet import Net
from support.daemon import Daemon
from support.users import open_to_others, unprivileged_user

pytestmark = [pytest.mark.isolation, pytest.mark.requires("bubblewrap", "ip", "openssl")]
NO_PROXY_VARIABLES = "! env | grep -i _proxy= &&"


@pytest.mark.docker_too
@pytest.mark.parametrize("base", ["minimal", "host"])
def test_curl_reaches_a_named_host_over_http_and_https(run: Runner, base: str) -> None:
    script = f"{NO_PROXY_VARIABLES} curl -sS http://example.test/a https://example.test/b"
    result = run(script, "example.test", base=base)
    assert out(result) == "example.test /a\nexample.test /b\n", result
    assert result["denials"] == []
    assert result["enforcement"]["network"] == "enforced"


@pytest.mark.docker_too
def test_sandboxctl_clones_over_https_with_no_proxy_variable(
    gate_daemon: Daemon, net: Net, workspace: Path
) -> None:
    ctl = [sys.executable, "-m", "sandboxd_client.cli", "run", "--net", "example.test"]
    clone = ["git", "clone", "https://example.test/repo"]
    env = {**os.environ, "SANDBOXD_SOCKET": gate_daemon.socket, "HOME": "/nonexistent"}
    # The test's own CA is the one thing that a real host would not need.
    trust = ["--env", f"GIT_SSL_CAINFO={workspace}/ca.pem"]
    (workspace / "ca.pem").write_bytes(Path(net.ca).read_bytes())
    done = subprocess.run(
        [*net.enter, *ctl, *trust, "--", *clone],
        cwd=workspace, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (workspace / "repo" / "file").read_text() == "from the repository\n"
    other = subprocess.run(
        [*net.enter, *ctl, *trust, "--", "git", "clone", "https://other.test/repo", "second"],
        cwd=workspace, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert other.returncode != 0
    assert "other.test" in other.stderr
    assert "--net other.test" in other.stderr  # what would allow it


@pytest.mark.requires("/usr/sbin/sshd")
def test_git_clones_over_ssh(run: Runner, net: Net) -> None:
    options = f"-i /tmp/key -o UserKnownHostsFile={net.folder}/known_hosts -o BatchMode=yes"
    url = f"ssh://{getpass.getuser()}@example.test{net.folder}/git/repo"
    script = (
        f"cp {net.folder}/user /tmp/key && chmod 600 /tmp/key && cd /tmp && "
        f"GIT_SSH_COMMAND='ssh {options}' git clone -q {url} && cat repo/file"
    )
    result = run(script, "example.test:22")
    assert out(result) == "from the repository\n", (result, (net.folder / "sshd.log").read_text())


def test_python_and_node_reach_it(run: Runner, net: Net) -> None:
    code = (
        f"import ssl, urllib.request as u; c = ssl.create_default_context(cafile={net.ca!r}); "
        "print(u.urlopen('https://example.test/py', context=c).read().decode(), end='')"
    )
    assert out(run.python(code, "example.test")) == "example.test /py\n"
    script = (
        "require('https').get('https://example.test/js', r => r.pipe(process.stdout))"
        ".on('error', e => console.log(e))"
    )
    assert out(run("", "example.test", argv=["node", "-e", script])) == "example.test /js\n"


def test_a_resolver_that_ignores_etc_hosts_finds_named_hosts_and_no_others(run: Runner) -> None:
    """node's resolve4 is c-ares: it reads resolv.conf only."""
    script = (
        "const d = require('dns').promises; (async () => { console.log(await "
        "d.resolve4('EXAMPLE.test'), await d.resolve6('example.test').catch(e => e.code)); "
        "console.log(await d.resolve4('other.test').catch(e => e.code)); })()"
    )
    result = run("", "example.test", argv=["node", "-e", script])
    assert out(result) == "[ '127.77.0.1' ] ENODATA\nENOTFOUND\n"
    assert [target for target, _ in denied(result)] == ["other.test"]


@pytest.mark.docker_too
def test_names_are_found_over_tcp_and_at_a_name_server_that_a_program_brings(run: Runner) -> None:
    code = """
import socket, struct
q = struct.pack('!HHHHHH', 7, 0x100, 1, 0, 0, 0) + b'\\x07example\\x04test\\0' + b'\\0\\1\\0\\1'
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(5)
u.connect(('8.8.8.8', 53)); u.send(q); print(socket.inet_ntoa(u.recv(512)[-4:]))
t = socket.create_connection(('127.0.0.1', 53)); t.sendall(struct.pack('!H', len(q)) + q)
print(socket.inet_ntoa(t.recv(512)[-4:]))
"""
    assert out(run.python(code, "example.test")) == "127.77.0.1\n127.77.0.1\n"


@pytest.mark.docker_too
def test_a_port_of_its_own_and_no_other(run: Runner) -> None:
    script = "curl -sS http://example.test:8080/x; curl -sS -m 5 http://example.test/; echo $?"
    result = run(script, "example.test:8080")
    assert out(result).startswith("example.test:8080 /x\n")
    assert denied(result) == [
        ("example.test", "example.test:80 could not be reached: port 80 of it is not allowed")
    ]
    hosts = result["denials"][0]["remedy"]["network"]["hosts"]
    assert hosts == ["example.test:8080", "example.test"]
    # Nothing listens at a port that no rule names and that needs no privileges: the kernel's reset
    # tells of the attempt.
    other = run("curl -sS http://example.test:8443/", "example.test:8080")
    (denial,) = other["denials"]
    assert (denial["evidence"], denial["confidence"]) == ("gate", "high")
    hosts = ["example.test:8080", "example.test:8443"]
    assert denial["remedy"] == {"network": {"kind": "allow_hosts", "hosts": hosts}}


@pytest.mark.parametrize(
    ("entry", "address", "port", "proposed"),
    [
        ("example.test", "10.20.30.40", 5432, "10.20.30.40:5432"),
        ("10.20.30.40", "10.20.30.40", 6379, "10.20.30.40:6379"),
        ("example.test", "2606:2800:220:1::34", 443, "[2606:2800:220:1::34]"),
        ("2606:2800:220:1::34", "2606:2800:220:1::34", 22, "[2606:2800:220:1::34]:22"),
    ],
)
def test_a_refused_connection_to_an_address_is_reported_at_every_port(
    run: Runner, entry: str, address: str, port: int, proposed: str
) -> None:
    result = run.python(f"import socket; socket.create_connection(('{address}', {port}), 3)", entry)
    (denial,) = result["denials"]
    assert (denial["target"], denial["confidence"]) == (address, "high")
    assert denial["remedy"]["network"]["hosts"] == [entry, proposed]


def test_a_server_of_the_sandbox_at_an_address_is_reached_and_not_reported(run: Runner) -> None:
    code = """if True:
        import socket
        server = socket.create_server(("0.0.0.0", 5432))
        socket.create_connection(("10.20.30.40", 5432), 3)
        print("reached")"""
    result = run.python(code, "example.test")
    assert (out(result), result["denials"]) == ("reached\n", [])


def test_internationalised_names_are_one_host_in_every_spelling(run: Runner) -> None:
    result = run("curl -sS http://xn--bcher-kva.test./", "BÜCHER.test.")
    assert out(result) == "xn--bcher-kva.test. /\n", result


@pytest.mark.docker_too
def test_half_close_and_large_transfers_arrive_whole(run: Runner) -> None:
    code = """
import socket, hashlib, os, threading
data = b'\\x16\\x00' + os.urandom((1 << 20) - 2) + bytes(4 << 20)  # begins almost like TLS
s = socket.create_connection(('example.test', 7000))
threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR))).start()
back = b''
while more := s.recv(1 << 20): back += more
print(back == data)
"""
    result = run.python(code, "example.test:7000")
    assert out(result) == "True\n", result
    assert result["network_usage"] == [
        {"host": "example.test", "port": 7000, "connections": 1, "refused": 0,
         "sent_bytes": 5 << 20, "received_bytes": 5 << 20}
    ]  # fmt: skip


@pytest.mark.docker_too
def test_what_a_command_sent_before_it_ended_still_arrives(run: Runner, net: Net) -> None:
    code = (
        "import socket; s = socket.create_connection(('example.test', 7002)); "
        "s.sendall(bytes(3 << 20))"
    )
    assert run.python(code, "example.test:7002")["exit_code"] == 0
    deadline = time.monotonic() + 10
    while f"sink {3 << 20}" not in net.seen() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert f"sink {3 << 20}" in net.seen(), net.seen()[-5:]


@pytest.mark.docker_too
def test_a_server_may_speak_first(run: Runner) -> None:
    code = (
        "import socket; f = socket.create_connection(('example.test', 7001)).makefile('rw'); "
        "print(f.readline(), end=''); f.write('EHLO me\\n'); f.flush(); print(f.readline(), end='')"
    )
    assert out(run.python(code, "example.test:7001")) == "220 ready\n250 EHLO me\n"


@pytest.mark.docker_too
def test_an_address_is_reachable_when_it_is_listed(run: Runner) -> None:
    result = run("curl -sS http://93.184.216.34/", "93.184.216.34")
    assert out(result) == "93.184.216.34 /\n", result


@pytest.mark.docker_too
@pytest.mark.parametrize("entry", ["10.20.30.40:8080", "93.184.216.34:8080"])
def test_an_address_is_reachable_at_a_port_that_needs_no_privileges(
    run: Runner, entry: str
) -> None:
    """There the listener is bound to the address itself, which is another host's."""
    address = entry.partition(":")[0]
    result = run(f"curl -sS http://{entry}/; curl -sS -m 5 http://{address}:8443/", entry)
    assert out(result) == f"{entry} /\n", result
    assert run("curl -sS http://10.20.30.40:8080/", "a.test")["exit_code"] != 0


@pytest.mark.docker_too
def test_a_host_of_ipv6_alone_is_reached_by_name_and_by_its_address(run: Runner) -> None:
    script = "curl -sS http://six.test/ 'http://[2606:2800:220:1::34]/'"
    result = run(script, "six.test", "2606:2800:220:1::34")
    assert out(result) == "six.test /\n[2606:2800:220:1::34] /\n", result


@pytest.mark.docker_too
def test_the_whole_etc_of_the_host_can_be_allowed_too(run: Runner) -> None:
    result = run("curl -sS http://example.test/", "example.test", fs_read_allow=["/etc"])
    assert out(result) == "example.test /\n", result


@pytest.mark.docker_too
@pytest.mark.requires("root")
def test_a_daemon_of_root_serves_a_command_of_another_user(
    run: Runner, net: Net, tmp_path: Path
) -> None:
    user = unprivileged_user()
    folder = tmp_path / "theirs"
    folder.mkdir()
    for reached in (folder, net.folder):
        open_to_others(reached)
    os.chown(folder, user.pw_uid, user.pw_gid)
    script = "id -u; curl -sS https://example.test/"
    result = run(script, "example.test", fs_write_allow=[str(folder)])
    assert out(result) == f"{user.pw_uid}\nexample.test /\n", result


@pytest.mark.parametrize("port", [80, 8080])
def test_an_upgraded_connection_goes_on_as_it_is(run: Runner, port: int) -> None:
    code = """
import socket
s = socket.create_connection(('example.test', PORT)); s.settimeout(20)
s.sendall(b'GET / HTTP/1.1\\r\\nHost: example.test:%d\\r\\n' % PORT)
s.sendall(b'Connection: Upgrade\\r\\nUpgrade: websocket\\r\\n'
          b'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n')
got = b''
while b'\\r\\n\\r\\n' not in got: got += s.recv(4096)
s.sendall(b'\\x81\\x05hello'); print(got[:12], s.recv(100))
"""
    result = run.python(f"PORT = {port}\n{code}", f"example.test:{port}")
    assert out(result) == "b'HTTP/1.1 101' b'\\x81\\x05hello'\n"


def test_chunked_uploads_and_kept_connections_pass(run: Runner) -> None:
    script = (
        "printf 12345 | curl -sS -H 'Transfer-Encoding: chunked' -d @- http://example.test/one "
        "--next -d abc http://example.test/two --next http://example.test/three"
    )
    result = run(script, "example.test")
    assert out(result) == "example.test got 5\nexample.test got 3\nexample.test /three\n"
    # Nothing follows a body on the same connection; without bodies it is kept.
    assert result["network_usage"][0]["connections"] == 3
    result = run("curl -sS http://example.test/one http://example.test/two", "example.test")
    assert out(result) == "example.test /one\nexample.test /two\n"
    assert result["network_usage"][0]["connections"] == 1


@pytest.mark.docker_too
def test_commands_of_a_persistent_sandbox_are_reported_each_on_their_own(
    run: Runner, gate_daemon: Daemon
) -> None:
    call = run.connection.call
    sandbox = call("sandbox/create", {"manifest": run.manifest("example.test")})["sandbox"]
    good = {"sandbox": sandbox, "argv": ["curl", "-sS", "http://example.test/"]}
    bad = {"sandbox": sandbox, "argv": ["curl", "-sS", "http://other.test/"]}
    first, second, third = (call("execute", params) for params in (good, bad, good))
    call("sandbox/destroy", {"sandbox": sandbox})
    assert [len(r["network_usage"]) for r in (first, second, third)] == [1, 0, 1]
    assert [[t for t, _ in denied(r)] for r in (first, second, third)] == [[], ["other.test"], []]


@pytest.mark.docker_too
def test_refusals_are_told_while_the_command_runs(run: Runner) -> None:
    params = {
        "argv": ["bash", "-c", "curl -sS http://other.test/; read line"], "stdin_open": True,
        "stream": True, "execution_id": "live", "manifest": run.manifest("example.test"),
    }  # fmt: skip
    number = run.connection.start("execute", params)
    denial = run.connection.notification("execution/denial", execution_id="live")["denial"]
    assert denial["target"] == "other.test"  # by the gate, or before that by curl's words
    run.connection.call("execution/close_stdin", {"execution_id": "live"})
    result = run.connection.result(number)
    told = [n for n in run.connection.notifications if n["method"] == "execution/denial"]
    assert [(d["target"], d["evidence"]) for d in result["denials"]] == [("other.test", "gate")]
    assert 1 <= len(told) <= 2
