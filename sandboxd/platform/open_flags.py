"""Flags of os.open, in one place; 0 where a system does not have one."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    PRIVATE = os.O_NOINHERIT | os.O_BINARY
    NO_FOLLOW = _FOLDER_ONLY = 0
    QUIETLY = PRIVATE
else:
    PRIVATE = os.O_CLOEXEC  # programs that are started do not get it
    NO_FOLLOW, _FOLDER_ONLY = os.O_NOFOLLOW, os.O_DIRECTORY
    QUIETLY = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY  # a pipe or terminal does not block

LIST_FOLDER = os.O_RDONLY | _FOLDER_ONLY | PRIVATE
OPEN_FOLDER = LIST_FOLDER | NO_FOLLOW
# Only to name a file or folder. Without O_PATH it has to be readable for that.
PATH_ONLY: int = getattr(os, "O_PATH", os.O_RDONLY)
