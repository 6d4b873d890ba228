"""`sandboxctl sandbox …` and `sandboxctl shell` with the real daemon."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from support.daemon import ROOT
from support.requirements import require

from sandboxd_client.cli.wrong_input import reword

pytestmark = [pytest.mark.requires("bubblewrap")]


def listed(ctl) -> list[str]:
    found = json.loads(ctl("sandbox list", "--json").stdout)["sandboxes"]
    return [item["sandbox"] for item in found]


@pytest.fixture
def sandbox(inside):
    done = inside("sandbox create")
    assert (done.returncode, done.stderr) == (0, b"")
    made = done.stdout.decode().strip()
    assert made.startswith("sb-")
    yield made
    if made in listed(inside):
        assert inside("sandbox destroy", made).returncode == 0


def running(marker: str) -> bool:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().split(b"\0")[:2] == [b"sleep", marker.encode()]:
                    return True
        except OSError:
            continue
    return False


def becomes(state: bool, marker: str) -> bool:
    deadline = time.monotonic() + 10
    while running(marker) is not state and time.monotonic() < deadline:
        time.sleep(0.02)
    return running(marker) is state


# sandbox create | list | run | destroy


def test_commands_share_a_sandbox_until_it_is_destroyed(inside, sandbox, workspace):
    assert sandbox in listed(inside)
    assert sandbox in inside("sandbox list").stdout.decode()
    done = inside("run", "--sandbox", sandbox, "--", "sh", "-c", "echo kept > /tmp/f; pwd; exit 5")
    assert (done.stdout.decode(), done.returncode) == (f"{workspace}\n", 5)
    assert inside("sandbox run", sandbox, "--", "cat", "/tmp/f").stdout == b"kept\n"
    assert inside("sandbox run", sandbox, "cat", input=b"in").stdout == b"in"
    assert inside("sandbox run", "--cwd", "/tmp", sandbox, "cat", "f").stdout == b"kept\n"
    assert inside("sandbox destroy", sandbox).returncode == 0
    assert sandbox not in listed(inside)
    again = inside("sandbox destroy", sandbox)
    assert again.returncode == 125
    assert b"there is no sandbox" in again.stderr
    assert inside("sandbox run", sandbox, "--", "true").returncode == 125


def test_what_is_left_in_the_background_holds_nobody_up_and_ends_with_the_sandbox(inside, sandbox):
    """It holds the command's stdout; sandboxctl's own reader gets its end all the same."""
    done = inside("sandbox run", sandbox, "--", "sh", "-c", "sleep 7541 & echo up")
    assert (done.stdout, done.returncode) == (b"up\n", 0)
    assert becomes(True, "7541")
    assert inside("sandbox destroy", sandbox).returncode == 0
    assert becomes(False, "7541")


def test_the_policy_is_the_sandboxs(inside, folder, workspace):
    outside = folder / "outside"
    outside.mkdir()
    line = f"echo x > {outside}/f"
    made = inside("sandbox create", "--write", str(outside), "--env", "A=b", "--json")
    assert made.returncode == 0, (made.stdout, made.stderr)
    sandbox = json.loads(made.stdout)["sandbox"]
    done = inside("sandbox run", sandbox, "sh", "-c", f"{line}; echo $A")
    assert (done.stdout, done.returncode) == (b"b\n", 0), done.stderr
    assert (outside / "f").read_text() == "x\n"
    assert inside("run", "--sandbox", sandbox, "--write", "/srv", "--", "true").returncode == 125
    assert inside("sandbox destroy", sandbox).returncode == 0


def test_a_server_in_a_named_sandbox_is_reached_from_outside(inside, workspace):
    (workspace / "page").write_text("served\n")
    assert inside("sandbox create", "--name", "web").returncode == 0
    try:
        assert b" web " in inside("sandbox list").stdout
        server = ["-e", "PORT=8000", "-c", "exec python3 -u -m http.server $PORT --bind 127.0.0.1"]
        made = inside("sandbox run", "web", "--detach", "--name", "server", *server)
        assert (made.stdout, made.returncode) == (b"server\n", 0), made.stderr
        for flags in ([], ["--tcp"]):
            endpoint = inside("sandbox forward", *flags, "web", "8000").stdout.decode().strip()
            assert fetched(endpoint, "/page") == b"served\n"
        assert inside("sandbox unforward", "web", endpoint).returncode == 0
        assert inside("sandbox unforward", "web", endpoint).returncode == 2
        with pytest.raises(ConnectionRefusedError):
            connected(endpoint)
        one = json.loads(inside("sandbox list", "--json").stdout)["sandboxes"][-1]["sandbox"]
        assert inside("sandbox run", one[:10], "cat", "page").stdout == b"served\n"
        again = inside("sandbox create", "--name", "web")
        assert again.returncode == 125
        assert b"--name" in again.stderr
    finally:
        assert inside("sandbox destroy", "web").returncode == 0


def connected(endpoint: str) -> socket.socket:
    if endpoint.startswith("/"):
        made = socket.socket(socket.AF_UNIX)
        made.connect(endpoint)
        return made
    host, _, port = endpoint.rpartition(":")
    return socket.create_connection((host, int(port)))


def fetched(endpoint: str, path: str) -> bytes:
    """The body; the server may not listen yet, then the connection ends at once."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with connected(endpoint) as link, suppress(ConnectionError):
            link.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            answer = b"".join(iter(lambda link=link: link.recv(65536), b""))
            if answer:
                return answer.partition(b"\r\n\r\n")[2]
        time.sleep(0.05)
    raise AssertionError("nothing answered")


def test_hints_fit_the_subcommand(inside, sandbox, folder):
    other = folder / "other"
    other.mkdir()
    for named in (("run", "--sandbox", sandbox), ("sandbox run", sandbox)):
        said = inside(*named, "--cwd", str(other), "--", "ls").stderr.decode()
        assert "hint:  make another sandbox, with the flags of this one and: sandboxctl" in said
        assert f" sandbox create --read {other}\n" in said
    lines = {
        ("sandbox run", sandbox): f"sandboxctl sandbox run {sandbox} -- sh -c 'ls | head'",
        ("run", "--sandbox", sandbox): f"sandboxctl run --sandbox {sandbox} -- sh -c 'ls | head'",
        ("shell",): "sandboxctl shell -- sh -c 'ls | head'",
        ("explain",): "sandboxctl explain -- sh -c 'ls | head'",
    }
    for words, hint in lines.items():
        assert f"for a line of shell: {hint}\n" in inside(*words, "ls | head").stderr.decode()
    builtin = inside("sandbox run", sandbox, "cd", "x").stderr.decode()
    assert f"sandboxctl sandbox run {sandbox} -- sh -c 'cd x'" in builtin


def test_a_command_in_a_sandbox_may_have_less_time(inside, sandbox):
    done = inside("sandbox run", "--timeout", "200ms", sandbox, "--", "sleep", "600")
    assert done.returncode == 124
    refused = inside("sandbox run", sandbox, "--net", "all", "--", "true")
    assert refused.returncode == 125
    assert b"sandbox run has no option --net" in refused.stderr


def test_an_idle_sandbox_ends(inside):
    sandbox = inside("sandbox create", "--idle", "100ms").stdout.decode().strip()
    deadline = time.monotonic() + 20
    while sandbox in listed(inside) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert sandbox not in listed(inside)
    assert inside("sandbox create", "--idle", "soon").returncode == 2


def test_no_daemon_has_no_sandboxes(ctl, folder):
    ctl.socket_path = str(folder / "nobody.sock")
    done = ctl("sandbox list", "--json")
    assert (json.loads(done.stdout), done.returncode) == ({"sandboxes": []}, 0)


# shell


def test_a_shell_says_where_one_is_and_ends_its_sandbox(inside, screen, workspace):
    before = listed(inside)
    shown = screen(inside.argv("shell"))
    shown.until(f"in a sandbox: writable: {workspace}".encode())
    shown.until(b"no network")
    shown.until(b"(sandbox) ")
    shown.until_raw()
    shown.type(b"echo inside=$SANDBOXD; pwd\r")
    shown.until(b"inside=1")
    shown.until(f"{workspace}\r\n".encode())
    assert len(listed(inside)) == len(before) + 1
    shown.type(b"exit 6\r")
    assert shown.end() == 6
    assert shown.mode() == shown.before
    assert listed(inside) == before


def test_denials_are_told_while_a_shell_goes_on(inside, screen, folder):
    (folder / "readable").mkdir()
    shown = screen(inside.argv("shell", "--read", str(folder / "readable")))
    shown.until(b"(sandbox) ")
    shown.type(f"touch {folder}/readable/x\n".encode())
    shown.until(b"could not be written")
    assert b"\nsandboxctl: \x1b[33mperhaps denied\x1b[0m" in shown.shown, "after touch's own line"
    shown.type(b"echo still-$((40 + 2))\n")
    shown.until(b"still-42")
    shown.type(b"exit\n")
    assert shown.end() in (0, 1)
    assert shown.shown.count(b"could not be written") == 1, "it is told once"


def test_no_color_is_respected(inside, folder, screen):
    (folder / "readable").mkdir()
    words = inside.argv("run", "--read", str(folder / "readable"))
    shown = screen(["env", "NO_COLOR=1", *words, "--", "touch", f"{folder}/readable/x"])
    shown.until(b"sandboxctl: perhaps denied: ")
    assert shown.end() == 1


def test_what_a_shell_left_in_the_background_ends_with_it(ctl, daemon, screen):
    ctl.socket_path = daemon.socket
    shown = screen(ctl.argv("shell"))
    shown.until(b"(sandbox) ")
    shown.until_raw()
    shown.type(b"sleep 7542 &\r")
    assert becomes(True, "7542")
    shown.type(b"exit\r")
    assert shown.end() == 0
    assert becomes(False, "7542")
    assert ctl("run", "--", "true").returncode == 0  # the daemon goes on


def test_a_key_is_the_shells_however_often(inside, screen):
    shown = screen(inside.argv("shell", "--quiet"))
    shown.until(b"(sandbox) ")
    shown.until_raw()
    shown.type(b"sh -c 'trap \"\" INT; echo rea''dy; read x; echo g=$x'\r")
    shown.until(b"ready\r\n")
    for count in (1, 2, 3):
        shown.type(b"\x03")
        deadline = time.monotonic() + 20
        while shown.shown.count(b"^C") < count and time.monotonic() < deadline:
            shown.look()
    shown.type(b"typed\r")
    shown.until(b"g=typed")
    shown.type(b"exit\r")
    assert shown.end() == 0


def test_a_shell_in_a_sandbox_that_exists_leaves_it(inside, screen, sandbox):
    inside("sandbox run", sandbox, "sh", "-c", "echo shared > /tmp/f")
    shown = screen(inside.argv("shell", "--sandbox", sandbox))
    shown.until(f"in sandbox {sandbox}".encode())
    shown.until(b"(sandbox) ")
    shown.until_raw()
    shown.type(b"cat /tmp/f; exit\r")
    shown.until(b"shared\r\n")
    assert shown.end() == 0
    assert sandbox in listed(inside)


@pytest.mark.parametrize(("wanted", "found"), [
    ("/bin/sh", "/sh"), ("/no/such/shell", "/bash"), ("", "/bash"),
])  # fmt: skip
def test_the_shell_is_yours_where_the_sandbox_has_it(inside, wanted, found):
    done = inside("shell", "--quiet", input=b"echo $SHELL $0; exit 3\n", SHELL=wanted)
    assert done.stdout.decode().split()[0].endswith(found)
    assert (done.stderr, done.returncode) == (b"", 3)


def test_a_shell_command(inside):
    done = inside("shell", "--quiet", "sh", "-c", "echo $SANDBOXD; exit 4")
    assert (done.stdout, done.returncode) == (b"1\n", 4)
    assert inside("shell", "--quiet", "no-such-program-here").returncode == 127
    assert inside("shell", "--read", "/no/such/path").returncode == 125
    assert listed(inside) == []


# --ssh-agent


@pytest.fixture
def agent(folder):
    require("ssh-agent")
    path = folder / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 10
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        yield str(path)
        process.terminate()


def test_the_ssh_agent_is_lent_only_when_asked(inside, agent):
    """ssh-add -l: 1 says that the agent has no keys, 2 that there is no agent."""
    asked = ("ssh-add", "-l")
    assert inside("run", "--", *asked, SSH_AUTH_SOCK=agent).returncode == 2
    env = ("--env", "SSH_AUTH_SOCK")
    assert inside("run", *env, "--", *asked, SSH_AUTH_SOCK=agent).returncode == 2
    lent = inside("run", "--ssh-agent", "--", *asked, SSH_AUTH_SOCK=agent)
    assert (lent.stdout, lent.returncode) == (b"The agent has no identities.\n", 1)
    shell = inside("shell", "--ssh-agent", "--quiet", *asked, SSH_AUTH_SOCK=agent)
    assert shell.returncode == 1


def test_the_known_hosts_come_with_the_agent(inside, agent, folder):
    (folder / ".ssh").mkdir()
    known = folder / ".ssh" / "known_hosts"
    known.write_text("server.example ssh-ed25519 key\n")
    env = {"SSH_AUTH_SOCK": agent, "HOME": str(folder)}
    assert inside("run", "--", "cat", str(known), **env).returncode == 1
    lent = inside("run", "--ssh-agent", "--", "cat", str(known), **env)
    assert lent.stdout == known.read_bytes(), lent.stderr


def test_without_an_agent_it_is_said(inside):
    assert b"SSH_AUTH_SOCK is not set" in inside("run", "--ssh-agent", "--", "true").stderr
    gone = inside("run", "--ssh-agent", "--", "true", SSH_AUTH_SOCK="/no/such/agent")
    assert gone.returncode == 125
    assert b"/no/such/agent, does not exist" in gone.stderr


def test_no_daemon_is_started_inside_a_sandbox(inside):
    sources = f"{ROOT}/client:{ROOT}/proto"
    nested = (sys.executable, "-m", "sandboxd_client.cli", "status", "--socket", "/tmp/x/d.sock")
    done = inside("run", "--read", str(ROOT), "-e", f"PYTHONPATH={sources}", "--", *nested)
    assert done.returncode == 125, done.stderr
    assert b"this is inside a sandbox" in done.stderr


def test_a_command_in_the_place_of_a_sandbox_has_no_ports(inside):
    inside("run", "--detach", "--name", "alone", "--", "sleep", "60")
    try:
        said = inside("sandbox forward", "alone", "8000").stderr.decode()
        assert "'alone' is a command, and no sandbox" in said
        assert "sandboxctl sandbox create" in said
    finally:
        inside("kill", "alone")
    assert "there is no sandbox 'none'" in inside("sandbox forward", "none", "1").stderr.decode()


def test_a_port_is_forwarded_once_and_ended_by_its_number(inside):
    inside("sandbox create", "--name", "ports")

    def forwarded(*words):
        return inside("sandbox forward", *words).stdout.decode().strip()

    try:
        by_socket, by_port = forwarded("ports", "3000"), forwarded("--tcp", "ports", "3000")
        assert by_socket.startswith("/")
        assert by_port.startswith("127.0.0.1:")
        other = forwarded("ports", "3001")
        assert forwarded("ports", "3000") == by_socket
        assert forwarded("--tcp", "ports", "3000") == by_port
        assert inside("sandbox unforward", "ports", "3000").returncode == 0
        unknown = inside("sandbox unforward", "ports", "3000")
        assert unknown.returncode == 2
        assert f"there are: 3001 ({other})".encode() in unknown.stderr
        assert forwarded("ports", "3000") not in ("", by_socket)
    finally:
        inside("sandbox destroy", "ports")


def test_what_to_do_about_a_sandbox_that_has_ended():
    for why, hint in (
        ("", "sandboxctl sandbox list shows"),
        (" any more: nothing ran in it for 30m", "sandboxctl sandbox create makes"),
        (" any more: what appeared is moved to .sandboxd-kept", "sandboxctl kept list"),
    ):
        _, _, said = reword(f"there is no sandbox 'x'{why}", "sandbox", None, None)
        assert (said or "").startswith(hint)
