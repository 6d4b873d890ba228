"""Documents name files that exist: every test that holds a guarantee, every module of the map."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support.daemon import ROOT

DOCUMENTS = ("README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "docs/modes.md",
             "docs/audit.md")  # fmt: skip
# Folders of the checkout whose files a document may name in backquotes.
NAMED = re.compile(r"`((?:tests|sandboxd|client|proto|scripts|docs|systemd|bench)/[\w./-]+)`")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_is_named_exists(document: str) -> None:
    missing = [name for name in NAMED.findall((ROOT / document).read_text()) if not exists(name)]
    assert not missing, f"{document} names {missing}"


def exists(name: str) -> bool:
    return (ROOT / name).exists() or (ROOT / f"{name}.py").exists()


def test_the_tree_names_every_folder_of_the_daemon() -> None:
    tree = (ROOT / "ARCHITECTURE.md").read_text().partition("## The tree")[2].partition("\n## ")[0]
    sources = (path for kind in ("*.py", "*.c") for path in (ROOT / "sandboxd").rglob(kind))
    folders = {path.parent.name for path in sources}
    assert not [name for name in sorted(folders) if f"{name}/" not in tree]


def guarantees() -> list[tuple[str, list[str]]]:
    text = (ROOT / "SECURITY.md").read_text()
    section = text.partition("\n## Guarantees\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [(row[0].strip(), NAMED.findall(row[1])) for row in rows if "guarantee" not in row[0]]


def test_every_guarantee_names_tests_that_exist() -> None:
    found = guarantees()
    assert len(found) > 20
    for guarantee, tests in found:
        assert tests, f"no test holds: {guarantee}"
        for name in tests:
            path = ROOT / name
            files = [path] if path.is_file() else list(path.rglob("test_*.py"))
            assert files, f"{name} does not exist; it holds: {guarantee}"
            assert any(holds_tests(file) for file in files), f"{name} holds no test"


def holds_tests(path: Path) -> bool:
    return re.search(r"^(async )?def test_", path.read_text(), re.MULTILINE) is not None


def test_documents_name_no_path_of_one_machine() -> None:
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        assert not re.search(r"\.\./shared|/work/", text), document


def test_make_install_says_where_the_programs_are() -> None:
    words = ["make", "--dry-run", "-C", str(ROOT), "install"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "the programs are .venv/bin/sandboxd and .venv/bin/sandboxctl" in said
