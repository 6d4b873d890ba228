"""Whether a sandbox that is up still hides and protects what a new one would."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from sandboxd.policy.mounts.mount_plan import Host, MountKind, MountPlan, mount_plan
from sandboxd.policy.paths.within import within_any
from sandboxd.policy.plan import FOLDER_RULES, GIT_DIR_RULES, Plan, Protected


def first_uncovered(then: Plan, now: Plan, host: Host) -> str | None:
    """What a sandbox of the plan `then` shows or lets its commands write, and one of the plan `now`
    of the same request would not; with the reason. None if there is nothing."""
    if then.sandbox == now.sandbox and then.mask_links == now.mask_links:
        return None
    led = {link.path: link.target for link in then.mask_links}
    for link in now.mask_links:
        if led.get(link.path, link.target) != link.target:
            return f"{link.path}, a symlink to what is hidden, leads elsewhere"
    shown = mount_plan(then.sandbox, host)
    for mask in now.sandbox.masks:
        if shown.shows_host(mask.path):
            return f"{mask.path} is to be hidden now"
    for one in _unprotected(then, now, shown):
        return f"{one.path} is protected now"
    return None


def _unprotected(then: Plan, now: Plan, shown: MountPlan) -> Iterator[Protected]:
    """Without those that the guard of the sandbox `then` judges in another way."""
    before = then.sandbox.protected
    rules = {(one.path, one.rule) for one in before}
    paths = {one.path for one in before if one.rule not in FOLDER_RULES}
    judged = _judged(then, now)
    # Commands make folders that cannot be looked into, or hold too much to be searched.
    unsearched = {*now.nested.closed, *now.nested.read_only}
    for one in now.sandbox.protected:
        known = (one.path, one.rule) in rules if one.rule in FOLDER_RULES else one.path in paths
        if known or shown.at(one.path).kind is not MountKind.WRITE:
            continue
        if not one.present and posixpath.basename(one.path) == ".git":
            continue  # the search for new repositories finds it in any folder
        if one.path not in unsearched and not within_any(one.path, judged):
            yield one


def _judged(then: Plan, now: Plan) -> list[str]:
    """Repositories that are newer than the sandbox (what commands make in them is judged, or they
    are kept from later sandboxes only), and worktrees that commands may add."""
    before = {*then.nested.paths, *then.nested.others, *then.nested.roots}
    found = [path for path in now.nested.paths if path not in before]
    found += [posixpath.dirname(path) for path in now.nested.others if path not in before]
    found = [path for path in found if path not in then.nested.roots]
    for one in then.sandbox.protected:
        if one.rule == "new_repository":
            found.append(one.path)
        elif one.rule in GIT_DIR_RULES:
            found.append(posixpath.join(one.path, "worktrees"))
    return found
