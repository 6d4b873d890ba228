"""The daemon's side of a template (init/template.c): each sandbox is a clone of its process.

A request carries the control socket of the new init. It can be sent before the template is
up: the socket queues it. The answer brings the pidfd of the init, in the order of the requests.

Where a sandbox needs a cgroup the template enters it, and the clone starts in it. It enters the one
for the next clone right after a clone, because the kernel takes ten milliseconds for it.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import anyio

from sandboxd import event_loop
from sandboxd.linux.cgroup.cgroups import Cgroups
from sandboxd.linux.cgroup.sandbox_process_limit import SandboxCgroup
from sandboxd.linux.init_client import codec, seqpacket
from sandboxd.linux.init_client import messages as wire
from sandboxd.linux.spawn import Helper, has_ended


class NoCgroup(Exception):
    """The kernel made none for the next clone."""


class Clone:
    """The init of one sandbox, as `Helper` is for a program that the daemon started itself.
    `cgroup`: the one that it starts in."""

    def __init__(self, template: Template, cgroup: SandboxCgroup | None) -> None:
        self._template = template
        self.cgroup = cgroup
        self.error = 0
        self._pidfd: int | None = None
        self._is_answered = False
        self._waiting: anyio.Event | None = None
        self._given_up = False

    def answer(self, error: int, pidfd: int | None) -> None:
        self.error = error
        self._pidfd = pidfd
        self._answered()
        if self._given_up:
            self.kill()
            self._close()

    def _answered(self) -> None:
        self._is_answered = True
        if self._waiting is not None:
            self._waiting.set()

    async def _answer(self) -> None:
        if not self._is_answered:
            self._template.take_answers()
        if not self._is_answered:
            self._template.listen()
            self._waiting = self._waiting or anyio.Event()
            await self._waiting.wait()

    async def came_up(self) -> int:
        """0, or the error. Without its pidfd the init could not be ended for certain."""
        await self._answer()
        return self.error if self._pidfd is not None else self.error or errno.ESRCH

    async def ended(self) -> int:
        await self._answer()
        while self.poll() is None and self._pidfd is not None:
            await event_loop.wait_readable(self._pidfd)
            self._close()
        return 0

    def poll(self) -> int | None:
        over = self._given_up or (self._is_answered and self._pidfd is None)
        return 0 if over else None

    def kill(self) -> None:
        """Before there was an answer: the template, which does not answer. An init that comes up
        all the same finds its socket closed, and is killed."""
        if not self._is_answered:
            self._template.take_answers()
        if not self._is_answered:
            self._given_up = True
            self._answered()
            self._template.give_up()
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def is_dead(self) -> bool:
        return self._pidfd is None or has_ended(self._pidfd)

    def _close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
        self._pidfd = None


class Template:
    """`helper`: the bwrap around it. `errors`: what bwrap wrote, for reading without blocking.
    `cgroups`: where each clone gets a cgroup; None where it needs none."""

    def __init__(
        self, helper: Helper, control: socket.socket, errors: int, release: Callable[[], None],
        cgroups: Cgroups | None = None,
    ) -> None:  # fmt: skip
        self._cgroups = cgroups
        self._next_cgroup: SandboxCgroup | None = None
        self._helper = helper
        self._release = release
        self._ended = anyio.Event()
        self._control = control
        self._waiting: deque[Clone] = deque()
        self._has_answered = False
        self._errors = errors
        self._said = ""
        self.is_alive = True
        self._is_heard = False
        event_loop.add_end_reader(control.fileno(), self._receive)

    def listen(self) -> None:
        """Until all is answered. Most answers are there when their init is ready, which is waited
        for: they need not wake the event loop."""
        if not self._is_heard and self._control.fileno() >= 0:
            self._is_heard = True
            event_loop.add_reader(self._control, self._receive)

    def _listen_no_more(self) -> None:
        if self._is_heard:
            self._is_heard = False
            event_loop.add_end_reader(self._control.fileno(), self._receive)

    def clone(self, theirs: socket.socket) -> Clone:
        """BlockingIOError where the template does not read, NoCgroup where a clone would be in
        another one's. Whoever waits for the clone finds out that the template is gone."""
        self._enter_cgroup()
        if self._cgroups is not None and self._next_cgroup is None and self.is_alive:
            raise NoCgroup
        # The clone's alone from here on: closing a template that has ended lets go of the next one.
        cgroup, self._next_cgroup = self._next_cgroup, None
        clone = Clone(self, cgroup)
        self._waiting.append(clone)
        try:
            seqpacket.send_at_once(self._control, wire.CloneRequest(), [theirs.fileno()])
        except BlockingIOError:
            self._waiting.pop()
            self._next_cgroup = cgroup
            raise
        except OSError:
            self.close()
        event_loop.call_soon(self._enter_cgroup)
        return clone

    def _enter_cgroup(self) -> None:
        """Let it enter the cgroup of the next clone, unless it has."""
        if self._cgroups is None or self._next_cgroup is not None or not self.is_alive:
            return
        cgroup = self._cgroups.make_for_sandbox()
        if cgroup is None:
            return
        try:
            seqpacket.send_at_once(self._control, wire.EnterRequest(), [cgroup.entrance])
        except OSError as error:
            self._cgroups.let_go(cgroup)
            if not isinstance(error, BlockingIOError):
                self.close()
            return
        cgroup.close_entrance()
        self._next_cgroup = cgroup

    def take_answers(self) -> None:
        """What has arrived, for a caller that cannot wait for the event loop."""
        while self._waiting and self._receive():
            pass

    def _receive(self) -> bool:
        """Whether there was an answer."""
        try:
            data, pidfd = seqpacket.take_with_descriptor(self._control)
        except BlockingIOError:
            return False
        except OSError:
            data, pidfd = b"", None
        with suppress(codec.InitProtocolViolation):
            answer = codec.decode_control(data)
            if isinstance(answer, wire.Cloned) and self._waiting:
                self._has_answered = True
                error = answer.errno or (errno.EMFILE if pidfd is None else 0)
                self._waiting.popleft().answer(error, pidfd)
                if not self._waiting:
                    (self._listen_no_more if self.is_alive else self._finish)()
                return True
        if pidfd is not None:
            os.close(pidfd)
        for clone in self._waiting:
            clone.answer(0, None)
        self._waiting.clear()
        self.close()
        return False

    def close(self) -> None:
        """No further clones; those that were asked for are made and answered. The process ends
        after its last sandbox, and is reaped then."""
        if self.is_alive:
            self.is_alive = False
            with suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
            self._helper.reap_later(self._end)
        if not self._waiting:
            self._finish()
        else:
            self.listen()

    def _finish(self) -> None:
        if self._control.fileno() >= 0:
            event_loop.remove_reader(self._control)
            self._control.close()
            self.said()
            os.close(self._errors)
            self._errors = -1

    def said(self) -> str:
        """What bwrap has written to stderr."""
        if self._errors >= 0 and not self._said:
            with suppress(OSError):
                self._said = os.read(self._errors, 4096).decode(errors="replace").strip()
        return self._said

    def give_up(self) -> None:
        """It does not answer. Where it never did, bwrap hangs, and no sandbox depends on it."""
        if not self._has_answered:
            self.kill()
        self.close()

    def kill(self) -> None:
        """With all its sandboxes."""
        self._helper.kill()

    def _end(self) -> None:
        if self._cgroups is not None and self._next_cgroup is not None:
            self._cgroups.let_go(self._next_cgroup)
            self._next_cgroup = None
        self._release()
        self._ended.set()

    async def ended(self) -> int:
        """After `close`: the wait status of bwrap."""
        await self._ended.wait()
        return await self._helper.ended()
