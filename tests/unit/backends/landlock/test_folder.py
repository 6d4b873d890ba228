"""The folder that stands for /tmp: gone with its sandbox, and with a daemon that was killed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from sandboxd.linux.rootfs import private_folder
from sandboxd.linux.rootfs.private_folder import PREFIX, PrivateFolder, remove_stale
from sandboxd.policy.plan import RunAs


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(private_folder, "YOUNG_S", -1.0)
    return tmp_path


def test_it_is_removed_whatever_is_in_it():
    folder = PrivateFolder(None)
    inner = Path(folder.path) / "closed"
    inner.mkdir()
    (inner / "file").touch()
    inner.chmod(0)
    (Path(folder.path) / "link").symlink_to("/")
    folder.remove()
    assert not os.path.lexists(folder.path)


def test_only_what_nobody_uses_is_stale(own_tmp: Path):
    used = PrivateFolder(None)
    left = own_tmp / f"{PREFIX}left"
    left.mkdir()
    other = own_tmp / "other"
    other.mkdir()
    remove_stale()
    assert os.path.isdir(used.path)
    assert not left.exists()
    assert other.exists()
    used.remove()


def test_a_link_in_its_place_leads_nowhere(own_tmp: Path):
    target = own_tmp / "target"
    target.mkdir()
    (own_tmp / f"{PREFIX}link").symlink_to(target)
    remove_stale()
    assert target.exists()


def test_a_new_one_is_left_alone(own_tmp: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(private_folder, "YOUNG_S", 60.0)
    (own_tmp / f"{PREFIX}new").mkdir()
    remove_stale()
    assert (own_tmp / f"{PREFIX}new").exists()


@pytest.mark.requires("root")
def test_it_belongs_to_the_user_of_the_command():
    folder = PrivateFolder(RunAs(65534, 65534))
    assert os.stat(folder.path).st_uid == 65534
    assert os.stat(folder.path).st_mode & 0o777 == 0o700
    folder.remove()
