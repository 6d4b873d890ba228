"""A template that is closed: what was asked of it is answered, and no init is left alone."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

if sys.platform != "linux":
    pytest.skip("templates are Linux's", allow_module_level=True)

from sandboxd.linux.init_client import binary, codec, seqpacket
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.init_client.launch import LaunchFailed, start_template
from sandboxd.linux.init_client.template import Clone, Template
from sandboxd.linux.spawn import spawn

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.isolation]
BWRAP = [
    "/usr/bin/bwrap", "--unshare-all", "--unshare-user", "--cap-add", "ALL",
    "--die-with-parent", "--new-session", "--clearenv", "--as-pid-1",
    "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--tmpfs", "/dev", "--dir", "/dev/pts",
    "--tmpfs", "/tmp", "--",
]  # fmt: skip
PATIENCE_S = 60
# nsenter would need a umount in there.
UNMOUNT = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
namespace = os.open(sys.argv[1], os.O_RDONLY)
sys.exit(libc.setns(namespace, 0) != 0 or libc.umount2(b"/tmp", 0) != 0)
"""


def children(pid: int) -> list[int]:
    try:
        return [int(w) for w in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class Running:
    """A template with its process, and whether it was released."""

    def __init__(self) -> None:
        self.released = False
        program = binary.load()
        own = ["n", "1048576", "1777", "/tmp", "--"]
        line = [*BWRAP, f"/proc/self/fd/{program}"]
        self.template = start_template(line, own, [program], self._release)
        os.close(program)

    def _release(self) -> None:
        self.released = True

    def clone(self) -> tuple[Clone, socket.socket]:
        control, theirs = seqpacket.pair()
        with theirs:
            return self.template.clone(theirs), control

    async def pid(self) -> int:
        """When the template itself runs."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                for found in children(self.template._helper.pid):
                    if name_of(found) == "sandboxd-init":
                        return found
                await anyio.sleep(0.01)

    async def ended(self) -> None:
        with anyio.fail_after(PATIENCE_S):
            await self.template.ended()
        assert self.released


PLAIN = wire.Setup(flags=wire.SetupFlag.REQUIRE_PID1)


async def ready(control: socket.socket, setup: wire.Setup = PLAIN) -> wire.Control:
    with anyio.fail_after(PATIENCE_S):
        await seqpacket.send(control, setup)
        return codec.decode_control(await seqpacket.receive(control))


def test_a_clone_that_was_asked_for_comes_up_and_can_be_ended() -> None:
    async def work() -> None:
        running = Running()
        first, first_control = running.clone()
        assert isinstance(await ready(first_control), wire.Ready)
        second, second_control = running.clone()
        running.template.close()
        assert isinstance(await ready(second_control), wire.Ready)
        with anyio.fail_after(PATIENCE_S):
            assert await second.came_up() == 0
            assert second.poll() is None
            second.kill()
            await second.ended()
            assert await seqpacket.receive(second_control) == b""
        assert first.poll() is None  # others go on
        first_control.close()
        with anyio.fail_after(PATIENCE_S):
            await first.ended()
        second_control.close()
        await running.ended()

    anyio.run(work)


def namespaces(pid: int) -> set[str]:
    return {os.readlink(f"/proc/{pid}/ns/{name}") for name in ("net", "ipc", "uts")}


def has_loopback(pid: int) -> bool:
    return "127.0.0.1" in Path(f"/proc/{pid}/net/fib_trie").read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can look into an init")
def test_no_clone_has_namespaces_of_another_or_of_the_template() -> None:
    """Whether they were made ahead or for it."""

    async def work() -> None:
        running = Running()
        controls: list[socket.socket] = []
        for pause in (0.0, 0.0, 0.1, 0.0, 0.1):
            await anyio.sleep(pause)
            clone, control = running.clone()
            controls.append(control)
            assert isinstance(await ready(control), wire.Ready)
            assert await clone.came_up() == 0
        await anyio.sleep(0.1)
        template = await running.pid()
        pids = children(template)
        assert len(pids) == len(controls)
        found = [namespaces(pid) for pid in (os.getpid(), template, *pids)]
        assert len(set.union(*found)) == 3 * len(found)
        assert all(map(has_loopback, pids))
        for control in controls:
            control.close()
        running.template.close()
        await running.ended()

    anyio.run(work)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can unmount in a clone")
def test_a_mount_that_is_lost_right_after_the_setup_ends_the_clone() -> None:
    """Before the table of mounts was read, and after it."""

    async def work(pause_s: float) -> None:
        running = Running()
        _, control = running.clone()
        setup = wire.Setup(
            flags=wire.SetupFlag.REQUIRE_PID1 | wire.SetupFlag.WATCH_MOUNTS,
            checks=[wire.Check(path="/tmp", device=0, inode=0)],
        )
        assert isinstance(await ready(control, setup), wire.Ready)
        await anyio.sleep(pause_s)
        [init] = children(await running.pid())
        os.kill(init, signal.SIGSTOP)
        await anyio.run_process([sys.executable, "-c", UNMOUNT, f"/proc/{init}/ns/mnt"])
        os.kill(init, signal.SIGCONT)
        with anyio.fail_after(PATIENCE_S):
            lost = codec.decode_control(await seqpacket.receive(control))
        assert lost == wire.IsolationLost("/tmp")
        control.close()
        running.template.close()
        await running.ended()

    anyio.run(work, 0.0)
    anyio.run(work, 0.1)


def test_a_clone_that_was_given_up_ends_when_the_template_answers_after_all() -> None:
    async def work() -> None:
        running = Running()
        _, first_control = running.clone()
        assert isinstance(await ready(first_control), wire.Ready)
        pid = await running.pid()
        before = children(pid)
        os.kill(pid, signal.SIGSTOP)
        late, late_control = running.clone()
        late.kill()
        with anyio.fail_after(PATIENCE_S):
            await late.ended()  # whoever waited for it goes on
        os.kill(pid, signal.SIGCONT)
        with anyio.fail_after(PATIENCE_S):
            while await seqpacket.receive(late_control) != b"":  # its init is gone
                pass
            while children(pid) != before:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        for control in (first_control, late_control):
            control.close()
        await running.ended()

    anyio.run(work)


def test_without_its_cgroup_there_is_no_clone() -> None:
    """It would be in that of another sandbox. Once it can be entered there are clones again."""

    async def work() -> None:
        running = Running()
        read_only = os.open("/dev/null", os.O_RDONLY)  # what cannot be written is not entered
        writable = os.open("/dev/null", os.O_WRONLY)
        for entrance, expected in ((read_only, errno.EBADF), (writable, 0)):
            seqpacket.send_at_once(running.template._control, wire.EnterRequest(), [entrance])
            clone, control = running.clone()
            with anyio.fail_after(PATIENCE_S):
                assert await clone.came_up() == expected
            control.close()
            os.close(entrance)
        running.template.close()
        await running.ended()

    anyio.run(work)


def test_a_template_that_cannot_be_started_releases_what_it_holds() -> None:
    released: list[bool] = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(LaunchFailed):
            start_template(BWRAP, [], [], lambda: released.append(True))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert released == [True]


@contextmanager
def answering() -> Iterator[tuple[Clone, socket.socket]]:
    """A clone, and the template's side of the socket, from which it is answered here."""
    control, theirs = seqpacket.pair()
    errors, stderr = os.pipe()
    os.set_blocking(errors, False)
    helper = spawn(["/bin/sleep", "600"], {}, [], stderr=stderr)
    os.close(stderr)
    template = Template(helper, control, errors, lambda: None)
    ours, init = seqpacket.pair()
    try:
        with theirs, ours, init:
            yield template.clone(init), theirs
    finally:
        template.kill()
        template.close()


CLONED = struct.pack("<BBHII", 69, 0, 0, 4, 0)  # without an error


def test_an_answer_without_a_pidfd_is_a_failure() -> None:
    async def work() -> None:
        with answering() as (clone, template):
            template.send(CLONED)
            with anyio.fail_after(PATIENCE_S):
                assert await clone.came_up() == errno.EMFILE
            assert clone.poll() == 0

    anyio.run(work)


def test_an_answer_whose_pidfd_has_no_room_is_a_failure() -> None:
    """The kernel delivers the message without it."""

    async def work() -> None:
        with answering() as (clone, template):
            pidfd = os.pidfd_open(os.getpid())
            socket.send_fds(template, [CLONED], [pidfd])
            os.close(pidfd)
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            try:
                clone._template.take_answers()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            with anyio.fail_after(PATIENCE_S):
                assert await clone.came_up() == errno.EMFILE

    anyio.run(work)


def test_control_with_a_pidfd_it_is_up() -> None:
    async def work() -> None:
        with answering() as (clone, template):
            pidfd = os.pidfd_open(os.getpid())
            socket.send_fds(template, [CLONED], [pidfd])
            os.close(pidfd)
            with anyio.fail_after(PATIENCE_S):
                assert await clone.came_up() == 0
            assert clone.poll() is None

    anyio.run(work)


def test_a_template_that_ends_ends_its_clones() -> None:
    async def work() -> None:
        with answering() as (clone, template):
            template.close()
            with anyio.fail_after(PATIENCE_S):
                assert await clone.came_up() == errno.ESRCH
                await clone.ended()

    anyio.run(work)
