"""How a limit that was too low is raised. What the command needs is not known, so the value that
the daemon proposes is an example, and not what would allow the command."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_WORDS = {
    "--timeout": "more time",
    "--cpu": "more CPU time",
    "--memory": "more memory",
    "--processes": "more processes",
    "--tmp-size": "a larger /tmp",
    "--shm-size": "a larger /dev/shm",
}
UNKNOWN = "how much it needs is not known: the limit is an example"


def is_example(flag: str) -> bool:
    return flag.partition(" ")[0] in _WORDS


def more_of(flags: Sequence[str], command: str = "") -> str:
    """What the command is to get, with flags of limits, and what they belong to, as an example."""
    names = dict.fromkeys(_WORDS[flag.partition(" ")[0]] for flag in flags)
    return f"{' and '.join(names)}, for example{command} {' '.join(flags)}"
