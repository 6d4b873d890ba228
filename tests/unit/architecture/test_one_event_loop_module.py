"""asyncio's own interface is used where the loop is wrapped; the rest is written for anyio."""

from __future__ import annotations

import ast
from pathlib import Path

import sandboxd


def test_only_one_module_imports_asyncio() -> None:
    root = Path(sandboxd.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.partition(".")[0] == "asyncio" for name in names):
                found.add(path.relative_to(root).as_posix())
    # The second is the event loop itself, on Windows.
    assert found == {"event_loop.py", "platform/windows/loop.py"}
