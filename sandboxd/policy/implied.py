"""What a preset adds that nobody named: git's settings, toolchains, caches, a worktree's git dir.

Everything here is skipped, not refused, when it is missing, denied by the manifest or the config,
or out of reach of the user that the command runs as.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandboxd.policy import caches, hostfs, protected, toolchains
from sandboxd.policy.canonical import Resolved, resolve
from sandboxd.policy.environment import Pairs
from sandboxd.policy.homes import home_of, homes, reachable
from sandboxd.policy.masks import config_masks, hidden_from
from sandboxd.policy.plan import Grant, Link, Protected, RunAs
from sandboxd.policy.presets import Preset
from sandboxd_proto.errors import PathDenied

if TYPE_CHECKING:
    from sandboxd.policy.resolve import Machine

_GIT_SETTINGS = (".gitconfig", ".config/git")


@dataclass(slots=True)
class Implied:
    grants: list[Grant] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    protected: tuple[Protected, ...] = ()
    env: Pairs = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What the request says, as far as it bears on what is added to it."""

    base: Preset
    workspace: Resolved | None
    env: Pairs
    grants: tuple[Grant, ...]
    denied: tuple[Resolved, ...]
    run_as: RunAs | None


def implied(asked: Asked, machine: Machine) -> Implied:
    found = Implied()
    if not asked.base.named or asked.base.unsandboxed:
        return found
    home = machine.home if asked.run_as is None else home_of(asked.run_as.uid)
    if home is not None:
        tools = toolchains.toolchains(asked.env, home)
        found.grants += tools.grants
        found.links += tools.links
        _add_git_settings(found, home)
        # A virtual environment in the workspace is on PATH too, and must stay writable.
        given = [grant.path for grant in asked.grants]
        found.grants = [g for g in found.grants if not hidden_from(g.path, given)]
    if asked.workspace is not None:
        _add_repository(found, asked, home, machine)
    hidden = [*(d.path for d in asked.denied), *config_masks(machine).values()]
    hidden += machine.own.hidden
    found.grants = [g for g in found.grants if _usable(g.path, hidden, asked.run_as)]
    if asked.workspace is not None and asked.base.workspace_writable:
        _add_caches(found, asked, machine)
    return found


def _add_repository(found: Implied, asked: Asked, home: str | None, machine: Machine) -> None:
    assert asked.workspace is not None
    workspace = asked.workspace.path
    roots = _roots(machine)
    if not asked.base.workspace_writable:
        found.grants += protected.linked_grants(workspace, "read", roots)[0]
        return
    people = (home, *homes(machine.home)) if home else homes(machine.home)
    more = machine.config.protect.add
    kept = protected.for_workspace(workspace, more, homes=people, roots=roots)
    found.grants += kept.grants
    found.protected = tuple(kept.protected)


def _add_caches(found: Implied, asked: Asked, machine: Machine) -> None:
    assert asked.workspace is not None
    root = hostfs.realpath(machine.caches_root)
    hidden = [*(d.path for d in asked.denied), *config_masks(machine).values()]
    if _usable(root, hidden, asked.run_as):
        cache = caches.for_workspace(asked.workspace.path, root, asked.run_as)
        found.grants += cache.grants
        found.env = cache.env


def _add_git_settings(found: Implied, home: str) -> None:
    for name in _GIT_SETTINGS:
        try:
            at = resolve(os.path.join(home, name), "preset")
        except PathDenied:
            continue
        found.grants.append(Grant(at.path, "read", at.identity, "preset"))
        found.links += at.links


def _roots(machine: Machine) -> list[str] | None:
    roots = machine.config.ceiling.roots
    if roots is None:
        return None
    return [hostfs.realpath(os.path.expanduser(root)) for root in roots]


def _usable(path: str, hidden: Iterable[str], run_as: RunAs | None) -> bool:
    if hidden_from(path, hidden):
        return False
    return run_as is None or reachable(path, run_as.uid, run_as.gid)
