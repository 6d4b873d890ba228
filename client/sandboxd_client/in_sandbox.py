"""Whether this process runs in a sandbox, from where no daemon can be reached."""

from __future__ import annotations

from contextlib import suppress

_INIT = b"sandboxd-init"
_MOST_ABOVE = 64


def is_inside() -> bool:
    """Whether the first process is a sandbox's init, or without a pid namespace one above is."""
    pid = b"self"
    for _ in range(_MOST_ABOVE):
        name, pid = _name_and_parent(pid)
        if name == _INIT or pid in (b"0", b""):
            return name == _INIT
    return False


def _name_and_parent(pid: bytes) -> tuple[bytes, bytes]:
    with suppress(OSError), open(b"/proc/%s/status" % pid, "rb") as file:
        lines = dict(line.partition(b":\t")[::2] for line in file)
        return lines.get(b"Name", b"").strip(), lines.get(b"PPid", b"").strip()
    return b"", b""
