"""Grants that a preset adds: git's settings, toolchains, caches, a worktree's git dir.

Everything here is skipped, not refused, when it is missing, denied by the manifest or the config,
or out of reach of the user that the command runs as.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from sandboxd.policy.environment import Pairs
from sandboxd.policy.mounts import caches, git_settings, toolchains
from sandboxd.policy.mounts.masks import config_masks
from sandboxd.policy.mounts.secret_paths import is_secret
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.canonical import Resolved, resolve
from sandboxd.policy.paths.homes import home_of, homes, reachable
from sandboxd.policy.paths.within import within_any
from sandboxd.policy.plan import Grant, Link, Protected, RunAs
from sandboxd.policy.presets import Preset
from sandboxd.policy.protected import paths as protected_paths
from sandboxd.policy.protected.nested_git import Repositories
from sandboxd_proto.errors import PathDenied

if TYPE_CHECKING:
    from sandboxd.policy.request import Machine

_GIT_SETTINGS = (".gitconfig", ".config/git")


@dataclass(slots=True)
class PresetGrants:
    grants: list[Grant] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    protected: tuple[Protected, ...] = ()
    env: Pairs = ()
    nested: Repositories = field(default_factory=Repositories)


class PresetInputs(msgspec.Struct, frozen=True):
    """The parts of the request that decide what is added."""

    base: Preset
    workspace: Resolved | None
    env: Pairs
    grants: tuple[Grant, ...]
    denied: tuple[str, ...]
    run_as: RunAs | None
    dry: bool = False


def preset_grants(asked: PresetInputs, machine: Machine) -> PresetGrants:
    found = PresetGrants()
    if not asked.base.named or asked.base.unsandboxed:
        return found
    hidden = [*asked.denied, *config_masks(machine)]
    hidden += machine.own.hidden
    own, uid = machine.own_homes, machine.uid
    if asked.run_as is not None:
        home, uid = home_of(asked.run_as.uid), asked.run_as.uid
        own = (home,) if home is not None else ()
    if own:
        writable = [grant.path for grant in asked.grants if grant.access == "write"]
        tools = toolchains.toolchains(asked.env, own, writable)
        found.grants += tools.grants
        found.links += tools.links
        for home in _homes_of_git(asked, own):
            _add_git_settings(found, home, uid, [*writable, *hidden])
        # A virtual environment in the workspace is on PATH too, and must stay writable.
        given = [grant.path for grant in asked.grants]
        found.grants = [g for g in found.grants if not within_any(g.path, given)]
    people = homes(*machine.own_homes, *own)
    if asked.workspace is not None:
        _add_repository(found, asked, own, machine)
    if asked.workspace is None or not asked.base.workspace_writable:
        writable = [grant.path for grant in asked.grants if grant.access == "write"]
        found.protected = tuple(protected_paths.home_files(people, writable))
    # A link in the place of a setting or a program shows no secret.
    found.grants = [
        g for g in found.grants
        if _usable(g.path, hidden, asked.run_as) and not is_secret(g.path, people)
    ]  # fmt: skip
    if asked.workspace is not None and asked.base.workspace_writable:
        _add_caches(found, asked, machine)
    return found


def _add_repository(
    found: PresetGrants, asked: PresetInputs, own: tuple[str, ...], machine: Machine
) -> None:
    assert asked.workspace is not None
    workspace = asked.workspace.path
    roots = _roots(machine)
    if not asked.base.workspace_writable:
        found.grants += protected_paths.linked_grants(workspace, "read", roots)[0]
        return
    people = (*own, *homes(*machine.own_homes))
    more = machine.config.protect.add
    writable = [g.path for g in asked.grants if g.access == "write" and g.path != workspace]
    # Programs follow the variable HOME, and root's git is run in workspaces of others, too.
    kept = protected_paths.for_workspace(
        workspace,
        more,
        homes=people,
        own_homes=(*own, *machine.own_homes),
        roots=roots,
        writable=writable,
    )
    found.grants += kept.grants
    found.protected = tuple(kept.protected)
    found.nested = kept.nested


def _add_caches(found: PresetGrants, asked: PresetInputs, machine: Machine) -> None:
    assert asked.workspace is not None
    root = recording_fs.realpath(machine.caches_root)
    hidden = [*asked.denied, *config_masks(machine)]
    if _usable(root, hidden, asked.run_as):
        cache = caches.for_workspace(asked.workspace.path, root, asked.run_as, make=not asked.dry)
        found.grants += cache.grants
        found.env = cache.env


def _homes_of_git(asked: PresetInputs, own: tuple[str, ...]) -> tuple[str, ...]:
    """git reads the settings of HOME alone, also where the account's home is another folder. An
    owner's HOME is set later. The caller's HOME is compared, and not looked at."""
    home = posixpath.normpath(dict(asked.env).get("HOME") or "/")
    found = tuple(one for one in own if home in (one, recording_fs.realpath(one)))
    return found if found and asked.run_as is None else own


def _add_git_settings(found: PresetGrants, home: str, uid: int, closed: list[str]) -> None:
    shown: list[Resolved] = []
    for name in _GIT_SETTINGS:
        with suppress(PathDenied):
            shown.append(resolve(posixpath.join(home, name), "preset"))
    folders = [at.path for at in shown]
    named = git_settings.named_files(home, uid, closed)
    for at in (*shown, *(at for at in named if not within_any(at.path, folders))):
        found.grants.append(Grant(at.path, "read", at.identity, "preset"))
        found.links += at.links


def _roots(machine: Machine) -> list[str] | None:
    roots = machine.config.ceiling.roots
    if roots is None:
        return None
    return [recording_fs.realpath(recording_fs.expanduser(root)) for root in roots]


def _usable(path: str, hidden: Iterable[str], run_as: RunAs | None) -> bool:
    if within_any(path, hidden):
        return False
    return run_as is None or reachable(path, run_as.uid, run_as.gid)
