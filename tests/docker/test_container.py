"""What a container of ours is, as the engine and the kernel see it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from support.engine import TestEngine
from support.rpc import RpcError
from support.runs import Runner

STATUS = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status"


def test_command_runs_and_reports_exactly(either: Runner) -> None:
    ran = either.shell("echo out; echo err >&2; exit 3")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (3, "out\n", "err\n")
    assert ran.raw["backend"] == "docker"


def test_input_reaches_the_command(either: Runner) -> None:
    assert either.run("cat", stdin="typed").stdout == "typed"


def test_program_that_is_not_there_is_exec_failed(either: Runner) -> None:
    with pytest.raises(RpcError) as refused:
        either.run("no-such-program")
    assert refused.value.kind == "ExecFailed"


def test_nothing_is_held_by_way_of_privileges(either: Runner) -> None:
    fields = dict(line.split(":\t") for line in either.shell(STATUS).stdout.splitlines())
    assert {name: int(fields[name], 16) for name in fields if name[:3] == "Cap"} == dict.fromkeys(
        ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0
    )
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2", "the engine's profile is not loaded"


def test_root_is_read_only_and_tmp_is_private(either: Runner) -> None:
    script = "touch /x /etc/x /usr/x /bin/x 2>/dev/null; ls /x /etc/x /usr/x /bin/x 2>/dev/null"
    assert either.shell(script).stdout == ""
    assert either.shell("echo 1 > /tmp/a && cat /tmp/a").stdout == "1\n"
    assert either.shell("cat /tmp/a").exit_code == 1


def test_written_files_belong_to_the_caller(either: Runner, workspace: Path) -> None:
    manifest = {"fs_write_allow": [str(workspace)]}
    assert either.run("touch", f"{workspace}/made", manifest=manifest).exit_code == 0
    status = (workspace / "made").stat()
    assert (status.st_uid, status.st_gid) == (os.getuid(), os.getgid())


def test_read_grant_cannot_be_written(either: Runner, workspace: Path) -> None:
    (workspace / "f").write_text("kept")
    manifest = {"fs_read_allow": [str(workspace)]}
    script = f"cat {workspace}/f; echo no > {workspace}/f"
    ran = either.shell(script, manifest=manifest)
    assert ran.stdout == "kept"
    assert ran.exit_code != 0
    assert (workspace / "f").read_text() == "kept"


def test_nothing_of_the_host_shows_unasked(either: Runner, workspace: Path) -> None:
    (workspace / "f").write_text("secret")
    assert either.run("cat", f"{workspace}/f").exit_code == 1


def test_denied_path_reads_as_empty(either: Runner, workspace: Path) -> None:
    (workspace / "secret").write_text("secret")
    manifest = {"fs_write_allow": [str(workspace)], "fs_deny": [f"{workspace}/secret"]}
    ran = either.shell(f"cat {workspace}/secret; echo x > {workspace}/secret", manifest=manifest)
    assert ran.stdout == ""
    assert (workspace / "secret").read_text() == "secret"


def test_callers_spelling_works_and_protects_the_same(either: Runner, workspace: Path) -> None:
    (workspace / "kept").write_text("kept")
    link = workspace.parent / "link"
    link.symlink_to(workspace)
    manifest = {"fs_write_allow": [str(link)], "fs_deny": [f"{workspace}/kept"]}
    script = "touch made; cat kept; echo x > kept"
    ran = either.shell(script, manifest=manifest, cwd=str(link))
    assert ran.stdout == ""
    assert (workspace / "made").exists()
    assert (workspace / "kept").read_text() == "kept"


@pytest.mark.requires("root")
def test_mount_below_a_read_grant_cannot_be_written(either: Runner, workspace: Path) -> None:
    """A read-only bind of an engine before 25 leaves the mounts below it writable."""
    inner = workspace / "inner"
    inner.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(inner)], check=True)
    try:
        (inner / "f").write_text("kept")
        manifest = {"fs_read_allow": [str(workspace)]}
        ran = either.shell(f"cat {inner}/f; echo no > {inner}/f", manifest=manifest)
        assert ran.stdout == "kept"
        assert (inner / "f").read_text() == "kept"
    finally:
        subprocess.run(["umount", str(inner)], check=True)


@pytest.mark.requires("root")
def test_mount_that_another_one_covers_is_no_obstacle(box: Runner, workspace: Path) -> None:
    """It is still listed, at a path where nothing is any more."""
    inner = workspace / "above" / "inner"
    inner.mkdir(parents=True)
    for place in (inner, inner.parent):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)
    try:
        assert not inner.exists()
        (workspace / "above" / "f").write_text("kept")
        manifest = {"fs_read_allow": [str(workspace)]}
        assert box.run("cat", f"{workspace}/above/f", manifest=manifest).stdout == "kept"
    finally:
        for place in (inner.parent, inner):
            subprocess.run(["umount", str(place)], check=True)


def test_no_network_means_loopback_only(either: Runner) -> None:
    ran = either.shell("ls /sys/class/net", manifest={"network": "deny"})
    assert ran.stdout.split() == ["lo"]


def test_environment_is_the_manifests(either: Runner) -> None:
    env = {"env": {"A": "1", "PATH": "/bin"}}
    assert either.run("env", manifest=env).stdout.split() == ["A=1", "PATH=/bin"]


def test_engine_is_told_all_of_it(box: Runner, engine: TestEngine) -> None:
    """The body of the create call is one thing; what the engine made of it is another."""
    limits = {"max_memory_bytes": 64 << 20, "max_processes": 20, "max_cpus": 0.5}
    found = _inspected(box, engine, {"network": "deny", **limits})
    host = found["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert not host["Privileged"]
    assert host["LogConfig"]["Type"] == "none"
    assert host["Memory"] == host["MemorySwap"] == 64 << 20
    assert host["PidsLimit"] == 20 + 2
    assert host["NanoCpus"] == 500_000_000
    assert host["NetworkMode"] == "none"
    assert found["Config"]["User"] == f"{os.getuid()}:{os.getgid()}"
    assert list(found["Config"]["Labels"]) == ["dev.sandboxd.supervisor"]
    assert not [m for m in found["Mounts"] if "docker.sock" in m["Source"]]


def _inspected(runner: Runner, engine: TestEngine, manifest: dict[str, Any]) -> dict[str, Any]:
    before = set(engine.containers())
    connection = runner.daemon.connect()
    with connection:
        sandbox = connection.call("sandbox/create", {"manifest": manifest})["sandbox"]
        try:
            # The pool may have made another like it already.
            name = next(one for one in set(engine.containers()) - before if _limited(engine, one))
            return dict(json.loads(engine.docker("inspect", name).stdout)[0])
        finally:
            connection.call("sandbox/destroy", {"sandbox": sandbox})


def _limited(engine: TestEngine, name: str) -> bool:
    done = engine.docker("inspect", "--format", "{{.HostConfig.NanoCpus}}", name, check=False)
    return done.stdout.strip() == "500000000"


def test_engines_socket_stays_outside_even_when_its_folder_is_allowed(
    either: Runner, engine: TestEngine
) -> None:
    socket = engine.url.removeprefix("unix://")
    assert Path(socket).is_socket()
    ran = either.shell(
        f"ls {Path(socket).parent}; test -S {socket} && echo socket; true",
        manifest={"fs_read_allow": [str(Path(socket).parent)]},
    )
    assert "log" in ran.stdout.split(), "the folder itself does not show"
    assert "socket" not in ran.stdout.split()


def test_engines_own_files_stay_outside(either: Runner, engine: TestEngine) -> None:
    folder = engine.docker("info", "--format", "{{.DockerRootDir}}").stdout.strip()
    for access in ("fs_write_allow", "fs_read_allow"):
        with pytest.raises(RpcError) as refused:
            either.run("true", manifest={access: [folder]})
        assert refused.value.kind == "PathDenied"
    above = str(Path(folder).parent)
    ran = either.run("ls", above, manifest={"fs_read_allow": [above]})
    assert Path(folder).name not in ran.stdout.split()


def test_missing_image_is_an_error_that_names_the_command(either: Runner) -> None:
    with pytest.raises(RpcError) as refused:
        either.run("true", manifest={"image": "sandboxd/no-such-image:local"})
    assert refused.value.kind == "SandboxUnavailable"
    assert "docker pull sandboxd/no-such-image:local" in refused.value.data["remedy"]


def test_fifty_at_once_do_not_wait_for_one_another(relayed: Runner) -> None:
    """Two connections for each attached run: a limit of a hundred would be a deadlock at fifty."""
    results: list[str] = []

    def one(number: int) -> None:
        runner = Runner(relayed.daemon)
        try:
            results.append(runner.run("echo", str(number)).stdout.strip())
        finally:
            runner.close()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results, key=int) == [str(number) for number in range(12)]
