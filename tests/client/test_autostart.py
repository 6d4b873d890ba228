"""Starting the daemon: once for all, in a folder of ours, with nothing of the caller's but a few
variables; replacing an idle one of another version; saying why it failed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from sandboxd_client import (
    Client,
    DaemonNotRunning,
    ServerNotTrusted,
    autostart,
    handshake,
    start_daemon,
)

STUB = """
import json, os, signal, socket, sys, threading
path = sys.argv[sys.argv.index("--socket") + 1]
folder = os.path.dirname(path)
with open(os.path.join(folder, "starts"), "a") as file:
    file.write(json.dumps({
        "pid": os.getpid(), "sid": os.getsid(0), "cwd": os.getcwd(), "env": dict(os.environ),
        "fds": sorted(map(int, os.listdir("/proc/self/fd"))), "argv": sys.argv[1:],
        "stdin": os.readlink("/proc/self/fd/0"), "mask": os.umask(0o77),
    }) + "\\n")
VERSION = open(os.path.join(folder, "version")).read() if os.path.exists(
    os.path.join(folder, "version")) else "0.1.0"
if os.path.exists(os.path.join(folder, "broken")):
    sys.exit("config.toml: line 3: no such key")
if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen(64)
STATUS = {"version": VERSION, "executions": 0, "clients": 1}
def serve(sock):
    for line in sock.makefile("rb"):
        message = json.loads(line)
        result = {"initialize": {"server": {"name": "stub", "version": VERSION}},
                  "status": STATUS, "shutdown": {}}[message["method"]]
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        sock.sendall(json.dumps(answer).encode() + b"\\n")
        if message["method"] == "shutdown":
            os._exit(0)
while True:
    sock, _ = listener.accept()
    threading.Thread(target=serve, args=(sock,), daemon=True).start()
"""


class Place:
    def __init__(self, folder):
        self.folder = folder
        self.path = str(folder / "run" / "d.sock")
        self.stub = folder / "stub.py"
        self.stub.write_text(STUB)

    def command(self, path):
        return [sys.executable, "-S", str(self.stub), "--socket", path]

    def starts(self):
        """What each daemon that was started here noted about itself."""
        try:
            with open(os.path.join(os.path.dirname(self.path), "starts")) as file:
                return [json.loads(line) for line in file]
        except OSError:
            return []


@pytest.fixture
def place(folder, monkeypatch):
    place = Place(folder)
    monkeypatch.setattr(start_daemon, "command", place.command)
    yield place
    for start in place.starts():
        try:
            os.kill(start["pid"], signal.SIGKILL)
            os.waitpid(start["pid"], 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def opened(place, **options):
    return autostart.open_connection(place.path, client="test", **options)


def test_a_daemon_is_started_and_the_next_one_finds_it(place):
    for _ in range(3):
        opened(place).close()
    (start,) = place.starts()
    assert start["sid"] == start["pid"]
    assert start["cwd"] == "/"
    assert start["stdin"] == "/dev/null"
    assert start["mask"] == 0o077
    assert (place.folder / "run").stat().st_mode & 0o777 == 0o700
    assert (place.folder / "run" / "d.log").stat().st_mode & 0o777 == 0o600


def test_no_descriptor_of_the_caller_reaches_the_daemon(place):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    opened(place).close()
    os.close(write)
    assert os.read(read, 1) == b""  # nobody else holds the other end
    os.close(read)


def test_the_environment_is_scrubbed():
    caller = {
        "PATH": "/bin", "HOME": "/h", "USER": "u", "LANG": "C", "XDG_CONFIG_HOME": "/c",
        "SANDBOXD_CONFIG": "/x.toml", "SANDBOXD_BACKEND": " None ",
        "SANDBOXD_ALLOW_NO_SANDBOX": "1", "WAYLAND_SANDBOX": "none",
        "WAYLAND_ALLOW_NO_SANDBOX": "1",
        "DEEPSEEK_SANDBOX_MODE": "x",
        "AWS_SECRET_ACCESS_KEY": "s", "LD_PRELOAD": "/evil.so", "PYTHONPATH": "/evil",
    }  # fmt: skip
    assert start_daemon.environment(caller) == {
        "PATH": "/bin", "HOME": "/h", "USER": "u", "LANG": "C", "XDG_CONFIG_HOME": "/c",
        "SANDBOXD_CONFIG": "/x.toml",
    }  # fmt: skip
    assert start_daemon.environment({"SANDBOXD_BACKEND": "landlock"}) == {
        "SANDBOXD_BACKEND": "landlock"
    }


def test_twenty_at_once_make_one_daemon(place):
    script = textwrap.dedent(
        f"""
        import sys
        from sandboxd_client import autostart, start_daemon
        program = [sys.executable, "-S", {str(place.stub)!r}, "--socket"]
        start_daemon.command = lambda path: [*program, path]
        autostart.open_connection({place.path!r}, client="test").close()
        """
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", script], env=environment) for _ in range(20)
    ]
    assert [process.wait(60) for process in processes] == [0] * 20
    assert len(place.starts()) == 1


def test_a_connection_that_was_begun_is_used(place):
    assert autostart.begin_connection(place.path, "test") is None
    assert place.starts() == []
    opened(place).close()
    begun = autostart.begin_connection(place.path, "test")
    sock = opened(place, begun=begun)
    assert sock is begun
    assert handshake.ask(sock, "status")["clients"] == 1
    sock.close()


def test_a_daemon_that_ends_after_the_connection_was_begun_is_started_again(place):
    opened(place).close()
    (first,) = place.starts()
    os.kill(first["pid"], signal.SIGSTOP)  # it cannot answer
    begun = autostart.begin_connection(place.path, "test")
    os.kill(first["pid"], signal.SIGKILL)
    os.waitpid(first["pid"], 0)
    opened(place, begun=begun).close()
    assert begun.fileno() == -1
    assert len(place.starts()) == 2


def test_a_stale_socket_is_no_daemon(place):
    opened(place).close()
    (first,) = place.starts()
    os.kill(first["pid"], signal.SIGKILL)
    os.waitpid(first["pid"], 0)
    assert os.path.exists(place.path)
    opened(place).close()
    assert len(place.starts()) == 2


def test_no_autostart_forbids_it(place):
    with pytest.raises(DaemonNotRunning):
        opened(place, may_start=False)
    assert place.starts() == []


def test_a_daemon_that_cannot_start_says_why(place):
    (place.folder / "run").mkdir(0o700)
    (place.folder / "run" / "broken").touch()
    with pytest.raises(DaemonNotRunning) as caught:
        opened(place)
    assert "config.toml: line 3: no such key" in caught.value.facts["cause"]
    assert caught.value.remedy == f"its log is {place.folder}/run/d.log"


def test_a_log_that_grew_is_cut(place):
    (place.folder / "run").mkdir(0o700)
    log = place.folder / "run" / "d.log"
    log.write_bytes(b"x" * (start_daemon.LOG_KEEP_BYTES + 1))
    opened(place).close()
    assert log.stat().st_size < start_daemon.LOG_KEEP_BYTES


@pytest.mark.parametrize("how", ["shared", "link", "file"])
def test_a_folder_that_is_not_ours_alone_gets_no_daemon(place, how):
    run = place.folder / "run"
    if how == "shared":
        run.mkdir()
        run.chmod(0o770)
    elif how == "link":
        (place.folder / "elsewhere").mkdir(0o700)
        run.symlink_to(place.folder / "elsewhere")
    else:
        run.touch()
    with pytest.raises((ServerNotTrusted, DaemonNotRunning)):
        opened(place)
    assert not list(place.folder.glob("**/starts"))


def test_a_log_that_is_a_link_is_not_followed(place):
    (place.folder / "run").mkdir(0o700)
    victim = place.folder / "victim"
    victim.write_text("precious")
    (place.folder / "run" / "d.log").symlink_to(victim)
    with pytest.raises(DaemonNotRunning, match="cannot be opened"):
        opened(place)
    assert victim.read_text() == "precious"


def test_an_idle_daemon_of_another_version_is_replaced(place):
    (place.folder / "run").mkdir(0o700)
    version = place.folder / "run" / "version"
    version.write_text("0.0.1")
    start_daemon.start(place.path)
    version.unlink()
    sock = opened(place)
    assert handshake.initialize(sock, "test")["server"]["version"] == "0.1.0"
    sock.close()
    assert len(place.starts()) == 2


def test_what_is_installed_is_replaced_once_and_then_used(place):
    (place.folder / "run").mkdir(0o700)
    (place.folder / "run" / "version").write_text("0.0.1")
    start_daemon.start(place.path)
    opened(place).close()
    assert len(place.starts()) == 2


def test_a_busy_daemon_of_another_version_is_left_alone_and_used(fake):
    fake.version = "0.0.1"
    fake.status["executions"] = 1
    notes = []
    sock = autostart.open_connection(fake.path, client="test", note=notes.append)
    sock.close()
    assert "shutdown" not in fake.methods()
    assert len(notes) == 1
    fake.status["executions"], fake.status["clients"] = 0, 2
    autostart.open_connection(fake.path, client="test").close()
    assert "shutdown" not in fake.methods()


def test_a_daemon_that_is_just_ending_is_replaced(place, fake):
    """It accepts, says that it shuts down, and is gone: the next attempt starts a new one."""
    place.path = fake.path

    def ending(connection, params, id):
        fake.close()

    fake.handlers["initialize"] = ending
    opened(place).close()
    assert len(place.starts()) == 1


def test_a_library_client_can_start_it_too(place):
    with Client(place.path, autostart=True) as client:
        assert client.socket_path == place.path
    assert len(place.starts()) == 1
