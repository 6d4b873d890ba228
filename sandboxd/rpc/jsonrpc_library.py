"""jsonrpcserver without what it imports and the dispatcher never uses: jsonschema for its default
validator (msgspec validates), and the HTTP server of the standard library. Together they would take
a fifth of an idle daemon's memory."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NoReturn


class _NoValidator:
    def __init__(self, schema: Any) -> None:
        pass

    @staticmethod
    def check_schema(schema: Any) -> None:
        pass

    def validate(self, request: Any) -> NoReturn:
        raise AssertionError("requests are validated by msgspec")


_STAND_INS: dict[str, dict[str, Any]] = {
    "jsonschema.validators": {"validator_for": lambda schema: _NoValidator},
    "http.server": {"BaseHTTPRequestHandler": object, "HTTPServer": object},
}


def _stand_in(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(_STAND_INS[name])
    return module


_before = {name: sys.modules.get(name) for name in _STAND_INS}
sys.modules.update({name: _stand_in(name) for name in _STAND_INS})
try:
    from jsonrpcserver import JsonRpcError, Success, dispatch_to_serializable
finally:
    for _name, _module in _before.items():
        del sys.modules[_name]
        if _module is not None:
            sys.modules[_name] = _module

__all__ = ["JsonRpcError", "Success", "dispatch_to_serializable"]
