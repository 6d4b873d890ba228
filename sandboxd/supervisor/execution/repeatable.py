"""Mark refusals after which a client may send the same request again: nothing has run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd_proto.errors import PathDenied


@contextmanager
def before_the_command() -> Iterator[None]:
    """Others changed what the sandbox is made of: the next plan has it as it is then."""
    try:
        yield
    except PathDenied as error:
        if sys.platform == "linux":
            from sandboxd.linux.openat import PathChanged

            if isinstance(error, PathChanged):
                error.facts["again"] = True
        raise
