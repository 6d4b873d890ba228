"""`within` against a definition by path components."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.policy.paths.within import is_below, within, within_any

# Few names, and names that begin with one another: neighbours are what a prefix test confuses.
NAMES = st.sampled_from(["a", "ab", "b", ".", "-", "a b", "ä"]).filter(lambda name: name != ".")
PARTS = st.lists(NAMES, max_size=5)


def joined(parts: list[str]) -> str:
    return "/" + "/".join(parts)


@given(PARTS, PARTS)
def test_a_path_is_within_a_folder_when_its_components_begin_with_the_folders(
    path: list[str], folder: list[str]
) -> None:
    begins = path[: len(folder)] == folder
    assert within(joined(path), joined(folder)) is begins
    assert is_below(joined(path), joined(folder)) is (begins and path != folder)


@given(PARTS, PARTS)
def test_what_is_joined_to_a_folder_is_within_it(folder: list[str], more: list[str]) -> None:
    assert within(joined(folder + more), joined(folder))
    assert within(joined(folder + more), "/")


@given(PARTS, PARTS, PARTS)
def test_within_is_transitive_and_antisymmetric(a: list[str], b: list[str], c: list[str]) -> None:
    one, two, three = joined(a), joined(a + b), joined(a + b + c)
    assert within(three, one)
    assert within(two, three) is (two == three)


@given(PARTS, st.lists(PARTS, max_size=4))
def test_any_of_several(path: list[str], folders: list[list[str]]) -> None:
    expected = any(path[: len(folder)] == folder for folder in folders)
    assert within_any(joined(path), (joined(folder) for folder in folders)) is expected


@pytest.mark.parametrize(
    ("path", "folder", "expected"),
    [
        ("/home/me", "/home", True),
        ("/homes", "/home", False),
        ("/home", "/home/", False),  # a folder is named without the slash
        ("/home/me", "/home/", True),
        ("/", "/", True),
        ("/etc", "/", True),
    ],
)
def test_examples(path: str, folder: str, expected: bool) -> None:
    assert within(path, folder) is expected
