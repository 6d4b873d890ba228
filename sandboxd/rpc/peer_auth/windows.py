"""Identify the client of a named pipe by its token, not by its pid.

The daemon takes on the client's identity for a moment (the client permits identification only),
reads user, integrity and AppContainer from that token, and drops it again. A client in one of the
daemon's own jobs is a sandboxed command.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from ctypes import c_uint32

import pywintypes
import win32api
import win32security

from sandboxd.rpc.peer_auth.windows_rules import PeerToken, refuse
from sandboxd.windows import api, tokens
from sandboxd.windows.job_objects.running_jobs import in_running_job
from sandboxd_proto.errors import Unauthorized

assert sys.platform == "win32"

log = logging.getLogger(__name__)
_QUERY, _QUERY_LIMITED = 0x400, 0x1000


def pid_of(pipe: int) -> int | None:
    """For messages only: a client can forge it."""
    pid = c_uint32()
    return pid.value if api.GetNamedPipeClientProcessId(pipe, ctypes.byref(pid)) else None


def refusal(pipe: int) -> Unauthorized | None:
    """Why this peer is refused; None if it is accepted. After its first bytes were read."""
    try:
        token = _token(pipe)
    except (pywintypes.error, OSError) as error:
        return Unauthorized(f"the peer does not let itself be identified: {error}")
    return refuse(token, tokens.current_user(), tokens.current_integrity(), _in_our_job(pipe))


def _token(pipe: int) -> PeerToken:
    win32security.ImpersonateNamedPipeClient(pipe)
    try:
        token = win32security.OpenThreadToken(
            win32api.GetCurrentThread(), win32security.TOKEN_QUERY, True
        )
        return PeerToken(
            user=tokens.user_of(int(token)),
            integrity=tokens.integrity_of(int(token)),
            app_container=tokens.is_app_container(int(token)),
        )
    finally:
        _revert()


def _revert() -> None:
    """A daemon that went on with a client's identity would act for that client: it ends."""
    try:
        win32security.RevertToSelf()
    except BaseException:
        log.critical("the identity of a client could not be dropped: the daemon ends")
        os._exit(70)


def _in_our_job(pipe: int) -> bool | None:
    """None where the process cannot be looked at."""
    pid = pid_of(pipe)
    if not pid:
        return None
    # A process of higher integrity shows the limited facts only, which are enough on Windows.
    handle = api.OpenProcess(_QUERY, 0, pid) or api.OpenProcess(_QUERY_LIMITED, 0, pid)
    if not handle:
        return None
    try:
        return in_running_job(handle)
    finally:
        api.close(handle)
