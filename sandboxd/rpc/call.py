"""What a handler knows about the call that it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandboxd.rpc.connection import Connection
    from sandboxd.rpc.service import Service
    from sandboxd.supervisor.execution import Execution


@dataclass(frozen=True, slots=True)
class Call:
    """`registered`: to be called once later frames may refer to what this call made."""

    service: Service
    connection: Connection
    registered: Callable[[Execution | None], None]
    descriptors: Callable[[], tuple[int, ...]]
    request_id: Any = None
