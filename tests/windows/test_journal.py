"""A daemon killed between any two writes leaves nothing behind after the next start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandboxd.windows.access_lists.acl_plan import INHERITED, READ, WRITE, AclEntry, AclPlan, Kind
from sandboxd.windows.access_lists.granting import GrantError, apply
from sandboxd.windows.access_lists.journal import ASIDE, Change, Journal, Owner, read, recover

ME = Owner(4711, 99)


class Killed(BaseException):
    """The process ends here: nothing after it happens."""


@dataclass
class Disk:
    """Access lists and profiles, and how many writes are left until the power goes."""

    acls: dict[str, set[AclEntry]] = field(default_factory=dict)
    profiles: set[str] = field(default_factory=set)
    left: int = 10**9
    forgets: bool = False
    broken: set[str] = field(default_factory=set)
    held: str | None = None

    def spend(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        assert self.held is None, "one list at a time"
        self.held = path
        try:
            yield
        finally:
            self.held = None

    def file_id(self, path: str) -> str | None:
        return f"id of {path}" if path in self.acls else None

    def entries(self, path: str, sid: str) -> tuple[AclEntry, ...]:
        return tuple(sorted(e for e in self.acls[path] if e.sid == sid))

    def write(self, path: str, sid: str, wanted: tuple[AclEntry, ...]) -> None:
        assert self.held == path, "written without its mutex"
        self.spend()
        if path in self.broken:
            raise OSError("the disk is read-only")
        others = {e for e in self.acls[path] if e.sid != sid}
        self.acls[path] = others | (set() if self.forgets else set(wanted))

    def restore(self, path: str, sid: str, prior: tuple[str, ...]) -> None:
        self.write(path, sid, tuple(_decoded(path, sid, text) for text in prior))

    def delete_profile(self, name: str) -> None:
        self.spend()
        self.profiles.discard(name)


def _decoded(path: str, sid: str, text: str) -> AclEntry:
    kind, mask, inheritance = text.split(":")
    name: Kind = "deny" if kind == "deny" else "allow"
    return AclEntry(path, sid, name, int(mask, 16), int(inheritance, 16))


FOREIGN = AclEntry("/C:/w", "S-1-5-32", "allow", READ, INHERITED)
OLD = AclEntry("/C:/w", "S-cap", "allow", READ, INHERITED)
PLAN = AclPlan(
    (
        AclEntry("/C:/w", "S-cap", "allow", WRITE, INHERITED),
        AclEntry("/C:/w/.git", "S-cap", "deny", 0x2, INHERITED),
    ),
    frozenset({"S-cap"}),
)


def disk(**more: object) -> Disk:
    return Disk(acls={"/C:/w": {FOREIGN, OLD}, "/C:/w/.git": set()}, **more)  # type: ignore[arg-type]


def life(folder: str, found: Disk) -> None:
    """What a daemon does with one sandbox, from its start to its end."""
    journal = Journal(folder, ME)
    journal.announce("profile", "sandboxd.x")
    found.spend()
    found.profiles.add("sandboxd.x")
    apply(PLAN, found, journal)
    journal.undo_all(found)
    journal.close()


def writes_of_a_life(tmp_path: Path) -> int:
    found = disk()
    life(str(tmp_path / "whole"), found)
    return 10**9 - found.left


def test_an_undisturbed_life_leaves_nothing(tmp_path: Path) -> None:
    found = disk()
    life(str(tmp_path), found)
    assert found.acls == disk().acls
    assert not found.profiles
    assert os.listdir(tmp_path) == []


@pytest.mark.posix  # the dead daemon's handle is open in this very process
def test_a_daemon_killed_before_any_write_is_recovered(tmp_path: Path) -> None:
    for count in range(writes_of_a_life(tmp_path)):
        folder = tmp_path / f"killed-{count}"
        found = disk(left=count)
        with pytest.raises(Killed):
            life(str(folder), found)
        found.left = 10**9
        assert recover(str(folder), lambda owner: False, found) == []
        assert found.acls == disk().acls
        assert not found.profiles
        assert os.listdir(folder) == []


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_line_that_was_not_written_whole_was_not_acted_upon(tmp_path: Path, cut: int) -> None:
    journal = Journal(str(tmp_path), ME)
    journal.announce("acl", "/C:/w", sid="S-cap", file_id="id of /C:/w")
    whole = Path(journal.path).read_bytes()
    journal.announce("acl", "/C:/w/.git", sid="S-cap", file_id="id of /C:/w/.git")
    Path(journal.path).write_bytes(whole + Path(journal.path).read_bytes()[len(whole) :][:cut])
    owner, changes = read(journal.path)
    assert owner == ME
    assert [change.path for change in changes] == ["/C:/w"]


@pytest.mark.posix  # the dead daemon's handle is open in this very process
def test_recovery_that_is_killed_is_recovered_again(tmp_path: Path) -> None:
    for count in range(6):
        folder = tmp_path / str(count)
        found = disk()
        journal = Journal(str(folder), ME)
        journal.announce("profile", "sandboxd.x")
        apply(PLAN, found, journal)
        found.left = count
        try:
            recover(str(folder), lambda owner: False, found)
        except Killed:
            found.left = 10**9
            recover(str(folder), lambda owner: False, found)
        assert found.acls == disk().acls


def test_a_living_daemons_journal_stays(tmp_path: Path) -> None:
    found = disk()
    journal = Journal(str(tmp_path), ME)
    apply(PLAN, found, journal)
    before = Path(journal.path).read_bytes()
    assert recover(str(tmp_path), lambda owner: owner == ME, found) == []
    assert Path(journal.path).read_bytes() == before


@pytest.mark.posix  # the dead daemon's handle is open in this very process
def test_what_cannot_be_taken_back_stays_in_the_journal(tmp_path: Path) -> None:
    found = disk()
    journal = Journal(str(tmp_path), ME)
    apply(PLAN, found, journal)
    found.broken = {"/C:/w"}
    assert recover(str(tmp_path), lambda owner: False, found) == [journal.path]
    _, changes = read(journal.path)
    assert [change.path for change in changes] == ["/C:/w"]
    found.broken = set()
    assert recover(str(tmp_path), lambda owner: False, found) == []
    assert found.acls == disk().acls


@pytest.mark.posix  # the dead daemon's handle is open in this very process
def test_a_file_that_was_replaced_is_left_alone(tmp_path: Path) -> None:
    found = disk()
    journal = Journal(str(tmp_path), ME)
    journal.announce("acl", "/C:/w", sid="S-cap", file_id="another file")
    journal.announce("acl", "/C:/gone", sid="S-cap", file_id="x")
    before = {path: set(entries) for path, entries in found.acls.items()}
    assert recover(str(tmp_path), lambda owner: False, found) == []
    assert found.acls == before


def test_an_unreadable_journal_is_kept_aside(tmp_path: Path) -> None:
    (tmp_path / "1-2.journal").write_bytes(b"\x00\x01 no journal\n")
    left = recover(str(tmp_path), lambda owner: False, disk())
    assert left == [str(tmp_path / "1-2.journal") + ASIDE]
    assert os.path.exists(left[0])


def test_an_entry_that_is_not_said_back_is_an_error_and_in_the_journal(tmp_path: Path) -> None:
    found = disk(forgets=True)
    journal = Journal(str(tmp_path), ME)
    with pytest.raises(GrantError, match="say back"):
        apply(PLAN, found, journal)
    _, changes = read(journal.path)
    assert [(change.path, change.sid) for change in changes] == [("/C:/w", "S-cap")]


def test_what_stands_already_is_not_written_again(tmp_path: Path) -> None:
    found = disk()
    journal = Journal(str(tmp_path), ME)
    apply(PLAN, found, journal)
    before = found.left
    apply(PLAN, found, journal)
    assert found.left == before


def test_the_change_is_on_disk_before_it_is_made(tmp_path: Path) -> None:
    seen: list[list[Change]] = []
    found = disk()
    journal = Journal(str(tmp_path), ME)
    write = found.write

    def watched(path: str, sid: str, wanted: tuple[AclEntry, ...]) -> None:
        seen.append(read(journal.path)[1])
        write(path, sid, wanted)

    found.write = watched  # type: ignore[method-assign]
    apply(PLAN, found, journal)
    assert [[change.path for change in changes] for changes in seen] == [
        ["/C:/w"], ["/C:/w", "/C:/w/.git"],
    ]  # fmt: skip


def test_a_second_sandbox_does_not_weaken_what_the_first_denies(tmp_path: Path) -> None:
    found = disk()
    journal = Journal(str(tmp_path), ME)
    apply(PLAN, found, journal)
    before = found.acls["/C:/w/.git"]
    weaker = AclEntry("/C:/w/.git", "S-cap", "deny", 0x1, INHERITED)
    apply(AclPlan((weaker,), frozenset({"S-cap"})), found, journal)
    assert found.acls["/C:/w/.git"] == {*before, weaker}
    journal.undo_all(found)
    assert found.acls == disk().acls


def test_changes_of_many_threads_have_numbers_of_their_own(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), ME)
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda n: journal.announce("profile", f"p{n}"), range(200)))
    assert len({change.number for change in made}) == 200
    assert len(read(journal.path)[1]) == 200


@pytest.mark.parametrize("written", [0, 1, 20])
def test_a_full_disk_leaves_a_journal_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """A line that is cut off must not make the next one unreadable: nothing would be taken back."""
    journal = Journal(str(tmp_path), ME)
    journal.announce("profile", "first")
    write = os.write

    def full(fd: int, data: bytes) -> int:
        return write(fd, data[:written])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"."):
        journal.announce("profile", "not written")
    monkeypatch.undo()
    journal.announce("profile", "last")
    assert [change.path for change in read(journal.path)[1]] == ["first", "last"]
