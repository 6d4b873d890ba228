"""A layout to Landlock rules: what is left out is left out by granting what lies beside it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.backends.landlock import rules as subject
from sandboxd.backends.landlock.rules import RuleContext, Rules, TooManyRules, rules
from sandboxd.linux.landlock import access_read, access_write
from sandboxd.policy.mounts.mount_plan import Mount, MountKind, MountPlan

ABI = 7
READ = access_read(ABI)
LISTING = 1 << 3  # LANDLOCK_ACCESS_FS_READ_DIR
IOCTL_DEV = 1 << 15
WRITE = access_write(ABI) & ~IOCTL_DEV


def built(places: Iterable[Mount], tree: Mapping[str, str], **around: object) -> Rules:
    """`tree`: a folder to the names in it; a name that ends in @ is a symlink."""

    def entries(folder: str) -> list[tuple[str, bool]]:
        names = tree.get(folder, "").split()
        return [(name.rstrip("@"), name.endswith("@")) for name in names]

    return rules(MountPlan(places), ABI, RuleContext(**around), entries)  # type: ignore[arg-type]


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
    found = built(
        [Mount("/", MountKind.ROOT), Mount("/w", MountKind.WRITE), Mount("/r", MountKind.READ)], {}
    )
    assert granted(found) == {"/w": WRITE, "/r": READ}
    assert not found.split


def test_a_masked_folder_is_left_out_by_its_siblings():
    found = built(
        [
            Mount("/", MountKind.ROOT),
            Mount("/w", MountKind.WRITE),
            Mount("/w/a/secret", MountKind.MASK),
        ],
        {"/w": "a b link@", "/w/a": "secret c"},
    )
    assert granted(found) == {"/w/b": WRITE, "/w/a/c": WRITE}
    assert set(found.split) == {"/w", "/w/a"}


def test_the_folder_of_a_masked_file_can_be_listed():
    mask = Mount("/r/secret", MountKind.MASK, is_dir=False)
    found = built([Mount("/r", MountKind.READ), mask], {"/r": "secret open"})
    assert granted(found) == {"/r": LISTING, "/r/open": READ}


def test_a_read_only_folder_in_a_writable_one_stays_readable_and_only_that():
    places = [Mount("/w", MountKind.WRITE), Mount("/w/vendor", MountKind.READ)]
    found = built(places, {"/w": "vendor src"})
    assert granted(found) == {"/w": READ, "/w/src": WRITE}


def test_a_writable_folder_in_a_readable_one_needs_no_siblings():
    found = built(
        [Mount("/", MountKind.SYSTEM), Mount("/src/w", MountKind.WRITE)], {"/": "src usr"}
    )
    assert granted(found) == {"/": READ, "/src/w": WRITE}
    assert not found.split


def test_an_allowed_path_inside_a_masked_one_is_granted():
    places = [
        Mount("/w", MountKind.WRITE),
        Mount("/w/private", MountKind.MASK),
        Mount("/w/private/ok", MountKind.READ),
    ]
    found = built(places, {"/w": "private src"})
    assert granted(found) == {"/w/src": WRITE, "/w/private/ok": READ}


def test_hidden_homes_and_private_folders_are_not_granted():
    places = [
        Mount("/", MountKind.SYSTEM),
        Mount("/home", MountKind.HIDDEN),
        Mount("/tmp", MountKind.PRIVATE),
        Mount("/dev", MountKind.DEV),
        Mount("/home/u/ws", MountKind.WRITE),
    ]
    found = built(places, {"/": "home tmp dev usr etc bin@"})
    assert granted(found) == {"/usr": READ, "/etc": READ, "/home/u/ws": WRITE}


def test_protected_files_do_not_close_their_folder():
    places = [Mount("/w", MountKind.WRITE), Mount("/w/.git/hooks", MountKind.PROTECTED)]
    assert granted(built(places, {"/w": ".git"})) == {"/w": WRITE}


def test_the_daemons_own_code_is_really_read_only():
    places = [Mount("/w", MountKind.WRITE), Mount("/w/sandboxd", MountKind.PROTECTED)]
    found = built(places, {"/w": "sandboxd src"}, own_code=frozenset({"/w/sandboxd"}))
    assert effective(found, "/w/sandboxd/x.py") == READ
    assert effective(found, "/w/src/x.py") == WRITE


def test_a_folder_with_too_many_entries_is_refused():
    names = " ".join(f"n{i}" for i in range(subject.MAX_RULES + 2))
    with pytest.raises(TooManyRules, match="/w"):
        built([Mount("/w", MountKind.WRITE), Mount("/w/n0", MountKind.MASK)], {"/w": names})


def test_a_new_entry_makes_a_split_folder_stale(tmp_path: Path):
    for name in ("a", "secret"):
        (tmp_path / name).mkdir()
    places = [Mount(str(tmp_path), MountKind.READ), Mount(str(tmp_path / "secret"), MountKind.MASK)]
    found = rules(MountPlan(places), ABI, RuleContext())
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


# Any nesting of places over a small tree: no access to a path exceeds what its mount says.
NAMES = ("a", "b", "c")
TREE = {
    "/w": "a b c",
    **{f"/w/{x}": "a b c" for x in NAMES},
    **{f"/w/{x}/{y}": "a b c" for x in NAMES for y in NAMES},
}
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(lambda p: "/w/" + "/".join(p))
KINDS = {
    MountKind.READ: READ,
    MountKind.WRITE: WRITE,
    MountKind.MASK: 0,
    MountKind.HIDDEN: 0,
    MountKind.SYSTEM: READ,
}


@given(
    outer=st.sampled_from([MountKind.READ, MountKind.WRITE]),
    inner=st.dictionaries(PATHS, st.sampled_from(sorted(KINDS)), max_size=5),
    path=PATHS,
)
def test_no_path_has_more_rights_than_its_place(
    outer: MountKind, inner: dict[str, MountKind], path: str
):
    layout = [Mount("/w", outer), *(Mount(p, kind) for p, kind in inner.items())]
    found = built(layout, TREE)
    wanted = KINDS[MountPlan(layout).at(path).kind]
    assert effective(found, path) & ~wanted == 0
    inside = [p for p in inner if p.startswith(path + "/")]
    if not inside:
        assert effective(found, path) == wanted
