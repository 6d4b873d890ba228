"""Sandboxes of Windows: AppContainer profiles, access lists and job objects."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sandboxd.backends.interface import BackendContext

if TYPE_CHECKING:
    from sandboxd.backends.appcontainer.backend import AppContainer

if sys.platform == "win32":

    def make(context: BackendContext) -> AppContainer:
        from sandboxd.backends.appcontainer.backend import AppContainer

        return AppContainer(context.windows_support)
