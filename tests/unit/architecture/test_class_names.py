"""A class name has one meaning in the product."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("sandboxd", "client/sandboxd_client", "proto/sandboxd_proto")
# The same thing seen from both sides of the socket, or the same interface on two systems.
TWICE = {
    "Execution", "FolderEvents", "Notice", "ReadEnd", "SingleKeys",
    "Subscription", "Touched", "WriteEnd",
}  # fmt: skip


def test_no_public_class_name_is_used_for_two_things() -> None:
    found = defaultdict(set)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].add(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1}.keys() == TWICE
