"""A layout to Landlock rules: what is left out is left out by granting what lies beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.backends.landlock import rules as subject
from sandboxd.backends.landlock.rules import Rules, Surroundings, TooManyRules, rules
from sandboxd.linux.landlock import access_read, access_write
from sandboxd.policy.layout import Kind, Layout, Place

ABI = 7
READ = access_read(ABI)
LISTING = 1 << 3  # LANDLOCK_ACCESS_FS_READ_DIR
IOCTL_DEV = 1 << 15
WRITE = access_write(ABI) & ~IOCTL_DEV


def built(places: Iterable[Place], tree: Mapping[str, str], **around: object) -> Rules:
    """`tree`: a folder to the names in it; a name that ends in @ is a symlink."""

    def entries(folder: str) -> list[tuple[str, bool]]:
        names = tree.get(folder, "").split()
        return [(name.rstrip("@"), name.endswith("@")) for name in names]

    return rules(Layout(places), ABI, Surroundings(**around), entries)  # type: ignore[arg-type]


def granted(found: Rules) -> dict[str, int]:
    return {rule.path: rule.access for rule in found.paths}


def effective(found: Rules, path: str) -> int:
    """What Landlock allows at a path: the rules of it and of every folder above."""
    access = 0
    for rule in found.paths:
        if path == rule.path or path.startswith(rule.path.rstrip("/") + "/"):
            access |= rule.access
    return access


def test_a_place_alone_is_one_rule():
    found = built([Place("/", Kind.ROOT), Place("/w", Kind.WRITE), Place("/r", Kind.READ)], {})
    assert granted(found) == {"/w": WRITE, "/r": READ}
    assert not found.split


def test_a_masked_folder_is_left_out_by_its_siblings():
    found = built(
        [Place("/", Kind.ROOT), Place("/w", Kind.WRITE), Place("/w/a/secret", Kind.MASK)],
        {"/w": "a b link@", "/w/a": "secret c"},
    )
    assert granted(found) == {"/w/b": WRITE, "/w/a/c": WRITE}
    assert set(found.split) == {"/w", "/w/a"}


def test_the_folder_of_a_masked_file_can_be_listed():
    mask = Place("/r/secret", Kind.MASK, is_dir=False)
    found = built([Place("/r", Kind.READ), mask], {"/r": "secret open"})
    assert granted(found) == {"/r": LISTING, "/r/open": READ}


def test_a_read_only_folder_in_a_writable_one_stays_readable_and_only_that():
    places = [Place("/w", Kind.WRITE), Place("/w/vendor", Kind.READ)]
    found = built(places, {"/w": "vendor src"})
    assert granted(found) == {"/w": READ, "/w/src": WRITE}


def test_a_writable_folder_in_a_readable_one_needs_no_siblings():
    found = built([Place("/", Kind.SYSTEM), Place("/src/w", Kind.WRITE)], {"/": "src usr"})
    assert granted(found) == {"/": READ, "/src/w": WRITE}
    assert not found.split


def test_an_allowed_path_inside_a_masked_one_is_granted():
    places = [
        Place("/w", Kind.WRITE), Place("/w/private", Kind.MASK), Place("/w/private/ok", Kind.READ),
    ]  # fmt: skip
    found = built(places, {"/w": "private src"})
    assert granted(found) == {"/w/src": WRITE, "/w/private/ok": READ}


def test_hidden_homes_and_private_folders_are_not_granted():
    places = [
        Place("/", Kind.SYSTEM), Place("/home", Kind.HIDDEN), Place("/tmp", Kind.PRIVATE),
        Place("/dev", Kind.DEV), Place("/home/u/ws", Kind.WRITE),
    ]  # fmt: skip
    found = built(places, {"/": "home tmp dev usr etc bin@"})
    assert granted(found) == {"/usr": READ, "/etc": READ, "/home/u/ws": WRITE}


def test_protected_files_do_not_close_their_folder():
    places = [Place("/w", Kind.WRITE), Place("/w/.git/hooks", Kind.PROTECTED)]
    assert granted(built(places, {"/w": ".git"})) == {"/w": WRITE}


def test_the_daemons_own_code_is_really_read_only():
    places = [Place("/w", Kind.WRITE), Place("/w/sandboxd", Kind.PROTECTED)]
    found = built(places, {"/w": "sandboxd src"}, own_code=frozenset({"/w/sandboxd"}))
    assert effective(found, "/w/sandboxd/x.py") == READ
    assert effective(found, "/w/src/x.py") == WRITE


def test_a_folder_with_too_many_entries_is_refused():
    names = " ".join(f"n{i}" for i in range(subject.MAX_RULES + 2))
    with pytest.raises(TooManyRules, match="/w"):
        built([Place("/w", Kind.WRITE), Place("/w/n0", Kind.MASK)], {"/w": names})


def test_a_new_entry_makes_a_split_folder_stale(tmp_path: Path):
    for name in ("a", "secret"):
        (tmp_path / name).mkdir()
    places = [Place(str(tmp_path), Kind.READ), Place(str(tmp_path / "secret"), Kind.MASK)]
    found = rules(Layout(places), ABI, Surroundings())
    assert effective(found, str(tmp_path / "a")) == READ
    assert found.unchanged()
    os.utime(tmp_path, ns=(0, 0))
    assert not found.unchanged()


def test_keys_beside_certificates_are_not_for_root(tmp_path: Path):
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "cert.pem").touch(mode=0o644)
    (tmp_path / "key.pem").touch(mode=0o600)
    found = {os.path.basename(path) for path in subject._private(str(tmp_path))}
    assert found == {"private", "key.pem"}


# Any nesting of places over a small tree: nobody may do more at a path than its place says.
NAMES = ("a", "b", "c")
TREE = {
    "/w": "a b c",
    **{f"/w/{x}": "a b c" for x in NAMES},
    **{f"/w/{x}/{y}": "a b c" for x in NAMES for y in NAMES},
}
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(lambda p: "/w/" + "/".join(p))
KINDS = {Kind.READ: READ, Kind.WRITE: WRITE, Kind.MASK: 0, Kind.HIDDEN: 0, Kind.SYSTEM: READ}


@given(
    outer=st.sampled_from([Kind.READ, Kind.WRITE]),
    inner=st.dictionaries(PATHS, st.sampled_from(sorted(KINDS)), max_size=5),
    path=PATHS,
)
def test_no_path_has_more_rights_than_its_place(outer: Kind, inner: dict[str, Kind], path: str):
    layout = [Place("/w", outer), *(Place(p, kind) for p, kind in inner.items())]
    found = built(layout, TREE)
    wanted = KINDS[Layout(layout).at(path).kind]
    assert effective(found, path) & ~wanted == 0
    inside = [p for p in inner if p.startswith(path + "/")]
    if not inside:
        assert effective(found, path) == wanted
