"""Answers as clients on Windows read them: `C:\\Users\\me` where the daemon says `/C:/Users/me`.

Pure. What the command itself said stays as it is: its arguments, its variables and its output. The
audit trail's records stay too, since they form a chain of checksums.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sandboxd.platform.windows.paths import native_text, native_value
from sandboxd_proto.messages.audit import Record
from sandboxd_proto.messages.execute import Captured
from sandboxd_proto.messages.fs import FileData
from sandboxd_proto.messages.notifications import Output

_OF_THE_COMMAND = {"argv", "display", "env", "execution_id", "id"}
_SENTENCES = {"message", "problem", "question", "reason", "warnings"}
_UNCHANGED = (Captured, FileData, Output, Record, msgspec.Raw)


def native_answer(value: Any, name: str = "") -> Any:
    """`name`: the field that holds it."""
    if isinstance(value, str):
        return native_text(value) if name in _SENTENCES else native_value(value)
    if isinstance(value, _UNCHANGED):
        return value
    if isinstance(value, dict):
        return {key: _field(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_field(item, name) for item in value]
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        changed = {key: _field(getattr(value, key), key) for key in fields}
        return msgspec.structs.replace(value, **changed)
    return value


def _field(value: Any, name: str) -> Any:
    return value if name in _OF_THE_COMMAND else native_answer(value, name)
