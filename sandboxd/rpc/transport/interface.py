"""What a transport is: a listener that accepts connections, and the bytes of each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from sandboxd_proto.errors import Unauthorized
from sandboxd_proto.framing import Framing

Sink = Callable[[bytes, list[int]], None]


class ListenError(Exception):
    """The daemon cannot listen there; the message says why and what to do."""


class Transport(Protocol):
    """One connection: chunks with their descriptors in, whole frames out, in order."""

    on_close: Callable[[], None] | None
    framing: Framing

    def listen(self, sink: Sink) -> None:
        """`sink` gets what arrives, with its descriptors, and empty bytes at the end."""

    def pause(self) -> None:
        """Until `listen`: nothing more is read."""

    async def send(self, body: bytes) -> None:
        """Waits while the peer does not read. Silently dropped once the connection is closed."""

    def send_at_once(self, body: bytes) -> Callable[[], Awaitable[None]] | None:
        """`send` for a caller that must not wait: if it answers something, a task awaits that."""

    def hung_up(self) -> bool:
        """Whether the peer closed both directions (and not only its writing side)."""

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...


class Accepted(Protocol):
    """A connection that was accepted; its peer is not checked yet."""

    pid: int | None

    def identify(self) -> None:
        """Identify the peer, as far as that is possible before it has sent anything."""

    def transport(self) -> Transport: ...

    def refusal(self) -> Unauthorized | None:
        """Why this peer is refused; None if it is accepted. Asked at the first frame."""

    def close(self) -> None: ...


class Listener(Protocol):
    """Where the daemon listens. `made_here`: not given by a service manager."""

    @property
    def path(self) -> str: ...

    @property
    def made_here(self) -> bool: ...

    async def accept(self, *, allow_other_namespaces: bool) -> Accepted:
        """The next connection. Failures to accept are logged and tried again."""

    def close(self) -> None: ...
