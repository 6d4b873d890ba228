"""Which processes belong to a sandbox, on a system without pid namespaces and cgroups.

A process cannot leave its sandbox, and no other may look up the service that is named by the
sandbox's tag. So every process of the user that may do so is a member, also after a double fork
and setsid. `sandbox_check` is not documented (WebKit and dyld use it): the backend's probe makes
sure that it finds a process that left its group.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterable
from functools import cached_property
from typing import Protocol

import msgspec


class LivingUsage(msgspec.Struct, frozen=True):
    """The sum over processes that are alive; CPU time also of their children that they reaped."""

    processes: int = 0
    memory_bytes: int = 0
    cpu_s: float = 0.0


class Census(Protocol):
    def members(self, tag: str, uid: int) -> list[int]:
        """The living processes of this user in the sandbox of this tag; none of them a zombie."""

    def usage(self, pids: Iterable[int]) -> LivingUsage:
        """What they use now. Those that have ended meanwhile count as nothing."""


_PROC_UID_ONLY = 4
_RUSAGE_INFO_V1 = 1
_RUSAGE_BYTES = 144
_FILTER_GLOBAL_NAME = 2
_NO_REPORT = 0x40000000
_ROOM = 4096
# No profile of ours allows it.
_UNUSED_NAME = "dev.sandboxd.in-no-profile"


class SandboxCensus:
    """By libproc and libsystem_sandbox. macOS only: elsewhere the libraries are not there."""

    @cached_property
    def _lib(self) -> ctypes.CDLL:
        if sys.platform != "darwin":
            raise OSError("processes are found by their sandbox on macOS only")
        lib = ctypes.CDLL("/usr/lib/libSystem.B.dylib", use_errno=True)
        # The fourth argument is variadic, and must not be in argtypes: on arm64 variadic arguments
        # are passed in another place.
        lib.sandbox_check.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int)
        lib.sandbox_check.restype = ctypes.c_int
        lib.proc_listpids.argtypes = (
            ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int,
        )  # fmt: skip
        lib.proc_pid_rusage.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
        return lib

    def sandboxed(self, pid: int) -> bool:
        return bool(self._lib.sandbox_check(pid, None, 0) == 1)

    def is_member(self, pid: int, tag: str) -> bool:
        """Other sandboxes may allow every name: those also allow a name that no sandbox has."""
        return self.sandboxed(pid) and self._finds(pid, tag) and not self._finds(pid, _UNUSED_NAME)

    def _finds(self, pid: int, service: str) -> bool:
        kind = _FILTER_GLOBAL_NAME | _NO_REPORT
        name = ctypes.c_char_p(service.encode())
        return bool(self._lib.sandbox_check(pid, b"mach-lookup", kind, name) == 0)

    def members(self, tag: str, uid: int) -> list[int]:
        return [pid for pid in self._processes(uid) if self.is_member(pid, tag)]

    def _processes(self, uid: int) -> list[int]:
        room = _ROOM
        while True:
            pids = (ctypes.c_int * room)()
            size = ctypes.sizeof(pids)
            filled = self._lib.proc_listpids(_PROC_UID_ONLY, uid, ctypes.byref(pids), size)
            if filled < 0:
                raise OSError(ctypes.get_errno(), "the processes cannot be listed")
            if filled < size:
                return [pid for pid in pids[: filled // ctypes.sizeof(ctypes.c_int)] if pid > 0]
            room *= 2

    def usage(self, pids: Iterable[int]) -> LivingUsage:
        found = [one for pid in pids if (one := self._one(pid)) is not None]
        return LivingUsage(len(found), sum(m for m, _ in found), sum(c for _, c in found))

    def _one(self, pid: int) -> tuple[int, float] | None:
        buffer = ctypes.create_string_buffer(_RUSAGE_BYTES)
        if self._lib.proc_pid_rusage(pid, _RUSAGE_INFO_V1, buffer) != 0:
            return None
        return decode_rusage(buffer.raw, self._tick_s)

    @cached_property
    def _tick_s(self) -> float:
        """Times are in units of the machine's clock: 1 ns on Intel, 125/3 ns on Apple silicon."""
        ratio = (ctypes.c_uint32 * 2)()
        self._lib.mach_timebase_info(ctypes.byref(ratio))
        return ratio[0] / ratio[1] / 1e9 if ratio[1] else 1e-9


def decode_rusage(raw: bytes, tick_s: float) -> tuple[int, float]:
    """(footprint in bytes, CPU seconds with reaped children) of a `struct rusage_info_v1`.

    uuid[16], user, system, two wake-up counters, pageins, wired, resident, footprint, start and
    exit time, then the children's user and system time: all of them 64 bits.
    """
    user, system = struct.unpack_from("=QQ", raw, 16)
    (footprint,) = struct.unpack_from("=Q", raw, 72)
    child_user, child_system = struct.unpack_from("=QQ", raw, 96)
    return footprint, (user + system + child_user + child_system) * tick_s
