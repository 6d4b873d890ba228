"""The OpenRPC document, generated from the structs by `python -m sandboxd_proto.openrpc`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from sandboxd_proto import PROTOCOL_VERSION
from sandboxd_proto.errors import ERRORS
from sandboxd_proto.methods import METHODS, NOTIFICATIONS, Method

_REF = "#/components/schemas/{name}"


def document() -> dict[str, Any]:
    """Params are by name only, so each field of a params struct is one OpenRPC parameter."""
    results = [_alternatives(method) for method in METHODS]
    types = [t for m, r in zip(METHODS, results, strict=True) for t in (m.params, *r)]
    schemas, components = msgspec.json.schema_components(
        [*types, *(n.params for n in NOTIFICATIONS)], ref_template=_REF
    )
    schema_of = dict(zip((getattr(t, "__name__", str(t)) for t in types), schemas, strict=False))
    return {
        "openrpc": "1.3.2",
        "info": {
            "title": "sandboxd",
            "version": str(PROTOCOL_VERSION),
            "description": "Run commands in a sandbox, over a local socket.",
        },
        "methods": [_method(m, components, schema_of) for m in METHODS],
        "x-notifications": [
            {"name": n.name, "summary": n.summary, "params": _params(n.params, components)}
            for n in NOTIFICATIONS
        ],
        "components": {"schemas": components, "errors": _errors()},
    }


def _alternatives(method: Method) -> tuple[Any, ...]:
    return method.result if isinstance(method.result, tuple) else (method.result,)


def _method(
    method: Method, components: dict[str, Any], schema_of: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    results = [schema_of[getattr(t, "__name__", str(t))] for t in _alternatives(method)]
    result = results[0] if len(results) == 1 else {"oneOf": results}
    return {
        "name": method.name,
        "summary": method.summary,
        "paramStructure": "by-name",
        "params": _params(method.params, components),
        "result": {"name": "result", "schema": result},
    }


def _params(params: type[Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    schema = components[params.__name__]
    required = set(schema.get("required", ()))
    return [
        {"name": name, "required": name in required, "schema": field}
        for name, field in schema.get("properties", {}).items()
    ]


def _errors() -> dict[str, Any]:
    return {error.kind: {"code": error.code, "message": error.kind} for error in ERRORS}


def rendered() -> bytes:
    return msgspec.json.format(msgspec.json.encode(document(), order="deterministic")) + b"\n"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("proto/openrpc.json")
    target.write_bytes(rendered())
