"""Repositories whose refs are in a reftable. Made by hand: not every git knows them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.attacks import Box, freely, python
from support.git_attacks import attack, is_reported

pytestmark = [pytest.mark.isolation]
HEAD = "ref: refs/heads/.invalid\n"


@pytest.fixture
def git_dir(workspace: Path) -> Path:
    made = workspace / ".git"
    for name in ("objects", "refs", "hooks", "reftable"):
        (made / name).mkdir(parents=True)
    files = {
        "HEAD": HEAD,
        "refs/heads": "this repository uses the reftable format\n",
        "config": "[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefstorage = reftable\n",
        "reftable/tables.list": "0x01-0x01-aaaa.ref\n",
        "reftable/0x01-0x01-aaaa.ref": "REFT",
    }
    for name, text in files.items():
        (made / name).write_text(text)
    return made


def test_tables_are_written(box: Box, git_dir: Path) -> None:
    """As git does it: a new table, and a list that is renamed into its place."""
    program = python("""
        os.chdir(args[0])
        open("0x02-0x02-bbbb.ref", "w").write("REFT")
        open("tables.list.lock", "w").write("0x01-0x01-aaaa.ref\\n0x02-0x02-bbbb.ref\\n")
        os.rename("tables.list.lock", "tables.list")
        worked()
    """)
    ran = attack(box, "cold", git_dir.parent, program, git_dir / "reftable")
    assert ran.exit_code == 42, ran.story
    assert ran.denials == [], ran.story
    assert (git_dir / "reftable/tables.list").read_text().count("\n") == 2


ATTACKS = {
    "HEAD": "open('HEAD', 'w').write('nothing')",
    "a link in the place of the tables": "os.rename('reftable', 'objects/x'); "
    "os.symlink(args[1], 'reftable')",
    "a link among the tables": "os.symlink(args[1], 'reftable/0x03-0x03-cccc.ref')",
    "a hook": "open('hooks/reference-transaction', 'w').write('#!/bin/sh')",
    "another store": "open('config', 'a').write('[core]\\n\\tfsmonitor = x')",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_runs_code_or_leads_elsewhere_does_not_stay(
    box: Box, git_dir: Path, outside: Path, name: str
) -> None:
    program = python("os.chdir(args[0])", ATTACKS[name], "worked()")
    control = shutil.copytree(git_dir, outside / "control")
    assert freely(program, control, outside).worked
    config = (git_dir / "config").read_bytes()
    ran = attack(box, "cold", git_dir.parent, program, git_dir, outside)
    assert ran.exit_code != 42 or is_reported(ran), ran.story
    assert (git_dir / "HEAD").read_text() == HEAD
    assert not any(path.is_symlink() for path in git_dir.rglob("*"))
    assert list((git_dir / "hooks").iterdir()) == []
    assert (git_dir / "config").read_bytes() == config
