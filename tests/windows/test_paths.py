"""Windows paths as policy speaks of them, and the spellings that are refused."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.platform.windows.paths import internal, native, spelling_problem

NAMES = st.text(alphabet="abcXYZ019_-. ", min_size=1, max_size=8).filter(
    lambda name: not name.endswith((".", " ")) and name.strip(".")
)


@given(st.sampled_from("CDZ"), st.lists(NAMES, max_size=5))
def test_there_and_back(drive: str, parts: list[str]) -> None:
    path = f"{drive}:\\" + "\\".join(parts)
    assert native(internal(path)) == path
    at, steps = internal(path), 0
    while at != "/":
        at, steps = posixpath.dirname(at), steps + 1
    assert steps == len(parts) + 1


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("c:/Users/me", "/C:/Users/me"),
        ("C:\\", "/C:"),
        ("/C:/Users", "/C:/Users"),
        ("\\\\?\\C:\\long", "/C:/long"),
    ],
)
def test_internal_paths(spelled: str, meant: str) -> None:
    assert internal(spelled) == meant


@pytest.mark.parametrize("path", ["/", "/etc/passwd", "/usr/bin", "/c:/lower", "//server/share"])
def test_what_lies_on_no_drive_does_not_exist(path: str) -> None:
    with pytest.raises(FileNotFoundError):
        native(path)


@pytest.mark.parametrize("path", ["C:\\work", "c:/work/x", "/C:/work", "C:\\a b\\c.d", "C:\\~x"])
def test_plain_spellings_are_taken(path: str) -> None:
    assert spelling_problem(path) is None


@pytest.mark.parametrize(
    "path",
    [
        "work", "\\work", "/work", "C:work", "\\\\server\\share\\x", "//server/share",
        "\\\\?\\C:\\x", "\\\\.\\C:\\x", "\\\\.\\pipe\\x", "C:\\file:stream", "C:\\file::$DATA",
        "C:\\dir.", "C:\\dir \\x", "C:\\NUL", "C:\\x\\con.txt", "C:\\COM1", "C:\\lpt9.log",
        "C:\\aux .x", "C:\\PROGRA~1\\x", "C:\\LONGNA~1.TXT", "C:\\what?", "C:\\a*b", "C:\\a|b",
    ],
)  # fmt: skip
def test_spellings_that_mean_another_place_are_refused(path: str) -> None:
    assert spelling_problem(path) is not None
