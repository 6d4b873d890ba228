"""The parts that are functions: where the engine is, what a container is made from, counters."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sandboxd.backends.docker.attach.framing import Unframer
from sandboxd.backends.docker.diagnosis import explain_error
from sandboxd.backends.docker.endpoint import find
from sandboxd.backends.docker.engine import Engine, EngineError
from sandboxd.backends.docker.mounts import (
    ContainerBind,
    ContainerMountSources,
    Tmpfs,
    container_mount_plan,
    mounts,
)
from sandboxd.backends.docker.spec import ContainerContext, ContainerEntry, create_body
from sandboxd.backends.docker.with_init.counters import Counters
from sandboxd.backends.docker.with_init.handshake import Handshake
from sandboxd.backends.docker.with_init.netns import helper_body
from sandboxd.backends.owner_identity import supervisor_identity
from sandboxd.linux.init_client.codec import InitProtocolViolation
from sandboxd.linux.init_client.launch import LaunchFailed
from sandboxd.linux.mountinfo import parse
from sandboxd.policy.mounts.mount_plan import NAME_FILES, Host
from sandboxd.policy.plan import Grant, Identity, Limits, Mask, NetworkRule, RunAs, SandboxSpec
from sandboxd_proto.errors import SandboxUnavailable
from sandboxd_proto.locations import DEFAULT_ENGINE

HOST = Host(
    system=(("/usr", None), ("/bin", "usr/bin")), homes=("/home",),
    name_files=(("/etc/hosts", "hosts"), ("/run/resolv.conf", "resolv.conf")),
)  # fmt: skip


def spec(**fields: object) -> SandboxSpec:
    base: dict[str, object] = {"base": "minimal", "network": NetworkRule("deny")}
    return SandboxSpec(**{**base, **fields})  # type: ignore[arg-type]


def grant(path: str, access: str = "write") -> Grant:
    return Grant(path, access, Identity(1, 2, True))  # type: ignore[arg-type]


def around(**fields: object) -> ContainerMountSources:
    return ContainerMountSources(
        empty_file="/e/file", empty_dir="/e/dir", mountpoints=lambda path, _: f"/mountpoints{path}",
        **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def found(what: SandboxSpec, **fields: object) -> dict[str, tuple[str, bool]]:
    made = mounts(container_mount_plan(what, HOST), around(**fields))
    return {m.dest: (m.source, m.writable) for m in made if isinstance(m, ContainerBind)}


def test_engine_is_where_config_then_environment_then_sockets_say(tmp_path: Path) -> None:
    assert find("tcp://a:1", {"DOCKER_HOST": "tcp://b:2"}).url == "tcp://a:1"
    assert find("", {"DOCKER_HOST": "tcp://b:2"}).base_url == "http://b:2"
    tls = {"DOCKER_HOST": "tcp://b:2", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/c"}
    assert (find("", tls).base_url, find("", tls).certificates) == ("https://b:2", "/c")
    if not Path("/var/run/docker.sock").exists():
        assert find("", {}).url in (DEFAULT_ENGINE, "unix:///run/podman/podman.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "docker.sock"))
            url = find("", {"XDG_RUNTIME_DIR": str(tmp_path)}).url
        assert url == f"unix://{tmp_path}/docker.sock"


@pytest.mark.parametrize("url", ["ssh://host", "npipe:////./pipe/docker_engine", "nonsense"])
def test_engine_that_cannot_be_spoken_to_is_said_to_be_so(url: str) -> None:
    with pytest.raises(SandboxUnavailable, match="unix:// and tcp:// only"):
        anyio.run(Engine(find(url, {})).facts)


def test_image_is_the_root_and_only_grants_are_bound() -> None:
    what = spec(grants=(grant("/data"), grant("/ro", "read")), masks=(Mask("/etc/shadow", False),))
    assert found(what) == {"/data": ("/data", True), "/ro": ("/ro", False)}


def test_masks_inside_a_grant_are_bound_over_it() -> None:
    masks = (Mask("/data/secret", False), Mask("/data/keys", True))
    binds = found(spec(grants=(grant("/data"),), masks=masks))
    assert binds["/data/secret"] == ("/e/file", False)
    assert binds["/data/keys"] == ("/e/dir", False)


def test_host_base_binds_the_roots_folders_one_by_one() -> None:
    binds = found(spec(base="host"), root=("usr", "etc", "home", "proc", "tmp", "run"))
    assert set(binds) == {"/usr", "/etc", "/home", "/run"}
    assert binds["/home"] == ("/mountpoints/home", False)
    assert binds["/etc"] == ("/etc", False)


def test_named_image_is_the_root_even_of_a_preset_with_the_host_base() -> None:
    assert found(spec(base="host", image="python:3"), root=("usr", "etc")) == {}


def test_mounts_below_a_read_only_bind_are_bound_by_themselves() -> None:
    submounts = ("/", "/ro/inner", "/data/inner", "/other")
    binds = found(spec(grants=(grant("/data"), grant("/ro", "read"))), submounts=submounts)
    assert binds == {
        "/data": ("/data", True), "/ro": ("/ro", False), "/ro/inner": ("/ro/inner", False),
    }  # fmt: skip


def test_files_that_name_hosts_are_bound_where_only_named_hosts_exist() -> None:
    network = NetworkRule("allow_hosts", ("example.org",))
    ours = {f"/etc/{name}": (f"/n/{name}", False) for name in NAME_FILES}
    assert found(spec(network=network), names="/n") == ours
    # Where the whole /etc of the host is allowed its own are covered, wherever they really lie.
    etc = spec(network=network, grants=(grant("/etc", "read"),))
    assert found(etc, names="/n") == {
        "/etc": ("/etc", False), "/etc/hosts": ("/n/hosts", False),
        "/run/resolv.conf": ("/n/resolv.conf", False),
    }  # fmt: skip
    assert found(spec(network=NetworkRule("inherit")), names="/n") == {}


def test_helper_of_a_network_has_three_capabilities_and_nothing_to_write() -> None:
    frame = ContainerContext(image="i", user=RunAs(7, 8), labels={"k": "v"}, userns_host=True)
    body = helper_body("c" * 64, "/folder", frame)
    host = body["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["CapAdd"] == ["NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW"]
    assert host["NetworkMode"] == f"container:{'c' * 64}"
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["ReadonlyRootfs"] is True
    assert [(m["Source"], m["ReadOnly"]) for m in host["Mounts"]] == [("/folder", True)]
    assert (host["UsernsMode"], body["Labels"]) == ("host", {"k": "v"})


def test_tmp_is_a_tmpfs() -> None:
    made = mounts(container_mount_plan(spec(), HOST), around())
    assert {m.dest for m in made if isinstance(m, Tmpfs)} == {"/tmp", "/var/tmp"}


def test_create_body_holds_every_limit_and_every_wall() -> None:
    limits = Limits(memory_bytes=1 << 30, processes=5, cpus=1.5)
    frame = ContainerContext(image="i", user=RunAs(7, 8), labels={"k": "v"})
    binds = [ContainerBind("/a", "/b"), ContainerBind("/c", "/d", writable=True), Tmpfs("/tmp")]
    body = create_body(spec(limits=limits), binds, ContainerEntry(("/init",)), frame)
    host = body["HostConfig"]
    assert (body["User"], body["NetworkDisabled"], body["Env"]) == ("7:8", True, [])
    assert host["Memory"] == host["MemorySwap"] == 1 << 30
    assert (host["PidsLimit"], host["NanoCpus"]) == (7, 1_500_000_000)
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"], "the engine's seccomp profile was replaced"
    assert host["LogConfig"] == {"Type": "none"}
    assert [(m["Source"], m["ReadOnly"]) for m in host["Mounts"]] == [("/a", True), ("/c", False)]
    assert all(m["Type"] == "bind" for m in host["Mounts"]), "a missing source must be refused"


def test_podman_is_asked_in_its_own_words() -> None:
    """It refuses the owner of a tmpfs, and would copy what the image has there into it."""
    frame = ContainerContext(image="i", user=RunAs(7, 8), labels={})
    asked = {
        podman: create_body(
            spec(), [Tmpfs("/tmp")], ContainerEntry(("x",)), replace(frame, podman=podman)
        )
        for podman in (False, True)
    }
    options = {podman: body["HostConfig"]["Tmpfs"]["/tmp"] for podman, body in asked.items()}
    assert options[False].endswith(",mode=1777,uid=7,gid=8")
    assert options[True].endswith(",mode=1777,notmpcopyup")


def test_no_limit_is_made_up() -> None:
    frame = ContainerContext(image="i", user=RunAs(7, 8), labels={})
    host = create_body(spec(network=NetworkRule("inherit")), [], ContainerEntry(("x",)), frame)[
        "HostConfig"
    ]
    assert not {"Memory", "PidsLimit", "NanoCpus"} & set(host)
    assert host["NetworkMode"] == "default"


def test_refusals_of_engines_name_what_to_do() -> None:
    image = "sandboxd/base:local"
    missing = explain_error(EngineError(404, f"No such image: {image}"), image)
    assert missing.remedy == "build it: sandboxctl image build"
    gone = explain_error(EngineError(400, "bind source path does not exist: /a b"), "i")
    assert (gone.kind, "/a b" in gone.message) == ("PathDenied", True)


def test_identity_is_of_the_socket() -> None:
    assert supervisor_identity("/run/a.sock") == supervisor_identity("/run/../run/a.sock")
    assert supervisor_identity("/run/a.sock") != supervisor_identity("/run/b.sock")


def test_mountinfo_is_read_with_its_escapes() -> None:
    lines = (
        "36 35 98:0 / /mnt/a\\040b rw shared:1 - ext4 /dev/x rw\n"
        "37 35 0:5 / /proc rw - proc proc rw\n"
    )
    assert [entry.point for entry in parse(lines) if entry.kind != "proc"] == ["/mnt/a b"]


@pytest.mark.requires("root")
def test_a_mount_under_another_one_is_left_out(tmp_path: Path) -> None:
    script = """set -e
        mkdir -p "$1/a/b"; mount -t tmpfs x "$1/a/b"; "$2" -c "$3"
        mount -t tmpfs x "$1/a"; "$2" -c "$3"
    """
    code = "from sandboxd.linux.mountinfo import mount_points; print(mount_points())"
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.splitlines()
    assert f"'{tmp_path}/a/b'" in before
    assert f"'{tmp_path}/a'" in after
    assert f"'{tmp_path}/a/b'" not in after


@pytest.mark.parametrize("version", [1, 2])
def test_counters_of_both_cgroup_versions(version: int, tmp_path: Path) -> None:
    files = {
        1: {
            "cpuacct/c/cpuacct.usage": "1500000000\n",
            "memory/c/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
            "pids/c/pids.events": "max 4\n",
        },
        2: {
            "c/cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
            "c/memory.events": "low 0\noom 5\noom_kill 3\n",
            "c/pids.events": "max 4\n",
        },
    }[version]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    folders = (
        {name: str(tmp_path / name / "c") for name in ("cpuacct", "memory", "pids")}
        if version == 1
        else {"": str(tmp_path / "c")}
    )
    counts = Counters(folders).read()
    assert (counts.cpu_s, counts.memory_kills, counts.forks_refused) == (1.5, 3, 4)
    assert Counters({}).read().cpu_s is None


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_framing_survives_any_chunking(printed: list[bytes], data: st.DataObject) -> None:
    word = "ab" * 16
    stream, said = b"", []
    for number, text in enumerate(printed):
        message = bytes([number]) * (number + 1)
        said.append(message)
        stream += text + word.encode() + b"k%08x" % len(message) + message.hex().encode()
    unframer, out, heard = Unframer(word), b"", []
    while stream:
        size = data.draw(st.integers(1, 50))
        piece, stream = stream[:size], stream[size:]
        more, messages = unframer.feed(piece)
        out += more
        heard += [one.message for one in messages]
    assert (out + unframer.rest(), heard) == (b"".join(printed), said)


def test_framing_holds_nothing_back_that_is_not_its_word() -> None:
    unframer = Unframer("ab" * 16)
    assert unframer.feed(b"prompt> ") == (b"prompt> ", [])
    assert unframer.feed(b"a") == (b"", [])
    assert unframer.feed(b"c") == (b"ac", [])
    for lie in (b"x00000001ff", b"kzzzzzzzz", b"kffffffff"):
        with pytest.raises(InitProtocolViolation):
            Unframer("ab" * 16).feed(b"ab" * 16 + lie)


def _doorstep(folder: Path) -> Handshake:
    init = folder / "init"
    init.write_bytes(b"")
    return Handshake(str(folder), "one", str(init), RunAs(os.getuid(), os.getgid()))


def _connect(step: Handshake) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.connect(f"{step.folder}/control")
    return client


async def _never_ended() -> str | None:
    return None


def test_doorstep_takes_one_connection_and_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        step = _doorstep(tmp_path)
        try:
            with _connect(step):
                taken, peer = await step.answered("f" * 64, os.getuid(), _never_ended)
                taken.close()
                assert peer.pid == os.getpid()
                assert not os.path.exists(f"{step.folder}/control")  # noqa: ASYNC240
        finally:
            step.close()

    anyio.run(main)


def test_doorstep_refuses_a_stranger(tmp_path: Path) -> None:
    async def main() -> None:
        step = _doorstep(tmp_path)
        try:
            with _connect(step), pytest.raises(LaunchFailed, match="not the container's"):
                await step.answered("f" * 64, os.getuid() + 1, _never_ended)
        finally:
            step.close()

    anyio.run(main)


def test_doorstep_gives_up_when_the_container_has_ended(tmp_path: Path) -> None:
    async def ended() -> str | None:
        return "it ended"

    async def main() -> None:
        step = _doorstep(tmp_path)
        try:
            with pytest.raises(LaunchFailed, match="it ended"):
                await step.answered("f" * 64, os.getuid(), ended)
        finally:
            step.close()

    anyio.run(main)


LOST = "OCI runtime create failed: error during container init: %!w(<nil>): unknown"


@pytest.mark.parametrize(
    ("answers", "raised", "starts"),
    [([LOST], None, 2), ([LOST, LOST], LOST, 2), (["no such image"], "no such image", 1)],
    ids=["lost once", "lost twice", "another error"],
)
def test_only_a_start_that_runc_lost_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, answers: list[str], raised: str | None, starts: int
) -> None:
    """No engine can be made to lose it: what the engine would answer is put in its place."""
    tried: list[str] = []

    async def start(_: Engine, container: str) -> None:
        tried.append(container)
        if len(tried) <= len(answers):
            raise EngineError(500, answers[len(tried) - 1])

    monkeypatch.setattr(Engine, "_start", start)
    engine = Engine(find("", {}))
    if raised is None:
        anyio.run(engine.start, "c")
    else:
        with pytest.raises(EngineError) as refused:
            anyio.run(engine.start, "c")
        assert refused.value.message == raised
    assert tried == ["c"] * starts


def test_to_learn_that_no_engine_runs_loads_no_http_library() -> None:
    program = """
import sys, anyio
from sandboxd.backends.docker.endpoint import Endpoint
from sandboxd.backends.docker.engine import Engine
from sandboxd_proto.errors import SandboxUnavailable
try:
    anyio.run(Engine(Endpoint("unix:///nonexistent/engine.sock")).facts)
except SandboxUnavailable as error:
    print(error.message, "aiohttp" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == (
        "the Docker engine at unix:///nonexistent/engine.sock does not answer: "
        "No such file or directory False\n"
    ), done.stderr
