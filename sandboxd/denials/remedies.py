"""The narrowest manifest change that would allow a refused access; None if there is none.

A path that does not exist cannot be granted, so what was to be created needs the nearest folder
that exists. An existing file is granted itself, unless its entry in the folder had to change
(rename, remove, a temporary file beside it): a file that is a mount point cannot be replaced.
Nothing is proposed that the host's own permissions would refuse again.
"""

from __future__ import annotations

import math
import posixpath
from typing import Any

from sandboxd.denials import beyond_ceiling
from sandboxd.denials.context import HostView, Setting
from sandboxd.policy.data.system_dirs import KERNEL, TOO_WIDE_TO_PROPOSE
from sandboxd.policy.paths.within import within_any
from sandboxd.policy.plan import NetworkRule

Remedy = dict[str, Any]

_MORE = 4  # times a limit that was too low: with 2 the next run would often fail again
_USUAL_PORTS = frozenset({80, 443})


def allow_write(setting: Setting, path: str, *, in_folder: bool) -> Remedy | None:
    host = setting.host
    if within_any(path, KERNEL) or not host.permits(path, "write"):
        return None
    target = to_write(host, path, in_folder=in_folder)
    return None if _is_too_wide(setting, target) else {"fs_write_allow": [target]}


def too_wide_to_write(setting: Setting, path: str, *, in_folder: bool) -> str | None:
    """The folder that `allow_write` does not propose because it holds too much."""
    host = setting.host
    if within_any(path, KERNEL) or not host.permits(path, "write"):
        return None
    target = to_write(host, path, in_folder=in_folder)
    return target if _is_too_wide(setting, target) else None


def to_write(host: HostView, path: str, *, in_folder: bool) -> str:
    """What has to be writable for a change of `path`."""
    if in_folder or not host.exists(path):
        return existing_folder(host, path if not host.exists(path) else posixpath.dirname(path))
    return path


def _is_too_wide(setting: Setting, path: str) -> bool:
    """A whole home folder is never granted for one missing file in it."""
    home = dict(setting.plan.env).get("HOME", "/").rstrip("/")
    return path in TOO_WIDE_TO_PROPOSE or path == home


def allow_read(setting: Setting, path: str) -> Remedy | None:
    if within_any(path, KERNEL) or path in TOO_WIDE_TO_PROPOSE:
        return None
    if not setting.host.exists(path) or not setting.host.permits(path, "read"):
        return None
    return {"fs_read_allow": [_usable_whole(setting.host, path)]}


def _usable_whole(host: HostView, path: str) -> str:
    """A program of a virtual environment needs all of it, a package more than its manifest."""
    folder, name = posixpath.split(path)
    prefix = posixpath.dirname(folder)
    if posixpath.basename(folder) == "bin" and host.exists(posixpath.join(prefix, "pyvenv.cfg")):
        return prefix
    return folder if name == "package.json" and folder not in {"/", host.home} else path


def in_plan_mode(setting: Setting) -> str:
    """Why nothing is proposed; with the sessions that it is set for, and `user` for all."""
    return f"plan mode is on ({', '.join(setting.plan_flags)})"


def allow_hosts(rule: NetworkRule, *ends: tuple[str, int | None]) -> Remedy | None:
    """Hosts allowed so far stay in the list: the value is pasted as a whole.

    None without a host: the whole network is no answer to one refused connection.
    """
    if not ends:
        return None
    before = rule.named or rule.hosts if rule.kind == "allow_hosts" else ()
    hosts = dict.fromkeys([*before, *(_entry(host, port) for host, port in ends)])
    return {"network": {"kind": "allow_hosts", "hosts": list(hosts)}}


def _entry(host: str, port: int | None) -> str:
    literal = f"[{host}]" if ":" in host else host
    return literal if port is None or port in _USUAL_PORTS else f"{literal}:{port}"


def raise_limit(setting: Setting, field: str, value: float | None) -> Remedy | None:
    """Much more of a limit, as far as the config permits: what was needed is not known, only that
    this was too little."""
    if value is None:
        return None
    more, highest = math.ceil(value * _MORE), beyond_ceiling.highest(setting.ceiling, field)
    if highest is not None and value < math.floor(highest) < more:
        more = math.floor(highest)
    return {field: {"secs": more} if field == "timeout" else more}


def first_missing(host: HostView, path: str) -> str | None:
    """The topmost part of `path` that does not exist; None when all of it does."""
    missing = None
    while path != "/" and not host.exists(path):
        missing, path = path, posixpath.dirname(path)
    return missing


def existing_folder(host: HostView, path: str) -> str:
    """The path, or the folder above it, that exists."""
    while path != "/" and not host.exists(path):
        path = posixpath.dirname(path)
    return path
