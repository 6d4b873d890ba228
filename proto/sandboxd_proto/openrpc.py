"""The OpenRPC document, generated from the structs by `python -m sandboxd_proto.openrpc`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import msgspec

from sandboxd_proto import PROTOCOL_VERSION
from sandboxd_proto.errors import ERRORS
from sandboxd_proto.examples import EXAMPLES
from sandboxd_proto.methods import METHODS, NOTIFICATIONS, Method
from sandboxd_proto.secret import Secret
from sandboxd_proto.wire import Reported

_REF = "#/components/schemas/{name}"
_COMMON = ("InvalidParams", "Unauthorized", "Busy", "InternalError")
_PLANS = (
    "ManifestInvalid", "PathDenied", "PolicyNotSupported", "CeilingExceeded",
    "SandboxUnavailable", "NotFound",
)  # fmt: skip
_RUNS = (*_PLANS, "ApprovalDenied", "ApprovalPending", "BudgetExceeded", "ShuttingDown")
_BY_GROUP: dict[str, tuple[str, ...]] = {
    "execute": (*_RUNS, "ExecFailed"),
    "sandbox/create": (*_RUNS, "Conflict"),
    "manifest": _PLANS,
    "execution": ("NotFound",),
    "sandbox": ("NotFound", "PolicyNotSupported", "ApprovalDenied"),
    "fs": ("NotFound", "FileError", "PolicyNotSupported", "SandboxUnavailable", "ApprovalDenied"),
    "session": ("NotFound", "Conflict", "ApprovalDenied", "BudgetExceeded"),
    "approval": ("NotFound", "Conflict"),
    "grant": ("NotFound",),
    "events": ("NotFound", "SandboxUnavailable"),
    "audit": ("SandboxUnavailable",),
}


def document() -> dict[str, Any]:
    """Params are by name only, so each field of a params struct is one OpenRPC parameter."""
    results = [_alternatives(method) for method in METHODS]
    types = [t for m, r in zip(METHODS, results, strict=True) for t in (m.params, *r)]
    schemas, components = msgspec.json.schema_components(
        [*types, *(n.params for n in NOTIFICATIONS)], ref_template=_REF, schema_hook=_schema
    )
    _complete(components)
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


def _schema(kind: type[Any]) -> dict[str, Any]:
    if kind is Secret:
        return {"type": "string"}
    raise NotImplementedError(f"{kind.__name__} has no schema")


def _complete(components: dict[str, Any]) -> None:
    """What code generators need: enums with a type, and fields that are always sent required."""
    always_sent = {struct.__name__: _always_sent(struct) for struct in _structs(Reported)}
    for name, schema in components.items():
        _as_draft_07(schema)
        if "description" in schema:  # a docstring; Python removes its indentation since 3.13
            schema["description"] = inspect.cleandoc(schema["description"])
        if name in always_sent:
            properties = schema.get("properties", {})
            schema["required"] = [field for field in properties if field in always_sent[name]]
            for field in schema["required"]:
                properties[field].pop("default", None)


def _structs(base: type[Any]) -> list[type[Any]]:
    found = [base]
    for struct in base.__subclasses__():
        found += _structs(struct)
    return found


def _always_sent(struct: type[Any]) -> set[str]:
    return {
        field.encode_name
        for field in msgspec.structs.fields(struct)
        if field.default is not msgspec.UNSET
    }


def _as_draft_07(schema: Any) -> None:
    """Enums with a type, and tuples in the words of draft 07, which OpenRPC refers to."""
    if isinstance(schema, dict):
        values = schema.get("enum")
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            schema["type"] = "string"
        if "prefixItems" in schema:
            schema["items"] = schema.pop("prefixItems")
            schema["additionalItems"] = False
        for inner in schema.values():
            _as_draft_07(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _as_draft_07(inner)


def _errors_of(method: str) -> list[dict[str, str]]:
    """Every method may answer the common ones; the others by what the method does."""
    group = method.partition("/")[0]
    kinds = [*_COMMON, *_BY_GROUP.get(method, _BY_GROUP.get(group, ()))]
    return [{"$ref": f"#/components/errors/{kind}"} for kind in kinds]


def _example(method: Method) -> dict[str, Any]:
    params = [{"name": name, "value": value} for name, value in EXAMPLES[method.name].items()]
    return {"name": method.name, "params": params}


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
        "errors": _errors_of(method.name),
        "examples": [_example(method)],
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
