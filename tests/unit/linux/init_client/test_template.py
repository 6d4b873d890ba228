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
    "/usr/bin/bwrap", "--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0",
    "--cap-add", "ALL", "--die-with-parent", "--new-session", "--clearenv", "--as-pid-1",
    "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--",
]  # fmt: skip
PATIENCE_S = 60


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
        own = [str(os.getuid()), str(os.getgid()), "n", "1048576", "1777", "/tmp", "--"]
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


async def ready(control: socket.socket) -> wire.Control:
    setup = wire.Setup(flags=wire.SetupFlag.REQUIRE_PID1)
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
