"""What pip is configured to find without a network is passed on, and nothing else of its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from ctl import Ctl

from sandboxd_client.cli.flags import RUN
from sandboxd_client.cli.parse import parse
from sandboxd_client.cli.pip_sources import local_sources
from sandboxd_client.cli.request import policy

CASES = {
    "links": ("find-links = /wheels\nno-index = true", {"FIND_LINKS": "/wheels", "NO_INDEX": "1"}),
    "index": ("extra-index-url = file:///index", {"EXTRA_INDEX_URL": "file:///index"}),
    "both kinds": (
        "find-links =\n  /a\n  https://me:token@b.example\n  ~/c",
        {"FIND_LINKS": "/a ~/c"},
    ),
    "links of a host": ("find-links = https://b.example\nno-index = true", {}),
    "an index of a host": ("index-url = https://me:token@index.example/simple", {}),
    "switched off": ("no-index = false", {}),
    "no settings": ("[", {}),
}


def write(home: Path, text: str) -> Path:
    folder = home / ".config" / "pip"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pip.conf").write_text(f"[global]\n{text}\n")
    return folder


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_sources_without_a_network(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    found = local_sources([f"{write(tmp_path, text)}/pip.conf"], {})
    assert found == {f"PIP_{name}": value for name, value in expected.items()}


def test_a_variable_counts_before_a_file(tmp_path: Path) -> None:
    files = [f"{write(tmp_path, 'find-links = /wheels')}/pip.conf"]
    assert local_sources(files, {"PIP_FIND_LINKS": "/others"}) == {"PIP_FIND_LINKS": "/others"}


def test_a_command_has_them_without_a_network(tmp_path: Path) -> None:
    write(tmp_path, "find-links = /wheels")
    caller = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    shown = ["--preset", "read-only", "--workspace", str(tmp_path)]
    asked = policy(parse(RUN, [*shown, "true"]), caller)
    assert ["PIP_FIND_LINKS", "/wheels"] in asked["manifest"]["env"]
    own = policy(parse(RUN, [*shown, "--env", "PIP_FIND_LINKS=/x", "true"]), caller)
    assert ["PIP_FIND_LINKS", "/x"] in own["manifest"]["env"]


def test_a_settings_file_in_a_folder_that_is_shown_stays_empty(inside: Ctl, folder: Path) -> None:
    """A program that reads it says nothing of that, so the result does, if the command failed."""
    shown = write(folder, "index-url = https://index.example/simple")
    said = f"warning: {shown}/pip.conf is empty inside, although {shown} is shown"

    def stderr(*words: str) -> str:
        ran = inside("run", "--read", str(shown), *words, HOME=str(folder))
        return ran.stderr.decode()

    assert said in stderr("--", "false")
    assert said not in stderr("--", "true")
    assert "is empty inside" not in stderr("--read", f"{shown}/pip.conf", "--", "false")
