"""The walker of symlinks, compared with the kernel's own way (realpath) over random trees."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.policy.paths.symlink_walk import Walk

_NAMES = st.sampled_from(["a", "b", "c", "..", "."])
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map("/".join)


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


@settings(max_examples=60)
@given(
    folders=st.lists(_PATHS, max_size=4),
    links=st.dictionaries(_PATHS, _PATHS, max_size=4),
    path=_PATHS,
)
def test_it_ends_where_the_kernel_ends(folders, links, path):
    with tempfile.TemporaryDirectory() as top:
        root = Path(os.path.realpath(top))
        for folder in folders:
            if ".." not in folder:
                (root / folder).mkdir(parents=True, exist_ok=True)
        for name, target in links.items():
            place = root / name
            if ".." not in name and place.parent.is_dir() and not os.path.lexists(place):
                place.symlink_to(target)
        try:
            expected = os.path.realpath(root / path, strict=True)
        except OSError:
            return  # missing or a loop: there is no end to compare
        way = Walk(f"{root}/{path}", _read_link)
        steps = list(way)
        assert way.at == expected
        assert all(
            os.path.realpath(os.path.dirname(s.path)) == os.path.dirname(s.path) for s in steps
        )


def test_a_walk_that_is_left_early_reads_no_further_link(tmp_path):
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to("end")
    read: list[str] = []

    def read_link(path: str) -> str | None:
        read.append(path)
        return _read_link(path)

    for step in Walk(f"{tmp_path}/first", read_link):
        if step.target == "second":
            break
    assert f"{tmp_path}/second" not in read


def test_a_loop_ends(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    assert len(list(Walk("loop", _read_link, start=str(tmp_path)))) == 41
