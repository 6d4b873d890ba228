"""Write a plan's access-control entries, and read them back. What is not there is not granted.

pywin32 has the calls. Entries of other SIDs stay as they are: an entry that exists already (an
earlier sandbox of the same workspace wrote it) is not written again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pywintypes
import win32security

from sandboxd.platform.windows.paths import native
from sandboxd.windows.access_lists.acl_plan import ALL, AclEntry, Kind
from sandboxd.windows.access_lists.mutex import NamedMutex
from sandboxd.windows.tokens import current_user

assert sys.platform == "win32"

LOCK_S = 30.0  # writing a list walks everything below a folder
_DACL = win32security.DACL_SECURITY_INFORMATION
_FILE = win32security.SE_FILE_OBJECT
_ALLOW, _DENY = 0, 1  # ACCESS_ALLOWED_ACE_TYPE, ACCESS_DENIED_ACE_TYPE
_INHERITED_ACE = 0x10


class AclStore:
    """The files' real access lists."""

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """A mutex of the user for each path, in all of the machine's sessions."""
        name = hashlib.sha256(f"{current_user()} {path.lower()}".encode()).hexdigest()[:40]
        mutex = NamedMutex(f"Global\\sandboxd-acl-{name}")
        try:
            if not mutex.acquire(wait_s=LOCK_S):
                raise OSError(errno.EBUSY, "another daemon changes its access list", path)
            yield
        finally:
            mutex.close()

    def file_id(self, path: str) -> str | None:
        try:
            found = os.lstat(native(path))
        except OSError:
            return None
        return f"{found.st_dev}:{found.st_ino}"

    def entries(self, path: str, sid: str) -> tuple[AclEntry, ...]:
        """The explicit entries of this SID. OSError where they cannot be read."""
        found: list[AclEntry] = []
        for (kind, flags), mask, owner in _aces(path):
            if flags & _INHERITED_ACE or kind not in (_ALLOW, _DENY):
                continue
            if win32security.ConvertSidToStringSid(owner) == sid:
                name: Kind = "allow" if kind == _ALLOW else "deny"
                found.append(AclEntry(path, sid, name, mask & ALL, flags & 0x3))
        return tuple(found)

    def holds(self, entry: AclEntry) -> bool:
        return entry in self.entries(entry.path, entry.sid)

    def write(self, path: str, sid: str, wanted: tuple[AclEntry, ...]) -> None:
        """Replace every explicit entry of `sid` on `path` by these; denials come first."""
        try:
            self._write(path, sid, wanted)
        except pywintypes.error as error:
            raise OSError(error.winerror, error.strerror, path) from None

    def _write(self, path: str, sid: str, wanted: tuple[AclEntry, ...]) -> None:
        trustee = win32security.ConvertStringSidToSid(sid)
        made = win32security.ACL()
        kept = [ace for ace in _aces(path) if not ace[0][1] & _INHERITED_ACE and ace[2] != trustee]
        denied = [(e.inheritance, e.mask) for e in wanted if e.kind == "deny"]
        allowed = [(e.inheritance, e.mask) for e in wanted if e.kind == "allow"]
        revision = win32security.ACL_REVISION
        for (kind, flags), mask, owner in kept:
            if kind == _DENY:
                made.AddAccessDeniedAceEx(revision, flags, mask, owner)
        for flags, mask in denied:
            made.AddAccessDeniedAceEx(revision, flags, mask, trustee)
        for (kind, flags), mask, owner in kept:
            if kind == _ALLOW:
                made.AddAccessAllowedAceEx(revision, flags, mask, owner)
        for flags, mask in allowed:
            made.AddAccessAllowedAceEx(revision, flags, mask, trustee)
        win32security.SetNamedSecurityInfo(native(path), _FILE, _DACL, None, None, made, None)

    def restore(self, path: str, sid: str, prior: tuple[str, ...]) -> None:
        self.write(path, sid, tuple(decode(path, sid, text) for text in prior))

    def delete_profile(self, name: str) -> None:
        from sandboxd.windows.app_containers.profiles import delete_profile

        delete_profile(name)


def _aces(path: str) -> list[tuple[tuple[int, int], int, object]]:
    try:
        descriptor = win32security.GetNamedSecurityInfo(native(path), _FILE, _DACL)
    except pywintypes.error as error:
        raise OSError(error.winerror, error.strerror, path) from None
    dacl = descriptor.GetSecurityDescriptorDacl()
    if dacl is None:
        return []
    return [dacl.GetAce(index)[:3] for index in range(dacl.GetAceCount())]


def encode(entry: AclEntry) -> str:
    """For the journal."""
    return f"{entry.kind}:{entry.mask:#x}:{entry.inheritance:#x}"


def decode(path: str, sid: str, text: str) -> AclEntry:
    kind, mask, inheritance = text.split(":")
    name: Kind = "deny" if kind == "deny" else "allow"
    return AclEntry(path, sid, name, int(mask, 16), int(inheritance, 16))
