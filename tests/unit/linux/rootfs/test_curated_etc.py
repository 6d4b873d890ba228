"""Copies of /etc: made off the event loop, kept while a sandbox uses them, and not for ever."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import anyio
import pytest

if sys.platform != "linux":
    pytest.skip("these sandboxes are Linux's", allow_module_level=True)

from sandboxd.linux.rootfs.curated_etc import MOST_UNUSED, CuratedEtc, EtcRequest
from sandboxd.linux.rootfs.state import StateFolder

MANY = 20


class RecordingEtc(CuratedEtc):
    """Keeps which threads made a copy."""

    def __init__(self, state: StateFolder, source: str) -> None:
        super().__init__(state, source)
        self.threads: set[int | None] = set()

    def _fill(self, into: str, wish: EtcRequest) -> None:
        self.threads.add(threading.get_ident())
        super()._fill(into, wish)


def wish(number: int) -> EtcRequest:
    """As a client makes another one with each path in /etc that it names."""
    return EtcRequest(0, 0, network=False, mount_points=((f"granted-{number}", False),))


def test_copies(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "ld.so.conf").write_text("x\n")
    state = StateFolder(str(tmp_path / "state"))
    etc = RecordingEtc(state, str(source))

    def copies() -> set[str]:
        return {path.name for path in (Path(state.path) / "etc").iterdir()}

    def granted(of: EtcRequest) -> bool:
        return os.path.exists(os.path.join(etc.folder(of), of.mount_points[0][0]))

    async def work() -> None:
        await etc.make(wish(0))
        with etc.hold(wish(0)):
            for number in range(1, MANY):
                await etc.make(wish(number))
                with etc.hold(wish(number)):
                    assert granted(wish(number))
            while len(copies()) > MOST_UNUSED + 1:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            assert granted(wish(0))
        await etc.make(wish(1))
        with etc.hold(wish(1)):  # one that was removed is made again
            assert granted(wish(1))

    try:
        anyio.run(work)
        assert threading.get_ident() not in etc.threads
        assert len(copies()) >= MOST_UNUSED
    finally:
        state.close()


def test_a_file_in_a_copied_folder_is_edited_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxd.linux.rootfs.curated_etc.NESTED_S", 0.0)
    nested = tmp_path / "source" / "ssl" / "openssl.cnf"
    nested.parent.mkdir(parents=True)
    nested.write_text("old\n")
    state = StateFolder(str(tmp_path / "state"))
    etc = CuratedEtc(state, str(tmp_path / "source"))

    async def work() -> None:
        await etc.make(wish(0))
        before = etc.stamp()
        assert (Path(etc.folder(wish(0))) / "ssl/openssl.cnf").read_text() == "old\n"
        with nested.open("r+") as file:
            file.write("new\n")
        with anyio.fail_after(60):
            while etc.stamp() == before:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        await etc.make(wish(0))
        assert (Path(etc.folder(wish(0))) / "ssl/openssl.cnf").read_text() == "new\n"

    try:
        anyio.run(work)
    finally:
        state.close()
