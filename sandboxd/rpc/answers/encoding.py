"""Answers and notifications as JSON, with paths as the system's users write them."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from typing import Any

    from sandboxd.rpc.answers.windows_paths import native_answer
    from sandboxd_proto import wire

    def encode(message: Any) -> bytes:
        return wire.encode(native_answer(message))

else:
    from sandboxd_proto.wire import encode

__all__ = ["encode"]
