"""A hint for a command that succeeded at once, and left a process that ended with its sandbox.

Read off the command's words: nothing is said where what follows a job may take its time, wait for
the job or end it.
"""

from __future__ import annotations

from sandboxd_client.cli.hints.shell_lines import after_last_job, line_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Commands that end at once, and leave a job alone.
_QUICK = frozenset(("echo", "printf", "true", ":", "exit", "disown", "date"))
_WAITS = frozenset(("-w", "--wait", "-fw", "-wf", "-cw", "-wc", "-h", "--help", "-V", "--version"))


def left_job(argv: Sequence[str]) -> str | None:
    if not (_leaves_session(argv) or _leaves_job(argv)):
        return None
    return (
        "what it left in the background ended with it. To leave a command running: sandboxctl run "
        "--detach -- COMMAND; for others that are to reach it: sandboxctl sandbox create --name "
        "web; sandboxctl sandbox run --detach web -- COMMAND"
    )


def _leaves_session(argv: Sequence[str]) -> bool:
    """The command leads its process group, so that setsid forks, and does not wait."""
    if argv[0].rpartition("/")[2] != "setsid":
        return False
    flags = next((number for number, word in enumerate(argv[1:]) if word[:1] != "-"), None)
    return flags is not None and not _WAITS & set(argv[1 : flags + 1])


def _leaves_job(argv: Sequence[str]) -> bool:
    line = line_of(argv)
    if line is None or "&" not in line or "trap" in line:
        return False
    commands = after_last_job(line)
    return commands is not None and all(words[0] in _QUICK for words in commands)
