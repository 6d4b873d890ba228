"""What tells a service manager that the daemon is ready, alive and stopping."""

from __future__ import annotations

from typing import Protocol


class ServiceNotifier(Protocol):
    def say(self, text: str) -> None: ...

    async def watchdog(self) -> None:
        """Until it is cancelled; returns at once where no service manager watches."""


class NoNotifier:
    """Where no service manager is told."""

    def say(self, text: str) -> None:
        """Nothing is said."""

    async def watchdog(self) -> None:
        """Nothing watches."""
