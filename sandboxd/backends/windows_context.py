"""What the Windows backends share for the life of the daemon."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandboxd.windows.processes import console
from sandboxd_proto.errors import SandboxUnavailable

if TYPE_CHECKING:
    from sandboxd.windows.job_objects.jobs import JobPort


ELEVATED = (
    "the daemon runs with an administrator's rights, which its commands would have in part",
    "start sandboxd without elevation, or set [windows] allow_elevated = true",
)


@dataclass(slots=True)
class WindowsSupport:
    """`folder`: the daemon's own, a host path; journals and private temporary folders lie there.

    `port` exists while the daemon serves. `elevated`: the daemon's token is an administrator's.
    `processes`: the most in one sandbox, where the manifest names no limit. `terminals`: commands
    can have one.
    """

    folder: str
    elevated: bool = False
    allow_elevated: bool = False
    processes: int = 64
    build: int = 0
    terminals: bool = console.VERIFIED
    port: JobPort | None = field(default=None)

    @property
    def refuses(self) -> bool:
        """Whether no command may run, because the daemon is elevated."""
        return self.elevated and not self.allow_elevated

    def check_elevation(self) -> None:
        if self.refuses:
            raise SandboxUnavailable(ELEVATED[0], remedy=ELEVATED[1])
