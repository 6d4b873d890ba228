"""Few entries for many paths, and never one that opens a home folder or the system."""

from __future__ import annotations

from denials.settings import setting
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.denials.explain.fold import fold_paths, outermost, too_wide
from sandboxd.policy.paths.within import within

HOMES = ("/home/u",)


def fold(*paths: str) -> list[str]:
    return sorted(set(fold_paths(paths, lambda folder: too_wide(folder, HOMES)).values()))


def test_two_neighbours_stay_and_three_become_their_folder() -> None:
    assert fold("/data/x/a", "/data/x/b") == ["/data/x/a", "/data/x/b"]
    assert fold("/data/x/a", "/data/x/b", "/data/x/c") == ["/data/x"]


def test_folders_of_neighbours_fold_again() -> None:
    paths = [f"/data/set/{folder}/{name}" for folder in "abc" for name in "123"]
    assert fold(*paths) == ["/data/set"]


def test_a_path_in_another_is_covered_by_it() -> None:
    assert fold("/data/x", "/data/x/a", "/data/xy") == ["/data/x", "/data/xy"]


def test_wide_folders_are_never_made() -> None:
    for folder in ("/", "/home", "/home/u", "/home/u/.config", "/etc", "/usr/lib", "/var/lib"):
        paths = [f"{folder.rstrip('/')}/{name}" for name in "abcde"]
        assert fold(*paths) == paths


SEGMENT = st.sampled_from(["a", "b", "c", "home", "u", "etc", ".config", "usr"])
PATHS = st.lists(st.lists(SEGMENT, min_size=1, max_size=5).map(lambda s: "/" + "/".join(s)))


@given(PATHS)
def test_every_path_is_covered_and_nothing_wide_is_made(paths: list[str]) -> None:
    entries = fold_paths(paths, lambda folder: too_wide(folder, HOMES))
    assert set(entries) == set(paths)
    for path, entry in entries.items():
        assert within(path, entry)
        assert entry in paths or not too_wide(entry, HOMES)
    assert outermost(entries.values()) == sorted(set(entries.values()))


def test_the_settings_of_these_tests_have_a_home() -> None:
    assert dict(setting().plan.env)["HOME"] == "/h/u"
