"""Apply an access plan: journal it, write it, read it back. Pure but for the store it is given."""

from __future__ import annotations

from itertools import groupby
from typing import Protocol

from sandboxd.windows.access_lists.acl_plan import AclEntry, AclPlan
from sandboxd.windows.access_lists.journal import Journal, Store


class EntryStore(Store, Protocol):
    """Access lists that can be read and written."""

    def entries(self, path: str, sid: str) -> tuple[AclEntry, ...]: ...
    def write(self, path: str, sid: str, wanted: tuple[AclEntry, ...]) -> None: ...


class GrantError(Exception):
    """An entry could not be written or was not there afterwards. Nothing may run."""


def apply(plan: AclPlan, store: EntryStore, journal: Journal) -> None:
    """Every entry of the plan stands on its file when it returns; GrantError otherwise.

    Entries stay until the daemon ends: the next sandbox of the same workspace finds them.
    """
    for (path, sid), group in groupby(plan.entries, key=lambda entry: (entry.path, entry.sid)):
        wanted = tuple(group)
        try:
            with store.locked(path):
                _apply_one(path, sid, wanted, store, journal)
        except OSError as error:
            raise GrantError(f"the access list of {path} cannot be changed: {error}") from None


def _apply_one(
    path: str, sid: str, wanted: tuple[AclEntry, ...], store: EntryStore, journal: Journal
) -> None:
    before = store.entries(path, sid)
    # Sandboxes of one workspace share a capability: what one denies, another must not permit.
    wanted = (*wanted, *(one for one in before if one.kind == "deny" and one not in wanted))
    if set(before) == set(wanted):
        return
    identity = store.file_id(path)
    if identity is None:
        raise GrantError(f"{path} does not exist any more")
    prior = tuple(f"{one.kind}:{one.mask:#x}:{one.inheritance:#x}" for one in before)
    journal.announce("acl", path, sid=sid, file_id=identity, prior=prior)
    store.write(path, sid, wanted)
    if set(store.entries(path, sid)) != set(wanted):
        raise GrantError(f"the access list of {path} does not say back what was written")
