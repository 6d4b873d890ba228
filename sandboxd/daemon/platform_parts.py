"""The interface between `daemon` and what each operating system adds to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from sandboxd.backends.interface import BackendContext
from sandboxd.config.config import Config
from sandboxd.policy.mounts.own_paths import OwnPaths
from sandboxd.policy.paths.notices import FolderNotices


class PlatformParts(msgspec.Struct, frozen=True):
    """`context`: what the system's backends are made from, given the daemon's own paths.

    `running`: around everything, for as long as it serves. `hidden`: host paths that no sandbox may
    see. `make_folder`: makes one of that name in the daemon's state; None: sessions share no /tmp.
    `notices`: tells about changed folders.
    """

    context: Callable[[Config, str, OwnPaths], BackendContext]
    running: Callable[[], AbstractAsyncContextManager[None]]
    hidden: tuple[str, ...]
    forwards_folder: str
    make_folder: Callable[[str], str] | None = None
    notices: FolderNotices | None = None
