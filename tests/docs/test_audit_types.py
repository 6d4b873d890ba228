"""docs/audit.md names every type of record that the daemon writes."""

from __future__ import annotations

import ast
import re

from support.daemon import ROOT

from sandboxd_proto.messages.audit import RECORD_TYPES

PARTS = "daemon|audit|session|execution|approval|grant|sandbox|fs|forward|budget|egress"
TYPE = re.compile(rf"(?:{PARTS})\.(?!allow$)[a-z]+")
# Written as f"session.{kind}".
SESSION = {"session.opened", "session.changed", "session.closed"}


def written_types() -> set[str]:
    found = set(SESSION)
    for path in (ROOT / "sandboxd").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} if TYPE.fullmatch(node.value) else set()
    return found


def test_every_type_is_documented() -> None:
    documented = set(re.findall(rf"`((?:{PARTS})\.[a-z]+)`", (ROOT / "docs/audit.md").read_text()))
    types = written_types()
    assert {"execution.started", "approval.resolved", "audit.gap"} <= types
    assert types <= documented, f"not in docs/audit.md: {sorted(types - documented)}"
    assert set(RECORD_TYPES) == documented - {"session.id"}, "what audit/query may ask for"
