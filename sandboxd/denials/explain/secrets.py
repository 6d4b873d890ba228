"""Whether a path holds a secret: what is masked in this plan, and what would be by default."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from sandboxd.denials.context import HostView, Setting
from sandboxd.denials.rules.path_status import PathStatus
from sandboxd.policy.data import secrets
from sandboxd.policy.display_names import named
from sandboxd.policy.paths.within import within, within_any


def secret_reason(setting: Setting, at: PathStatus) -> str | None:
    """Why the path is not proposed; None if it is no secret."""
    known = _known(at.path, homes_for(setting, at.path))
    if known is not None:
        return known
    if at.masked and denied_reason(setting, at) is None:
        return f"{named(at.place.path)} is masked: the daemon hides it"
    return None


def denied_reason(setting: Setting, at: PathStatus) -> str | None:
    """Of a path that the request itself hides."""
    if not at.masked or at.place.path not in setting.plan.denied:
        return None
    return f"{named(at.place.path)} is masked: fs_deny hides it"


def hidden_by_default(setting: Setting, mask: str) -> bool:
    """Whether a request that names the masked path would see it."""
    if within_any(mask, setting.withheld) or setting.host.foreign_home(mask):
        return False
    return _known(mask, homes_for(setting, mask)) is not None


def _known(path: str, homes: Iterable[str]) -> str | None:
    for group in secrets.SYSTEM:
        if within_any(path, group.paths):
            return group.why
    for home in homes:
        for group in secrets.HOME:
            if any(within(path, f"{home}/{one}") for one in group.paths):
                return group.why
    return None


def homes_for(setting: Setting, path: str) -> list[str]:
    """The home folder of the command's user, root's, and the one in /home that `path` lies in; also
    where they really are, if links lead there."""
    parts = path.split("/")
    around = "/".join(parts[:3]) if len(parts) > 2 and parts[1] in {"home", "Users"} else ""
    own = dict(setting.plan.env).get("HOME", "").rstrip("/")
    found = (own, setting.host.home, "/root", around)
    homes = [home for home in found if home.startswith("/")]
    return list(dict.fromkeys([*homes, *(_really(setting.host, home) for home in homes)]))


@lru_cache(maxsize=64)
def _really(host: HostView, home: str) -> str:
    return host.canonical(home)
