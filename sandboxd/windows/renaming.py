"""Rename what a command made, although the command may exchange the folders above it meanwhile.

Every folder from the root down is pinned and looked at: a junction or a symlink in the place of a
folder leads elsewhere, so it is renamed itself. The last folder holds the entry, and one that is
not empty cannot be made a junction. Pure but for the renaming.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

# Whether a folder is a link; it stays where it is as long as the context lasts.
Pin = Callable[[str], AbstractContextManager[bool]]


def rename_below(root: str, parts: list[str], suffix: str, pin: Pin) -> list[str]:
    """Add `suffix` to the last of `parts`, or to the first of them that is a link.

    Answers the parts of what was renamed. OSError: it could not be, or is gone.
    """
    with ExitStack() as held:
        held.enter_context(pin(root))
        for number in range(1, len(parts)):
            folder = os.path.join(root, *parts[:number])
            with ExitStack() as opened:
                is_link = opened.enter_context(pin(folder))
                if not is_link:
                    held.push(opened.pop_all())
            if is_link:
                parts = parts[:number]
                break
        path = os.path.join(root, *parts)
        os.rename(path, path + suffix)
        return parts
