"""What a handler knows about the call that it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandboxd.rpc.connection import Connection
    from sandboxd.rpc.service import Service
    from sandboxd.supervisor.execution import Execution


@dataclass(frozen=True, slots=True)
class Call:
    """`offset`: where its frame began, which is what tells whose the descriptors are."""

    service: Service
    connection: Connection
    offset: int
    request_id: Any = None

    def descriptors(self) -> tuple[int, ...]:
        """Those that came with this request; whoever takes them closes them."""
        return self.connection.descriptors.take(self.offset)

    def runs(self, execution: Execution) -> None:
        """From here on the request can be cancelled by its id."""
        self.connection.runs(self.request_id, execution)
