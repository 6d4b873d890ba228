"""Where the masked spellings have led since the daemon started.

A mask lies on what a symlink leads to, and the link may lie where commands write: one command
removes or exchanges it, and the next plan would find nothing to mask behind it. So plans mask what
the same spelling led to before, too.
"""

from __future__ import annotations

import threading

from sandboxd.policy.data.system_dirs import PROGRAMS
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.closed_folders import closed_folder
from sandboxd.policy.paths.recording import Fact
from sandboxd.policy.paths.within import within, within_any

# The first ones stay: links that commands make push none of the user's out.
MOST = 4096
_MOST_OF_ONE = 16

_led: dict[str, tuple[str, ...]] = {}
_lock = threading.Lock()
_count = 0
_unchanged = Fact()  # until more is known


def ends(spelling: str) -> list[str]:
    """Canonical: where it leads now, first, and where it has led before. These may be gone."""
    now = recording_fs.realpath(spelling)
    return [now, *former(spelling, now)]


def former(spelling: str, now: str) -> list[str]:
    """Where it led before `now`, which is remembered."""
    key = _key(spelling)
    with _lock:
        before = _led.get(key, ())
        if now != key and now not in before and _is_kept(key, now, before):
            _add(key, now)
        recording_fs.holds_while(_unchanged)
    # A command whose plan had no such mask may have put a link in the place of one.
    found = dict.fromkeys(recording_fs.realpath(path) for path in before if path != now)
    return [path for path in found if path != now and not _holds_much(key, path)]


def is_known(spelling: str) -> bool:
    with _lock:
        recording_fs.holds_while(_unchanged)
        return _key(spelling) in _led


def forget() -> None:
    """All of it, as at the daemon's start."""
    global _count
    with _lock:
        _led.clear()
        _count = 0


def _add(key: str, path: str) -> None:
    global _count, _unchanged
    _led[key] = (*_led.get(key, ()), path)
    _count += 1
    _unchanged.holds = False
    _unchanged = Fact()


def _is_kept(key: str, path: str, before: tuple[str, ...]) -> bool:
    full = _count >= MOST or len(before) >= _MOST_OF_ONE
    # Behind a closed folder the way may go on: this is not where it leads.
    return not full and not _holds_much(key, path) and closed_folder(path) is None


def _holds_much(key: str, path: str) -> bool:
    """What only a command would make a secret's link lead to, so that later ones find nothing."""
    return any(within(one, path) for one in (key, *PROGRAMS)) or within_any(path, PROGRAMS)


def _key(spelling: str) -> str:
    return "/" + "/".join(name for name in spelling.split("/") if name not in ("", "."))
