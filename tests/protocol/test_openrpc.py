"""The committed OpenRPC document is the one that the structs give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandboxd.rpc.handlers.server import discover
from sandboxd_proto.examples import EXAMPLES
from sandboxd_proto.messages.execution import NoParams
from sandboxd_proto.methods import BY_NAME, METHODS, NOTIFICATIONS
from sandboxd_proto.openrpc import document, rendered
from sandboxd_proto.wire import convert

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


def test_every_method_has_an_example_that_its_struct_accepts() -> None:
    assert set(EXAMPLES) == set(BY_NAME)
    for name, params in EXAMPLES.items():
        assert convert(params, BY_NAME[name].params) is not None


def test_every_method_lists_its_errors() -> None:
    known = set(document()["components"]["errors"])
    for method in document()["methods"]:
        named = {error["$ref"].rsplit("/", 1)[1] for error in method["errors"]}
        assert named
        assert named <= known


def test_enums_have_a_type_and_what_is_always_sent_is_required() -> None:
    schemas = document()["components"]["schemas"]
    assert schemas["Denial"]["properties"]["kind"]["type"] == "string"
    result = schemas["ExecuteResult"]
    assert {"denials", "warnings", "network_usage", "backend"} <= set(result["required"])
    assert "gap_at" not in schemas["Captured"]["required"]
    assert schemas["ExecuteParams"]["required"] == ["argv"]


def test_the_daemon_makes_the_document_once() -> None:
    """Made at each request it kept the event loop for tens of milliseconds."""
    context: Any = None
    assert discover(context, NoParams()) is discover(context, NoParams())
    assert json.loads(bytes(discover(context, NoParams()))) == json.loads(rendered())
