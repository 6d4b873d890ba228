"""The committed OpenRPC document is the one that the structs give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandboxd_proto.methods import METHODS, NOTIFICATIONS
from sandboxd_proto.openrpc import document, rendered

COMMITTED = Path(__file__).parents[2] / "proto" / "openrpc.json"


def test_the_committed_document_is_current() -> None:
    assert COMMITTED.read_bytes() == rendered(), (
        "proto/openrpc.json has drifted: run `python -m sandboxd_proto.openrpc`"
    )


def test_every_method_and_notification_is_in_it() -> None:
    written = document()
    assert [m["name"] for m in written["methods"]] == [m.name for m in METHODS]
    assert [n["name"] for n in written["x-notifications"]] == [n.name for n in NOTIFICATIONS]


def test_every_reference_leads_somewhere() -> None:
    written = json.loads(rendered())
    for reference in references(written):
        target: Any = written
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]
        assert target


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [r for inner in value.values() for r in references(inner)]
    if isinstance(value, list):
        return [r for inner in value for r in references(inner)]
    return []


def test_only_argv_is_required_by_execute() -> None:
    execute = next(m for m in document()["methods"] if m["name"] == "execute")
    assert [p["name"] for p in execute["params"] if p["required"]] == ["argv"]
    assert execute["paramStructure"] == "by-name"
