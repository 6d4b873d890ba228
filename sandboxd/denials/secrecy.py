"""Whether a path holds a secret: what is masked in this plan, and what would be by default."""

from __future__ import annotations

from collections.abc import Iterable

from sandboxd.denials.facts import Setting
from sandboxd.denials.folding import covers
from sandboxd.denials.standing import Standing
from sandboxd.policy import secrets


def secret_reason(setting: Setting, at: Standing) -> str | None:
    """Why the path is not proposed; None when it is nothing special."""
    known = _known(at.path, homes_for(setting, at.path))
    if known is not None:
        return known
    if at.masked:
        return f"{at.place.path} is masked: fs_deny or the daemon's config hides it"
    return None


def _known(path: str, homes: Iterable[str]) -> str | None:
    for group in secrets.SYSTEM:
        if any(covers(one, path) for one in group.paths):
            return group.why
    for home in homes:
        for group in secrets.HOME:
            if any(covers(f"{home}/{one}", path) for one in group.paths):
                return group.why
    return None


def homes_for(setting: Setting, path: str) -> list[str]:
    """The command's own home folder, root's, and the one in /home that `path` lies in."""
    parts = path.split("/")
    around = "/".join(parts[:3]) if len(parts) > 2 and parts[1] == "home" else ""
    own = dict(setting.plan.env).get("HOME", "").rstrip("/")
    return [home for home in (own, "/root", around) if home.startswith("/")]
