"""The blocking client: typed results and errors, many requests on one connection, nothing left."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from sandboxd_client import (
    Client,
    ConnectionLost,
    DaemonNotRunning,
    ServerNotTrusted,
    Unread,
    bytes_of,
    transport,
)
from sandboxd_proto.errors import ExecFailed, ManifestInvalid, MethodNotFound, SandboxdError
from sandboxd_proto.messages.notifications import Exited, Output, Started


@pytest.fixture
def client(fake):
    with Client(fake.path) as client:
        yield client


def drained(fake):
    """No command of the fake runs any more."""
    for _ in range(500):
        if not fake.commands:
            return True
        time.sleep(0.01)
    return False


def test_execute_gives_a_typed_result_with_the_bytes(client):
    result = client.execute(["sh", "-c", r"printf 'a\377b'; echo err >&2; exit 3"])
    assert (result.outcome, result.exit_code) == ("exited", 3)
    assert bytes_of(result.stdout) == b"a\xffb"
    assert result.stderr.data == "err\n"


def test_errors_are_the_classes_of_the_contract(client):
    with pytest.raises(ExecFailed) as caught:
        client.execute(["no-such-program-here"])
    assert caught.value.facts["errno"] == 2
    with pytest.raises(MethodNotFound):
        client.sandbox_list()


def test_a_misspelt_manifest_is_refused_before_it_is_sent(client, fake):
    with pytest.raises(ManifestInvalid):
        client.execute(["true"], manifest={"fs_write_alow": ["/tmp"]})
    assert fake.seen == []


@pytest.mark.parametrize(
    ("method", "wrong", "said"),
    [
        ("execute", "workspce", r"execute\(\) has no option 'workspce': did you mean 'workspace'"),
        ("execute", "input", "did you mean 'stdin'"),
        ("stream", "network", r"a field of the manifest, manifest=\{'network': …\}"),
        ("execute", "write", r"manifest=\{'fs_write_allow': …\}"),
        ("start", "colour", "the options are preset, "),
    ],
)
def test_a_misspelt_option_names_the_right_one(client, fake, method, wrong, said):
    with pytest.raises(TypeError, match=said):
        getattr(client, method)(["true"], **{wrong: "x"})
    with pytest.raises(TypeError, match="did you mean 'preset'"):
        client.check(prest="read-only")
    assert fake.seen == []


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("env", ["A=1"], "give names with values"),
        ("stdin", 3, "give text or bytes"),
        ("manifest", "m.toml", "give a dict of its fields"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(client, fake, option, value, said):
    with pytest.raises(TypeError, match=f"{option} is .*: {said}"):
        client.execute(["true"], **{option: value})
    assert fake.seen == []


def test_a_shell_line_instead_of_words_is_a_mistake(client):
    with pytest.raises(TypeError, match="list of words"):
        client.execute("rm -rf /")


def test_slow_and_quick_requests_share_a_connection(client, fake):
    results = {}

    def run(name, seconds):
        results[name] = client.execute(["sh", "-c", f"sleep {seconds}; echo {name}"])

    threads = [threading.Thread(target=run, args=(str(n), n % 4 / 10)) for n in range(12)]
    for thread in threads:
        thread.start()
    assert client.status().backend == "fake"
    for thread in threads:
        thread.join()
    assert {name: result.stdout.data for name, result in results.items()} == {
        str(n): f"{n}\n" for n in range(12)
    }
    assert len(fake.connections) == 1


def test_stream_gives_the_events_in_order_and_then_the_result(client):
    with client.stream(["sh", "-c", "echo one; sleep 0.05; echo two >&2; exit 6"]) as execution:
        events = list(execution)
        assert isinstance(events[0], Started)
        assert isinstance(events[-1], Exited)
        outputs = [(e.stream, bytes_of(e)) for e in events if isinstance(e, Output)]
        assert outputs == [("stdout", b"one\n"), ("stderr", b"two\n")]
        assert execution.result.exit_code == 6


def test_stream_of_a_command_that_cannot_be_executed_raises_on_entering(client):
    with pytest.raises(ExecFailed), client.stream(["no-such-program-here"]):
        pytest.fail("it was entered")


def test_two_streams_are_told_apart(client):
    with client.stream(["sh", "-c", "echo a; sleep 0.2; echo a"]) as a:
        with client.stream(["sh", "-c", "echo b; echo b"]) as b:
            b_out = b"".join(bytes_of(e) for e in b if isinstance(e, Output))
        a_out = b"".join(bytes_of(e) for e in a if isinstance(e, Output))
    assert (a_out, b_out) == (b"a\na\n", b"b\nb\n")


def test_talking_to_a_running_command(client):
    with client.stream(["cat"], stdin_open=True) as execution:
        execution.write("text ")
        execution.write(b"\xff\n")
        execution.close_stdin()
        out = b"".join(bytes_of(e) for e in execution if isinstance(e, Output))
    assert out == b"text \xff\n"
    with client.stream(["sleep", "60"]) as execution:
        execution.signal("TERM")
        assert execution.wait().signal == 15


def test_leaving_a_stream_leaves_nothing_running(client, fake):
    with client.stream(["sleep", "60"]) as execution:
        pass
    assert execution.result.outcome == "cancelled"
    assert not fake.commands
    with pytest.raises(ZeroDivisionError), client.stream(["sleep", "60"]):
        raise ZeroDivisionError
    assert not fake.commands


def test_closing_the_client_leaves_nothing_running(fake):
    client = Client(fake.path)
    caught = []

    def wait():
        with pytest.raises(ConnectionLost) as error:
            client.execute(["sleep", "60"])
        caught.append(error.value.message)

    thread = threading.Thread(target=wait)
    thread.start()
    while not fake.commands:
        time.sleep(0.01)
    client.close()
    thread.join(10)
    assert caught == ["the client was closed"]
    assert drained(fake)


def test_an_interrupted_execute_ends_the_command(fake):
    """What Ctrl-C does, without a signal: the exception comes out of the read."""
    client = Client(fake.path)
    real = client._sock

    class Interrupting:
        def __getattr__(self, name):
            return getattr(real, name)

        def recv(self, size):
            while not fake.commands:
                time.sleep(0.01)
            raise KeyboardInterrupt

    client._sock = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        client.execute(["sleep", "60"])
    assert drained(fake)
    client._sock = real
    assert client.execute(["echo", "still usable"]).stdout.data == "still usable\n"
    client.close()


def test_output_that_nobody_reads_stops_the_command(client, fake):
    """Back-pressure: without a reader, what is in flight is bounded by the socket's buffer."""
    with client.stream(
        ["sh", "-c", "while :; do echo 0123456789012345678901234567890; done"]
    ) as flood:
        (command,) = fake.commands.values()
        counted = -1
        progress = _written(command)
        for _ in range(200):
            time.sleep(0.05)
            counted, progress = progress, _written(command)
            if counted == progress and counted > 0:
                break
        assert counted == progress  # it does not get further by itself
        for event in flood:
            if isinstance(event, Output):
                break
    assert not fake.commands


def _written(command):
    with open(f"/proc/{command.process.pid}/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("wchar"))


def test_reading_past_an_unread_stream_is_bounded_and_says_so(fake):
    """The consumer itself waits for another answer: it would wait for itself."""
    with (
        Client(fake.path, unread_limit=100_000) as client,
        client.stream(["sh", "-c", "while :; do echo 0123456789; done"]) as flood,
    ):
        next(flood)
        with pytest.raises(Unread):
            client.execute(["sleep", "5"])


def test_a_slow_consumer_in_another_thread_only_delays(fake):
    with Client(fake.path, unread_limit=100_000) as client:
        sizes = []

        def consume():
            with client.stream(["seq", "1", "200000"]) as execution:
                time.sleep(0.3)
                sizes.extend(len(bytes_of(e)) for e in execution if isinstance(e, Output))

        thread = threading.Thread(target=consume)
        thread.start()
        assert client.execute(["sh", "-c", "sleep 0.2; echo x"]).stdout.data == "x\n"
        thread.join()
        assert sum(sizes) == len("".join(f"{n}\n" for n in range(1, 200001)))


def test_a_daemon_that_vanishes_is_told_to_every_waiter(client, fake):
    caught = []

    def wait():
        try:
            client.execute(["sleep", "60"])
        except SandboxdError as error:
            caught.append(type(error))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(fake.commands) < 3:
        time.sleep(0.01)
    fake.close()
    for thread in threads:
        thread.join(10)
    assert caught == [ConnectionLost] * 3
    with pytest.raises(ConnectionLost):
        client.status()


@pytest.mark.parametrize(
    "garbage", [b"not json\n", b"[1]\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n"]
)
def test_a_daemon_that_talks_nonsense_is_a_lost_connection(fake, garbage):
    fake.handlers["status"] = lambda connection, params, id: connection.send(garbage)
    with Client(fake.path) as client, pytest.raises(ConnectionLost):
        client.status()


def test_unknown_fields_and_notifications_of_a_newer_daemon_are_ignored(fake):
    def status(connection, params, id):
        connection.notify("later/method", execution_id="x", percent=80)
        return {**fake.status, "colour": "blue"}

    fake.handlers["status"] = status
    with Client(fake.path) as client:
        assert client.status().version == "0.1.0"


def test_nobody_listens(folder):
    with pytest.raises(DaemonNotRunning, match="no sandboxd listens"):
        Client(str(folder / "none.sock"))
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(folder / "stale.sock"))
    stale.close()
    with pytest.raises(DaemonNotRunning):
        Client(str(folder / "stale.sock"))


def test_a_folder_that_others_can_change_is_not_trusted(fake, folder):
    folder.chmod(0o777)
    with pytest.raises(ServerNotTrusted, match="changed by other users"):
        Client(fake.path)
    folder.chmod(0o700)
    Client(fake.path).close()


def test_a_server_of_another_user_is_sent_nothing(fake, monkeypatch):
    Client(fake.path).close()
    monkeypatch.setattr(transport, "peer_uid", lambda sock: 4242)
    with pytest.raises(ServerNotTrusted, match="another user"):
        Client(fake.path)
    assert fake.seen == []
