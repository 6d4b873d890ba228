"""In the place of `raw_mode` on Windows, where sandboxctl reads no single keys."""

from __future__ import annotations

from sandboxd_client.cli.parse import UsageError


class SingleKeys:
    def __enter__(self) -> None:
        raise UsageError(
            "sandboxctl reads no single keys on Windows",
            "write sandboxctl approve ID --once, or --list; sandboxctl top --once",
        )

    def __exit__(self, *error: object) -> None:
        """It is never entered."""


def drop_typed() -> None:
    """There is nothing to forget."""
