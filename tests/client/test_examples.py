"""The examples in the docstrings of the Python clients are run, on a real daemon."""

from __future__ import annotations

import doctest
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.daemon import running_daemon

import sandboxd_client
from sandboxd_client import async_box, async_client, box, client

pytestmark = pytest.mark.requires("bubblewrap")
KNOWN = {name: getattr(sandboxd_client, name) for name in sandboxd_client.__all__}


@pytest.fixture(scope="module")
def socket() -> Iterator[str]:
    with running_daemon() as daemon:
        yield daemon.socket


@pytest.mark.parametrize("module", [box, async_box, client, async_client])
def test_examples_of_docstrings(
    module: object, socket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOXD_SOCKET", socket)
    known = {**KNOWN, "anyio": anyio, "tempfile": tempfile, "Path": Path}
    found = doctest.testmod(module, extraglobs=known)  # type: ignore[arg-type]
    assert found.attempted > 0
    assert found.failed == 0


def test_dir_shows_the_public_names() -> None:
    assert dir(sandboxd_client) == sorted(sandboxd_client.__all__)
    assert {"Box", "AsyncBox", "Client", "AsyncClient"} <= set(dir(sandboxd_client))
