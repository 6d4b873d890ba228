"""Paths inside writable grants that stay read-only: the daemon's own code, and protected files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from sandboxd.policy import git_dir, hostfs, linked_git
from sandboxd.policy.git_dir import Around, Doors, inside, kept, kept_in
from sandboxd.policy.layout import Host, Kind, layout
from sandboxd.policy.own import OwnPaths
from sandboxd.policy.plan import Access, Grant, Protected, SandboxSpec
from sandboxd.policy.protected_data import HOME, WORKSPACE

_MOST_SUBMODULES = 256


def own_code(spec: SandboxSpec, own: OwnPaths) -> tuple[Protected, ...]:
    """The daemon's code where a caller's writable path contains it."""
    found: list[Protected] = []
    for root in spec.paths("write"):
        below = root.rstrip("/") + "/"
        for path in own.read_only:
            if path.startswith(below):
                found.append(Protected(path, root, present=True, is_dir=hostfs.isdir(path)))
    return tuple(found)


def for_workspace(
    workspace: str,
    more: Iterable[str],
    *,
    homes: Iterable[str] = (),
    roots: Iterable[str] | None = None,
) -> Doors:
    """The protected paths of a writable workspace, and the implied grants that go with them.

    `more` is `[protect] add`, `homes` are people's home folders, `roots` the ceiling's. Nothing
    is created for a path that does not exist: it is to be watched while the command runs.
    """
    homes = tuple(homes)
    found = Doors(kept_in(workspace, WORKSPACE, workspace))
    for name in more:
        found.protected += _named(workspace, name, homes)
    for home in homes:
        if inside(home, workspace):
            found.protected += [p for name in HOME for p in kept(f"{home}/{name}", workspace)]
    configs = tuple(f for home in homes[:1] for f in user_configs(home))
    found.extend(_repository(workspace, configs, roots))
    found.protected = _strictest(found.protected)
    found.grants = sorted(set(found.grants))
    return found


def user_configs(home: str) -> list[str]:
    return ["/etc/gitconfig", f"{home}/.config/git/config", f"{home}/.gitconfig"]


def linked_grants(
    workspace: str, access: Access, roots: Iterable[str] | None
) -> tuple[list[Grant], linked_git.LinkedGit | None]:
    """The git dir elsewhere of a worktree or submodule, where it agrees and the ceiling permits."""
    link = linked_git.linked(workspace)
    if link is None:
        return [], None
    needed = {link.git_dir, link.common}
    if roots is not None and not all(any(inside(n, r) for r in roots) for n in needed):
        return [], None
    return [g for path in sorted(needed) for g in git_dir.grant(path, access)], link


def settled(
    own: Iterable[Protected], more: Iterable[Protected], spec: SandboxSpec, host: Host
) -> tuple[Protected, ...]:
    """Those that would be writable otherwise.

    A file protected inside a masked folder would show it. `more`, but never the daemon's own, gives
    way to a caller who makes the very path writable by name.
    """
    places = layout(spec, host)
    named = {g.path for g in spec.grants if g.origin == "caller" and g.access == "write"}
    wanted = {*own, *(p for p in more if p.path not in named)}
    open_ = (p for p in wanted if places.at(p.path).kind is Kind.WRITE)
    return tuple(sorted(open_, key=lambda p: (p.path, p.root)))


def _named(workspace: str, name: str, homes: tuple[str, ...]) -> list[Protected]:
    if name.startswith("~/") and homes:
        name = os.path.join(homes[0], name[2:])
    path = os.path.normpath(os.path.join(workspace, name))
    return kept(path, workspace) if inside(path, workspace) and path != workspace else []


def _repository(workspace: str, configs: tuple[str, ...], roots: Iterable[str] | None) -> Doors:
    pointer = os.path.join(workspace, ".git")
    if git_dir.looks_like_git_dir(workspace):  # a bare repository is the workspace
        return git_dir.doors(workspace, Around(workspace, workspace, None, configs))
    if not hostfs.lexists(pointer):
        return Doors([Protected(pointer, workspace, present=False, rule="new_repository")])
    found = Doors()
    if hostfs.isdir(pointer):
        real = hostfs.realpath(pointer)
        if hostfs.islink(pointer):
            found.protected.append(Protected(pointer, workspace, present=False))
        if inside(real, workspace):
            found.extend(git_dir.doors(real, Around(workspace, workspace, workspace, configs)))
    else:
        found.protected += kept(pointer, workspace)
        found.extend(_linked(workspace, configs, roots))
    found.extend(_submodules(workspace, configs))
    return found


def _linked(workspace: str, configs: tuple[str, ...], roots: Iterable[str] | None) -> Doors:
    grants, link = linked_grants(workspace, "write", roots)
    found = Doors(grants=grants)
    if link is None:
        return found
    if link.git_dir != link.common:
        found.protected += git_dir.worktree_state(link.git_dir)
        own = Around(link.git_dir, workspace, workspace, configs)
        found.protected += git_dir.configured(link.git_dir, own)
    shared = Around(link.common, workspace, workspace, configs)
    found.extend(git_dir.doors(link.common, shared))
    return found


def _submodules(workspace: str, configs: tuple[str, ...]) -> Doors:
    """git status enters every submodule: a repository put in its place would run code."""
    found = Doors()
    entries = git_dir.read_config(os.path.join(workspace, ".gitmodules"))
    paths = [v for k, v in entries if k.startswith("submodule.") and k.endswith(".path")]
    for path in paths[:_MOST_SUBMODULES]:
        pointer = os.path.normpath(os.path.join(workspace, path, ".git"))
        if not inside(pointer, workspace) or os.path.dirname(pointer) == workspace:
            continue
        if hostfs.isdir(pointer) and not hostfs.islink(pointer):
            tree = os.path.dirname(pointer)
            found.extend(git_dir.doors(pointer, Around(workspace, workspace, tree, configs)))
        else:
            found.protected += kept(pointer, workspace)
    return found


def _strictest(protected: Iterable[Protected]) -> list[Protected]:
    """Each path once; what is watched for being absent is not also judged more mildly."""
    chosen: dict[str, Protected] = {}
    for one in protected:
        known = chosen.get(one.path)
        if known is None or (known.rule != "absent" and one.rule == "absent"):
            chosen[one.path] = one
        elif len(one.root) > len(known.root):
            chosen[one.path] = replace(known, root=one.root)
    return list(chosen.values())
