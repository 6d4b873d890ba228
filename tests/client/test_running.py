"""What runs in the workspace beside a command whose hint is to do something outside."""

from __future__ import annotations

import os
import subprocess

import pytest
from ctl import Ctl


@pytest.mark.parametrize("what", ["nothing", "a command", "a sandbox", "a command elsewhere"])
def test_a_hint_to_change_protected_files_outside_names_what_that_would_end(
    inside: Ctl, what: str
) -> None:
    name = f"beside-{os.getpid()}"
    end = ("kill", name)
    subprocess.run(["rm", "-rf", str(inside.workspace / ".git")], check=True)
    subprocess.run(["git", "init", "-q", str(inside.workspace)], check=True)
    if what == "a sandbox":
        end = ("sandbox destroy", name)
        assert inside("sandbox create", "--name", name).returncode == 0
    elif what != "nothing":
        folder = inside.workspace / ".." / "other" if "elsewhere" in what else inside.workspace
        folder.mkdir(exist_ok=True)
        given = ("--detach", "--name", name, "--workspace", str(folder))
        assert inside("run", *given, "sleep", "60").returncode == 0
    try:
        said = inside("run", "git", "remote", "add", "origin", "url").stderr.decode()
    finally:
        if what != "nothing":
            assert inside(*end).returncode == 0
    assert "outside of the sandbox: git remote add origin url" in said
    named = f"end what runs in this workspace: sandboxctl {end[0]} {name}. It is ended" in said
    assert named == (what in ("a command", "a sandbox")), said
