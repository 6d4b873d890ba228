"""jsonrpcserver without jsonschema, which it imports for its default validator and which takes a
sixth of an idle daemon's memory. The dispatcher never uses that validator: msgspec validates."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NoReturn

_NAME = "jsonschema.validators"


class _NoValidator:
    def __init__(self, schema: Any) -> None:
        pass

    @staticmethod
    def check_schema(schema: Any) -> None:
        pass

    def validate(self, request: Any) -> NoReturn:
        raise AssertionError("requests are validated by msgspec")


_stand_in = ModuleType(_NAME)
_stand_in.__dict__["validator_for"] = lambda schema: _NoValidator
_before = sys.modules.get(_NAME)
sys.modules[_NAME] = _stand_in
try:
    from jsonrpcserver import JsonRpcError, Success, dispatch_to_serializable
finally:
    del sys.modules[_NAME]
    if _before is not None:
        sys.modules[_NAME] = _before

__all__ = ["JsonRpcError", "Success", "dispatch_to_serializable"]
