"""Fork bombs: a command that never stops forking must not stop the machine, nor the daemon.

Every test here runs inside an outer limit of its own, which would stop the bomb if the product did
not: as root a pids cgroup, as a user RLIMIT_NPROC.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.attacks import Box, Build, python, verdict_of
from support.backends import running_backend
from support.outer_limit import PIDS, OuterLimit, limit_on, outer_limit, run_within

from sandboxd.linux.cgroup import v1 as cgroup_v1
from sandboxd.linux.cgroup.tree import NotDelegated
from sandboxd.policy.limits import DEFAULT_PROCESSES

pytestmark = pytest.mark.isolation

OUTER = 1500
FORKS = 600
ALLOWED = 100
# What is around a command: the init, reapers, room for threads.
AROUND = 80
BACKENDS = ("bubblewrap", "landlock")


def manifest(*programs: str, **more: Any) -> dict[str, Any]:
    return {"base": "host", "fs_read_allow": list(programs), "timeout": 90, **more}


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def limited(backend: str) -> Iterator[tuple[Box, OuterLimit]]:
    """A daemon as a user starts it. Root's has cgroups of its own, which get the outer limit."""
    with outer_limit(OUTER) as outer:
        prefix = () if os.geteuid() == 0 else outer.prefix
        with running_backend(backend, prefix=prefix) as daemon:
            box = Box(backend, daemon)
            if os.geteuid() != 0:
                yield box, outer
            else:
                (own,) = PIDS.glob(f"{cgroup_v1.PREFIX}{daemon.pid}-*")
                with limit_on(own, OUTER) as inner:
                    yield box, inner
            box.close()


@pytest.fixture(scope="module")
def uncontrolled(backend: str) -> Iterator[tuple[Box, OuterLimit]]:
    """A daemon that has no cgroup: root's is in one that is not its own to use."""
    with outer_limit(OUTER) as outer, running_backend(backend, prefix=outer.prefix) as daemon:
        box = Box(backend, daemon)
        yield box, outer
        box.close()


def test_the_bomb_works_without_a_sandbox(build: Build) -> None:
    """The control: nothing but the outer limit stops it."""
    bomb = build("fork_bomb")
    with outer_limit(OUTER) as outer:
        assert verdict_of(run_within(outer, [*bomb, "forks", str(FORKS)])).worked
        assert verdict_of(run_within(outer, [*bomb, "forks", str(OUTER * 3)])).blocked


def test_processes_beyond_the_limit_are_refused(
    limited: tuple[Box, OuterLimit], build: Build
) -> None:
    box, _ = limited
    bomb = build("fork_bomb")
    ran = box.run(*bomb, "forks", str(FORKS), manifest=manifest(*bomb))
    assert ran.exited(42), ran.story
    ran = box.run(*bomb, "forks", str(FORKS), manifest=manifest(*bomb, max_processes=ALLOWED))
    assert ran.outcome == "processes" or ran.exited(43), ran.story
    assert [d["kind"] for d in ran.denials] == ["processes"] or ran.exited(43), ran.story


COUNTING_BOMB = python("""
    for number in range(2, int(args[0])):
        if os.fork() == 0:
            os.closerange(0, 3)
            time.sleep(2)
            os._exit(0)
        print(number, flush=True)
    worked()
""")


@pytest.mark.requires("root")
@pytest.mark.parametrize("persistent", [False, True])
def test_not_one_process_more_than_the_limit(
    limited: tuple[Box, OuterLimit], persistent: bool
) -> None:
    """With a cgroup the kernel refuses the next one; nothing is added for our own processes."""
    box, _ = limited
    most, wanted = 20, manifest(max_processes=20)
    if not persistent:
        with outer_limit(60) as outer:
            assert verdict_of(run_within(outer, [*COUNTING_BOMB, "40"])).worked
        ran = box.run(*COUNTING_BOMB, "40", manifest=wanted)
    else:
        inside = {"sandbox": box.connection.call("sandbox/create", {"manifest": wanted})["sandbox"]}
        ran = box.run(*COUNTING_BOMB, "40", **inside)
        box.connection.call("sandbox/destroy", inside)
    assert ran.outcome == "processes" or ran.exited(43), ran.story
    assert ran.stdout.split()[most - 2] == str(most), ran.story
    assert str(most + 1) not in ran.stdout.split(), ran.story


@pytest.mark.requires("root")
def test_a_background_process_may_fork_after_its_command(limited: tuple[Box, OuterLimit]) -> None:
    box, _ = limited
    made = box.connection.call("sandbox/create", {"manifest": manifest(max_processes=ALLOWED)})
    inside = {"sandbox": made["sandbox"]}
    folder = "cd ${TMPDIR:-/tmp}; "
    waits = "until test -e go; do sleep 0.05; done; /bin/true && touch done"
    after = "touch go; until test -e done; do sleep 0.05; done"
    try:
        assert box.run("sh", "-c", f"{folder} ({waits}) >&- 2>&- &", **inside).exited(0)
        assert box.run("sh", "-c", folder + after, **inside).exited(0)
    finally:
        box.connection.call("sandbox/destroy", inside)


def test_what_is_said_about_the_limit_is_true(limited: tuple[Box, OuterLimit]) -> None:
    """Enforced: by a cgroup, or where the kernel counts the sandbox's processes alone."""
    box, _ = limited
    ran = box.run("true", manifest=manifest(max_processes=ALLOWED))
    firm = os.geteuid() == 0 or box.backend == "bubblewrap"
    assert ran.enforcement["max_processes"] == ("enforced" if firm else "best_effort")
    ran = box.run("true", preset="read-only")
    assert ran.enforcement["max_processes"] == ("enforced" if firm else "best_effort")


def test_a_bomb_is_ended_and_the_daemon_goes_on(
    limited: tuple[Box, OuterLimit], build: Build
) -> None:
    box, outer = limited
    bomb = build("fork_bomb")
    ran = box.run(*bomb, "grows", manifest=manifest(*bomb, max_processes=ALLOWED))
    assert ran.outcome == "processes", ran.story
    assert box.run("true", manifest=manifest()).exited(0)
    if outer.folder is not None:
        assert not outer.reached


def test_a_bomb_in_a_persistent_sandbox_leaves_the_others_alone(
    limited: tuple[Box, OuterLimit], build: Build
) -> None:
    box, _ = limited
    bomb = build("fork_bomb")
    made = box.connection.call(
        "sandbox/create", {"manifest": manifest(*bomb, max_processes=ALLOWED)}
    )
    inside = {"sandbox": made["sandbox"]}
    try:
        assert box.run("sh", "-c", "sleep 30 & echo $!", **inside).exited(0)
        ran = box.run(*bomb, "grows", **inside)
        assert ran.outcome == "processes", ran.story
        ran = box.run("sh", "-c", "grep -l sleep /proc/[0-9]*/comm | wc -l", **inside)
        assert int(ran.stdout) >= 1, ran.story
    finally:
        box.connection.call("sandbox/destroy", inside)


def test_a_bomb_is_ended_where_there_is_no_cgroup(
    uncontrolled: tuple[Box, OuterLimit], build: Build
) -> None:
    """Stopped before it is killed: it does not outrun those who count it."""
    box, _ = uncontrolled
    bomb = build("fork_bomb")
    ran = box.run(*bomb, "grows", manifest=manifest(*bomb, max_processes=ALLOWED))
    assert ran.outcome == "processes", ran.story
    rooted = os.geteuid() == 0
    firm = not rooted and box.backend == "bubblewrap"
    assert ran.enforcement["max_processes"] == ("enforced" if firm else "best_effort")
    assert box.run("true", manifest=manifest()).exited(0)


@pytest.mark.requires("root")  # a user has no cgroup here
def test_a_command_does_not_leave_its_cgroup(limited: tuple[Box, OuterLimit]) -> None:
    """Root's processes may write to cgroup.procs wherever the file can be opened."""
    box, outer = limited
    assert outer.folder is not None
    attack = python("""
        import glob
        refused = []
        for path in [args[0], *glob.glob("/sys/fs/cgroup/*/cgroup.procs")]:
            try:
                with open(path, "w") as file:
                    file.write("0")
                worked(path)
            except OSError as error:
                refused.append(error.errno)
        blocked(refused)
    """)
    with outer_limit(50) as other:
        done = run_within(other, [*attack, str(PIDS / "cgroup.procs")])
        assert verdict_of(done).worked
    assert box.attack(attack, str(PIDS / "cgroup.procs")).blocked


def test_the_default_of_the_presets_holds(build: Build, backend: str) -> None:
    """With room above it in the outer limit."""
    bomb = build("fork_bomb")
    room = DEFAULT_PROCESSES + 1500
    with outer_limit(room) as outer:
        prefix = () if os.geteuid() == 0 else outer.prefix
        with running_backend(backend, prefix=prefix) as daemon:
            if os.geteuid() == 0:
                (own,) = PIDS.glob(f"{cgroup_v1.PREFIX}{daemon.pid}-*")
                (own / "pids.max").write_text(str(room))
            with closing(Box(backend, daemon)) as box:
                seen = {"fs_read_allow": list(bomb)}
                ran = box.run(*bomb, "forks", str(room * 2), preset="read-only", manifest=seen)
                assert ran.outcome == "processes" or ran.exited(43), ran.story
                # Best effort: what others run on the machine is room for the bomb too.
                if ran.exited(43) and ran.enforcement["max_processes"] == "enforced":
                    assert int(ran.stdout.split()[1]) <= DEFAULT_PROCESSES + AROUND, ran.stdout
                assert box.run("true", preset="read-only").exited(0)


@pytest.mark.requires("root")  # cgroups of v1 are root's
def test_no_cgroup_is_left_behind(backend: str) -> None:
    assert not isinstance(cgroup_v1.find(), NotDelegated)
    with running_backend(backend) as daemon:
        with closing(Box(backend, daemon)) as box:
            assert box.run("true", preset="read-only").exited(0)
        own = list(PIDS.glob(f"{cgroup_v1.PREFIX}{daemon.pid}-*"))
        assert own
    until = time.monotonic() + 5
    while any(map(Path.exists, own)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(Path.exists, own))
