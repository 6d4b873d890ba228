"""Files that a command line writes to the sandbox's own /tmp, which ends with the command.

Only what the command line itself names, once: what it names again it has used, and what programs
leave in /tmp unasked nobody misses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandboxd.denials.text.command_line import CommandLine
from sandboxd.denials.text.known_programs import written
from sandboxd.policy.paths.within import within_any
from sandboxd.policy.plan import Plan
from sandboxd.policy.shown_names import named

_TMP = "/tmp/"
_LONGEST = 2048  # characters: the event loop parses them
_REMOVES = frozenset({"rm", "rmdir", "unlink", "shred", "chmod", "chown", "chgrp"})


def lost_files(plan: Plan, argv: Sequence[str]) -> str | None:
    """A warning for a command that succeeded in a sandbox of its own; None: nothing is lost."""
    spec = plan.sandbox
    if spec.shared_tmp is not None or plan.backend == "none":
        return None
    if not any(_TMP in word for word in argv) or sum(map(len, argv)) > _LONGEST:
        return None
    kept = [grant.path for grant in spec.grants]
    lost = next((path for path in _written(tuple(argv)) if not within_any(path, kept)), None)
    if lost is None:
        return None
    return (
        f"{named(lost)} is gone: the sandbox had a /tmp of its own, which ended with the command. "
        "Write into the workspace to keep a file"
    )


def _written(argv: tuple[str, ...]) -> Iterator[str]:
    command = CommandLine(argv)
    for one in command.simple:
        paths = written(one) if one.program not in _REMOVES else ()
        for path in paths:
            if path.startswith(_TMP) and path != _TMP and command.text.count(path) == 1:
                yield path
