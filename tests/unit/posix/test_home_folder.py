"""The home folder of the daemon's user, who may have no account on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.platform.posix import system


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOME, a folder of the user's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("account", [None, "/nonexistent"])
def test_home_counts_where_the_account_has_none(
    home: Path, monkeypatch: pytest.MonkeyPatch, account: str | None
) -> None:
    monkeypatch.setattr(system, "home_of", lambda uid: account)
    assert system.home_folder() == str(home)


def test_the_account_goes_before_the_variable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "account").mkdir()
    monkeypatch.setattr(system, "home_of", lambda uid: str(home / "account"))
    assert system.home_folder() == str(home / "account")


@pytest.mark.parametrize("named", ["", "relative", "/nonexistent/x", "/proc/version"])
def test_what_is_no_folder_does_not_count(
    home: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.chdir(home)
    (home / "relative").mkdir()
    monkeypatch.setenv("HOME", named)
    monkeypatch.setattr(system, "home_of", lambda uid: None)
    assert system.home_folder() == "/nonexistent"


def test_a_folder_of_another_user_does_not_count(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = os.getuid()
    monkeypatch.setattr(system, "home_of", lambda uid: None)
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert system.home_folder() == "/nonexistent"
