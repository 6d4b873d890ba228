"""No file of the checkout names a package or image registry.

What is installed and where it comes from is the machine's own setting (pip's, npm's, the engine's):
a name in the tree would send a build past it, or fail where only a mirror can be reached.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from support.daemon import ROOT

# In pieces, so that this file holds none of them.
REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("registry-1", "docker", "io"), ("index", "docker", "io"), ("ghcr", "io"), ("quay", "io"),
        ("gcr", "io"), ("mcr", "microsoft", "com"), ("public", "ecr", "aws"),
        ("registry", "npmjs", "org"), ("registry", "yarnpkg", "com"), ("pypi", "org"),
        ("pythonhosted", "org"), ("crates", "io"), ("proxy", "golang", "org"),
        ("rubygems", "org"), ("repo", "maven", "apache", "org"), ("repo1", "maven", "org"),
    )
)  # fmt: skip
# Not settings, but facts: what a program that was denied the network usually needs, and what real
# programs printed when they were recorded.
FACTS = (
    "sandboxd/denials/text/known_programs.py",
    "tests/denials/test_remedies.py",
    "tests/denials/data/",
)


# What is built or downloaded, not written.
SKIPPED = {"node_modules", "__pycache__", "dist", "build"}
HIDDEN = {".ci", ".github"}


def sources() -> Iterator[Path]:
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [
            name for name in folders
            if name not in SKIPPED and (name in HIDDEN or not name.startswith("."))
        ]  # fmt: skip
        yield from (Path(folder, name) for name in files)


def test_no_file_names_a_registry() -> None:
    facts, named = [], []
    for path in sources():
        text = path.read_bytes()
        if any(name.encode() in text for name in REGISTRIES):
            place = str(path.relative_to(ROOT))
            (facts if place.startswith(FACTS) else named).append(place)
    assert facts, "the search finds what is there"
    assert named == []
