"""The sandbox that a command runs in, and how the command's changes come back from there."""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from sandboxd.backends.opensandbox.copies.workspace_copy import WorkspaceCopy
from sandboxd.backends.opensandbox.execd import Execd
from sandboxd.backends.opensandbox.http_client import ApiError
from sandboxd.types import BroughtBack, Command
from sandboxd_proto.errors import SandboxUnavailable

UNCONFIRMED = "the server did not confirm that the sandbox ended: the command may run"


class RemotePlace(Protocol):
    """`copy`: of the granted folders; None without any. `oom_kills`: how many the kernel ended for
    lack of memory, as last seen."""

    execd: Execd
    copy: WorkspaceCopy | None
    oom_kills: int

    @property
    def alive(self) -> bool: ...

    async def end(self) -> bool:
        """Delete it. False where the server did not confirm that."""


async def bring_back(place: RemotePlace, command: Command, *, alone: bool) -> BroughtBack:
    """Also after a command that was ended: what it had written by then stays, as elsewhere.

    `alone`: the sandbox served this command only, and ends with it.
    """
    if place.copy is None:
        return BroughtBack()
    if not place.alive:
        return BroughtBack(("its sandbox is gone: what it changed was not brought back",))
    async with place.copy.turn:
        try:
            fetched = await place.copy.fetch(command.progress, goes_on=not alone)
        except ApiError as error:
            raise SandboxUnavailable(
                f"what the command changed was not brought back: {error}"
            ) from None
        finally:
            ended = not alone or await place.end()
        back = BroughtBack()
        if fetched is not None:
            with fetched:
                back = await place.copy.take(fetched)
        warnings = (*place.copy.unread, *back.warnings)
        return replace(back, warnings=warnings, lost=None if ended else UNCONFIRMED)
