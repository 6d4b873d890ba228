"""A mount of the host that comes and goes while a template starts is in none of its clones.

Nothing in a table of mounts tells of it afterwards, and a template that copied it keeps it.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.attacks import Box, python, weakest
from support.backends import TEMPLATE, running_backend

pytestmark = pytest.mark.requires("root", "bubblewrap")
ROUNDS = 24
BIND, DETACH = 4096, 2
READ = python("""
    name = args[0] + "/later/of-the-host"
    worked(open(name).read()) if os.path.exists(name) else blocked("not there")
""")


@pytest.fixture
def shared_mount(tmp_path: Path) -> Iterator[Path]:
    """As most mounts of a host are: what is mounted below it arrives in other namespaces too."""
    place = tmp_path.resolve() / "shared"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "test", place], check=True)
    try:
        subprocess.run(["mount", "--make-shared", place], check=True)
        (place / "data" / "later").mkdir(parents=True)
        yield place / "data"
    finally:
        subprocess.run(["umount", "-R", "-l", place], check=True)


@contextmanager
def passing_mount(source: Path, target: Path) -> Iterator[None]:
    """`source` is mounted on `target` and unmounted, over and over; unmounted at the end."""
    libc, done = ctypes.CDLL(None, use_errno=True), threading.Event()

    def pass_by() -> None:
        while not done.is_set():
            assert libc.mount(os.fsencode(source), os.fsencode(target), None, BIND, None) == 0
            done.wait(0.001)
            assert libc.umount2(os.fsencode(target), DETACH) == 0
            done.wait(0.003)

    thread = threading.Thread(target=pass_by)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_mount_that_passes_while_a_template_starts(shared_mount: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "of-the-host").write_text("secret")
    subprocess.run(["mount", "--bind", source, shared_mount / "later"], check=True)
    with running_backend("bubblewrap", env={TEMPLATE: "true"}) as daemon:
        box = Box("bubblewrap", daemon)
        there = weakest(fs_read_allow=[str(shared_mount)], env={"ROUND": "control"})
        assert box.attack(READ, shared_mount, manifest=there).worked
        subprocess.run(["umount", shared_mount / "later"], check=True)
        seen = []
        for number in range(ROUNDS):
            manifest = weakest(fs_read_allow=[str(shared_mount)], env={"ROUND": str(number)})
            with passing_mount(source, shared_mount / "later"), daemon.connect() as client:
                request = {"argv": ["true"], "manifest": manifest, "backend": "bubblewrap"}
                client.answer(client.start("execute", request))  # may be refused
            seen.append(box.attack(READ, shared_mount, manifest=manifest).worked)
        box.close()
    assert not any(seen), seen
