"""What is expected inside a container is what was planned, whatever becomes of its name."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd.backends.docker.inode_checks import inode_checks
from sandboxd.backends.docker.mounts import ContainerBind
from sandboxd.policy.plan import Identity
from sandboxd_proto.errors import PathDenied

LOOKS = 3000
AT_FDCWD, EXCHANGE = -100, 2


@pytest.fixture
def planned(tmp_path: Path) -> ContainerBind:
    """A folder to bind; beside it lies a symlink to another one."""
    (tmp_path / "planned").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    path = str((tmp_path / "planned").resolve())
    return ContainerBind(path, path, identity=Identity.of(os.stat(path)))


@contextmanager
def swapping(a: Path, b: Path) -> Iterator[None]:
    """Both names are exchanged all the time."""
    libc, over = ctypes.CDLL(None), threading.Event()
    names = os.fsencode(a), os.fsencode(b)

    def swap() -> None:
        while not over.is_set():
            libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], EXCHANGE)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield
    finally:
        over.set()
        swapper.join()


@pytest.mark.parametrize("known", [True, False], ids=["with identity", "without"])
def test_a_swapped_name_never_makes_another_inode_right(
    planned: ContainerBind, known: bool
) -> None:
    folder = Path(planned.source).parent
    assert planned.identity is not None
    bind = planned if known else ContainerBind(planned.source, planned.dest)
    seen: set[int] = set()
    by_name: set[int] = set()  # the control: what a second look at the name finds
    with swapping(Path(planned.source), folder / "link"):
        looks = 0
        while looks < LOOKS or len(by_name) < 2:
            looks += 1
            by_name.add(os.stat(planned.source).st_ino)
            try:
                seen.update(check.inode for check in inode_checks([bind]))
            except PathDenied:
                continue
    assert seen == {planned.identity.inode}


def test_a_source_that_is_gone_is_denied_by_its_name(planned: ContainerBind) -> None:
    os.rmdir(planned.source)
    with pytest.raises(PathDenied, match="planned changed between"):
        inode_checks([ContainerBind(planned.source, planned.dest)])
