"""A backend without our init refuses `fs/*` and `sandbox/forward` by name, and runs commands on."""

from __future__ import annotations

from typing import Any

import pytest

from support.rpc import Connection, RpcError

OPERATIONS: dict[str, dict[str, Any]] = {
    "fs/read": {"path": "f"},
    "fs/write": {"path": "f", "data": "x"},
    "fs/stat": {"path": "f"},
    "fs/list": {"path": "."},
    "fs/mkdir": {"path": "d"},
    "fs/remove": {"path": "f"},
    "fs/rename": {"from": "f", "to": "g"},
    "fs/copy": {"from": "f", "to": "g"},
    "fs/realpath": {"path": "f"},
    "sandbox/forward": {"port": 8000},
}


def check_files_are_refused(connection: Connection, sandbox: str, backend: str) -> None:
    for method, params in OPERATIONS.items():
        with pytest.raises(RpcError) as error:
            connection.call(method, {"sandbox": sandbox, **params})
        assert (error.value.code, error.value.kind) == (-32002, "PolicyNotSupported"), method
        assert error.value.field == "sandbox"
        assert backend in error.value.message
        assert error.value.remedy
