"""allow_hosts in containers: how they are led to the gate. What the gate does: tests/egress."""

from __future__ import annotations

import http.server
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.daemon import ROOT, running_daemon
from support.engine import IMAGE, TestEngine
from support.rpc import RpcError
from support.runs import Ran, Runner
from support.users import unprivileged_user

from sandboxd.backends.docker.containers import LABEL
from sandboxd.backends.owner_identity import supervisor_identity

Eventually = Callable[[Callable[[], bool]], bool]
FETCH = "wget -qO- http://localhost:{port}/"
STATUS = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status"


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"served\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where something of this machine is served."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def network(*hosts: str) -> dict[str, Any]:
    return {"network": {"kind": "allow_hosts", "hosts": list(hosts)}}


def refused_hosts(ran: Ran) -> list[str]:
    return [denial["target"] for denial in ran.denials if denial["layer"] == "gate"]


def ours(engine: TestEngine, socket: str) -> list[str]:
    """The ids of this daemon's containers, in whatever state."""
    label = f"label={LABEL}={supervisor_identity(socket)}"
    return engine.docker("ps", "--all", "--quiet", "--no-trunc", "--filter", label).stdout.split()


def test_named_host_is_reached_and_no_other(box: Runner, port: int) -> None:
    script = f"{FETCH.format(port=port)}; wget -qO- http://other.test/"
    ran = box.shell(script, manifest=network(f"localhost:{port}"))
    assert ran.stdout == "served\n", ran.story
    assert ran.enforcement == {"network": "enforced"}
    assert refused_hosts(ran) == ["other.test"]
    (used,) = ran.raw["network_usage"]
    assert (used["host"], used["port"], used["connections"]) == ("localhost", port, 1)
    # The control: it is the name in the manifest that lets it through.
    assert box.shell(FETCH.format(port=port), manifest=network("a.test")).stdout == ""


def test_sandbox_with_a_gate_is_as_bare_as_any_and_alone(
    engine: TestEngine, eventually: Eventually
) -> None:
    """Its network was made by a container with a capability, which has ended."""
    env = {"SANDBOXD_BACKEND": "docker", "DOCKER_HOST": engine.url}
    with running_daemon(env=env, config="[pool]\nenabled = false\n") as daemon:
        box = Runner(daemon)
        sandbox = box.connection.call("sandbox/create", {"manifest": network("a.test")})["sandbox"]
        assert eventually(lambda: len(ours(engine, daemon.socket)) == 1)
        (container,) = ours(engine, daemon.socket)
        host = json.loads(engine.docker("inspect", container).stdout)[0]["HostConfig"]
        assert (host["CapAdd"], host["CapDrop"]) == (None, ["ALL"])
        assert host["NetworkMode"] == "none"
        said = box.shell(STATUS, sandbox=sandbox).stdout
        fields = dict(line.split(":\t") for line in said.splitlines())
        assert {int(fields[name], 16) for name in fields if name[:3] == "Cap"} == {0}
        assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
        # Nothing listens any more where the init and the helper had dialled.
        assert box.shell("ls /.sandboxd; ls /sys/class/net", sandbox=sandbox).stdout == "init\nlo\n"
        change = "ip route del local 0.0.0.0/0 dev lo table local 2>&1"
        assert "not permitted" in box.shell(change, sandbox=sandbox).stdout
        box.connection.call("sandbox/destroy", {"sandbox": sandbox})
        box.close()
        assert eventually(lambda: ours(engine, daemon.socket) == [])


def test_warm_container_has_its_gate_and_reports_to_its_own_execution(
    box: Runner, port: int, eventually: Eventually
) -> None:
    manifest = network(f"localhost:{port}", "*.warm.test")
    script = f"env | grep ^http_proxy; {FETCH.format(port=port)}; wget -qO- http://other.test/"
    seen = []
    for _ in range(2):
        ran = box.shell(script, manifest=manifest)
        proxy, served = ran.stdout.splitlines()
        assert served == "served", ran.story
        used = {entry["host"]: entry["connections"] for entry in ran.raw["network_usage"]}
        assert used == {"localhost": 1, "other.test": 0}
        assert refused_hosts(ran) == ["other.test"]
        seen.append(proxy)
        assert eventually(lambda: box.connection.call("status")["sandboxes"]["warm"] > 0)
    assert seen[0] != seen[1], "two executions have the same credentials"


@pytest.mark.parametrize("base", ["minimal", "host"])
def test_files_that_name_hosts_are_the_sandboxs_own(box: Runner, base: str) -> None:
    manifest = {"base": base, **network("example.test", "other.test:22")}
    ran = box.shell("cat /etc/hosts /etc/resolv.conf; echo x >> /etc/hosts", manifest=manifest)
    lines = ran.stdout.splitlines()
    assert "127.77.0.1\texample.test" in lines
    assert "127.77.0.2\tother.test" in lines
    assert lines[-1] == "nameserver 127.0.0.1"
    assert ran.exit_code != 0, "it could be written"


@pytest.fixture
def hostile_image(engine: TestEngine) -> Iterator[str]:
    """Its settings would run it in our place, as somebody else, with a library and files of its own
    where ours are."""
    tag = "sandboxd/hostile:local"
    container = engine.docker("create", IMAGE, "true").stdout.strip()
    changes = (
        'ENTRYPOINT ["/bin/false"]', "ENV LD_PRELOAD=/tmp/x.so", "USER 4321",
        "WORKDIR /nowhere", 'VOLUME ["/.sandboxd", "/etc"]', "HEALTHCHECK CMD true",
    )  # fmt: skip
    flags = [word for change in changes for word in ("--change", change)]
    engine.docker("commit", *flags, container, tag)
    engine.docker("rm", container)
    yield tag
    engine.docker("rmi", "--force", tag)


def test_image_has_no_say_in_how_its_network_is_made(
    box: Runner, port: int, hostile_image: str
) -> None:
    manifest = {"image": hostile_image, **network(f"localhost:{port}")}
    ran = box.shell(f"id -u; {FETCH.format(port=port)}; cat /etc/resolv.conf", manifest=manifest)
    assert ran.stdout == f"{os.getuid()}\nserved\nnameserver 127.0.0.1\n", ran.story


def test_many_at_once_cancelled_leave_no_container(
    engine: TestEngine, eventually: Eventually
) -> None:
    env = {"SANDBOXD_BACKEND": "docker", "DOCKER_HOST": engine.url}
    with running_daemon(env=env, config="[pool]\nenabled = false\n") as daemon:
        connections = [daemon.connect(timeout_s=120) for _ in range(8)]
        requests = [
            one.start(
                "execute",
                {"argv": ["sleep", "60"], "execution_id": f"e{number}",
                 "manifest": network("a.test")},
            )
            for number, one in enumerate(connections)
        ]  # fmt: skip
        for number, connection in enumerate(connections):
            # At every stage: before the container, with its helper, while the command runs.
            assert eventually(lambda so_far=number: len(engine.containers()) >= so_far // 2)
            connection.call("execution/cancel", {"execution_id": f"e{number}"})
        for connection, request in zip(connections, requests, strict=True):
            assert connection.result(request)["outcome"] == "cancelled"
            connection.close()
        assert eventually(lambda: ours(engine, daemon.socket) == [])


def test_attached_engine_refuses_named_hosts_and_says_what_would_do(relayed: Runner) -> None:
    with pytest.raises(RpcError) as refused:
        relayed.run("true", manifest=network("example.org"))
    assert (refused.value.kind, refused.value.field) == ("PolicyNotSupported", "network")
    assert "an engine on this machine" in refused.value.data["remedy"]


@pytest.mark.requires("root", "unshare")
def test_engine_that_turns_out_to_have_other_files_refuses_named_hosts(engine: TestEngine) -> None:
    """The very first request, on a local socket: which way it is, is not known yet."""
    elsewhere = 'mount -t tmpfs tmpfs /run && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", elsewhere, "sh"]
    env = {"SANDBOXD_BACKEND": "docker", "DOCKER_HOST": engine.url}
    with running_daemon(env=env, prefix=prefix) as daemon:
        box = Runner(daemon)
        with pytest.raises(RpcError) as refused:
            box.run("true", manifest=network("example.org"))
        assert (refused.value.kind, refused.value.field) == ("PolicyNotSupported", "network")
        assert box.run("echo", "served").stdout == "served\n"
        box.close()


@contextmanager
def folder_of(user: pwd.struct_passwd) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sbxd-user-"))
    try:
        (folder / "work").mkdir()
        for path in (folder, folder / "work"):
            os.chown(path, user.pw_uid, user.pw_gid)
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.requires("root")
def test_daemon_without_privileges_needs_the_engines_socket_only(
    engine: TestEngine, port: int
) -> None:
    user = unprivileged_user()
    group = os.stat(engine.url.removeprefix("unix://")).st_gid
    become = ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid),
              "--groups", str(group), "--inh-caps", "-all", "--no-new-privs", "--"]  # fmt: skip
    with folder_of(user) as folder:
        env = {
            "HOME": str(folder), "PATH": os.environ["PATH"], "DOCKER_HOST": engine.url,
            "PYTHONPATH": ":".join(sys.path), "SANDBOXD_SOCKET": f"{folder}/s",
            "SANDBOXD_BACKEND": "docker",
        }  # fmt: skip

        def ctl(*words: str) -> subprocess.CompletedProcess[str]:
            command = [*become, sys.executable, "-m", "sandboxd_client.cli", *words]
            return subprocess.run(
                command, cwd=folder / "work", env=env, capture_output=True, text=True, timeout=120,
                check=False,
            )  # fmt: skip

        serve = [*become, sys.executable, "-m", "sandboxd", "--socket", f"{folder}/s"]
        daemon = subprocess.Popen(serve, cwd=ROOT, env=env, stdout=subprocess.PIPE)
        try:
            assert daemon.stdout is not None
            assert daemon.stdout.readline()
            script = f"id -u; {FETCH.format(port=port)}; wget -qO- http://other.test/"
            done = ctl("run", "--net", f"localhost:{port}", "--", "sh", "-c", script)
            assert done.stdout == f"{user.pw_uid}\nserved\n", done.stderr
            assert "other.test" in done.stderr
        finally:
            daemon.terminate()
            daemon.communicate(timeout=30)
        assert ours(engine, f"{folder}/s") == []
