"""docs/config.md is what the config structs say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from support.daemon import ROOT

from sandboxd.config.config import all_keys

REFERENCE = ROOT / "docs" / "config.md"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = ROOT / "scripts" / "config_docs.py"
    spec = importlib.util.spec_from_file_location("config_docs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_reference_is_current(generator: ModuleType) -> None:
    assert REFERENCE.read_text() == generator.rendered(), "docs/config.md: run `make docs`"


def test_every_key_is_in_it() -> None:
    sections = dict(_sections(REFERENCE))
    for key in all_keys():
        table, _, name = key.rpartition(".")
        assert f"| `{name}` |" in sections[f"[{table}]" if table else "Outside every table"], key


def _sections(path: Path) -> list[tuple[str, str]]:
    parts = path.read_text().split("\n## ")[1:]
    return [(part.partition("\n")[0], part) for part in parts]
