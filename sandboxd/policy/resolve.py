"""Preset + manifest + ceiling → Plan. The order of the steps is the order in which errors win."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace

from sandboxd.config import Config
from sandboxd.policy import ceiling, hostfs, limits, masks, protected
from sandboxd.policy.canonical import Resolved, check_spelling, resolve
from sandboxd.policy.environment import Pairs, environment, overlay
from sandboxd.policy.implied import Asked, implied
from sandboxd.policy.layout import Host, layout
from sandboxd.policy.network import network_rule
from sandboxd.policy.own import OwnPaths
from sandboxd.policy.pins import pins
from sandboxd.policy.plan import Access, Grant, Link, NetworkRule, Plan, RunAs, SandboxSpec
from sandboxd.policy.presets import Preset, preset
from sandboxd_proto.errors import ManifestInvalid, PathDenied
from sandboxd_proto.manifest import FIELDS, Manifest

DEFAULT_TIMEOUT_S = 60.0 if sys.platform == "win32" else 30.0  # the seeds' values
# A container is made with its limits; elsewhere each command gets its own.
CONTAINERS = ("docker",)
_NOT_GRANTABLE = {
    "/proc": "the sandbox has a /proc of its own",
    "/dev": "the sandbox has a /dev of its own, and devices of the host are never shown",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What one request says, before anything is checked."""

    manifest: Manifest = field(default_factory=Manifest)
    preset: str | None = None
    workspace: str | None = None
    cwd: str | None = None
    backend: str | None = None
    manifest_given: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """Who the daemon is and where it runs. Made once; `config_version` changes with the config."""

    config: Config
    host: Host
    own: OwnPaths
    home: str
    uid: int
    caches_root: str
    config_version: int = 0


def plan_for(wish: Wish, machine: Machine) -> Plan:
    """The plan, or the error that names the field. Nothing has run and nothing was changed."""
    try:
        return _plan_for(wish, machine)
    except OSError as error:
        # What does not exist was refused by name; this was swapped or removed while we looked.
        raise PathDenied(
            f"{error.filename or 'a path'} changed while it was looked at: {error.strerror}",
            remedy="send the request again",
        ) from None


def _plan_for(wish: Wish, machine: Machine) -> Plan:
    config = machine.config
    name = wish.preset
    if name is None and not wish.manifest_given:
        name = config.preset
    base = preset(name)
    manifest = wish.manifest
    workspace = _workspace(wish, base)
    env = environment(manifest.env)
    network = network_rule(manifest, base, config)
    default_s = min(DEFAULT_TIMEOUT_S, config.ceiling.max_timeout_secs or DEFAULT_TIMEOUT_S)
    spec, more_env = _sandbox(wish, base, workspace, env, network, machine)
    plan = Plan(
        sandbox=spec,
        syscall_policy=manifest.syscall_policy or base.syscall_policy,
        timeout_s=limits.timeout(manifest, default_s),
        limits=ceiling.lowered(limits.limits(manifest), config.ceiling),
        env=overlay(more_env, env),
        cwd="/",
        asked=_asked(manifest, base),
        backend="none" if base.unsandboxed else wish.backend,
        preset=name,
        workspace=workspace.path if workspace else None,
    )
    ceiling.check(plan, config.ceiling, machine.host)
    if plan.backend in CONTAINERS or (plan.backend is None and config.backend in CONTAINERS):
        plan = replace(plan, sandbox=replace(spec, limits=limits.of_container(plan.limits)))
    return _with_cwd(plan, wish, workspace, machine)


def _workspace(wish: Wish, base: Preset) -> Resolved | None:
    if wish.workspace is None:
        if base.needs_workspace:
            raise ManifestInvalid(
                f"the preset {base.name} needs a workspace", field="workspace",
                remedy='give "workspace": "/abs/dir", the folder that may be written',
            )  # fmt: skip
        return None
    found = resolve(wish.workspace, "workspace")
    if not found.identity.is_dir:
        raise PathDenied(f"{wish.workspace} is not a folder", field="workspace")
    if found.path == "/":
        raise PathDenied(
            "the workspace cannot be /", field="workspace",
            remedy="give the folder of the project",
        )  # fmt: skip
    return found


def _sandbox(
    wish: Wish, base: Preset, workspace: Resolved | None, env: Pairs, network: NetworkRule,
    machine: Machine,
) -> tuple[SandboxSpec, Pairs]:  # fmt: skip
    manifest = wish.manifest
    grants, links = _asked_grants(manifest, machine)
    if workspace is not None and base.named:
        access: Access = "write" if base.workspace_writable else "read"
        grants.append(Grant(workspace.path, access, workspace.identity, "caller"))
        links += workspace.links
        _refuse_own(workspace.path, access, "workspace", machine.own)
    denied = _denied(manifest)
    owner = _run_as(workspace, grants, machine)
    more = implied(Asked(base, workspace, env, tuple(grants), tuple(denied), owner), machine)
    spec = SandboxSpec(
        base=manifest.base or base.base,
        network=network,
        grants=tuple(sorted({*grants, *more.grants})),
        links=tuple(sorted({*links, *more.links})),
        run_as=owner,
        image=manifest.image,
        config_version=machine.config_version,
    )
    spec = replace(spec, masks=masks.masks_for(spec, denied, machine))
    own = protected.own_code(spec, machine.own)
    kept = protected.settled(own, more.protected, spec, machine.host)
    spec = replace(spec, protected=kept)
    pinned = pins(spec, machine.host)
    return replace(spec, grants=tuple(sorted({*spec.grants, *pinned}))), more.env


def _asked_grants(manifest: Manifest, machine: Machine) -> tuple[list[Grant], list[Link]]:
    grants: list[Grant] = []
    links: list[Link] = []
    asked: tuple[tuple[str, Access, list[str] | None], ...] = (
        ("fs_read_allow", "read", manifest.fs_read_allow),
        ("fs_write_allow", "write", manifest.fs_write_allow),
    )
    for key, access, paths in asked:
        for index, path in enumerate(paths or ()):
            name = f"{key}[{index}]"
            found = resolve(path, name)
            _refuse_place(found.path, access, name)
            _refuse_own(found.path, access, name, machine.own)
            grants.append(Grant(found.path, access, found.identity))
            links += found.links
    return grants, links


def _denied(manifest: Manifest) -> list[Resolved]:
    return [resolve(path, f"fs_deny[{i}]") for i, path in enumerate(manifest.fs_deny or ())]


def _refuse_place(path: str, access: str, field: str) -> None:
    for place, why in _NOT_GRANTABLE.items():
        if path == place or path.startswith(place + "/"):
            raise PathDenied(f"{path} cannot be allowed: {why}", field=field)
    if access == "write" and (path == "/sys" or path.startswith("/sys/")):
        raise PathDenied(f"{path} cannot be writable: it is the kernel's", field=field)


def _refuse_own(path: str, access: str, field: str, own: OwnPaths) -> None:
    inside = own.inside(path) if access == "write" else own.hides(path)
    if inside is not None:
        raise PathDenied(
            f"{path} cannot be allowed: {inside} belongs to the daemon itself", field=field,
            remedy="give a folder outside the daemon's own files",
        )  # fmt: skip


def _run_as(workspace: Resolved | None, grants: list[Grant], machine: Machine) -> RunAs | None:
    """A daemon of root runs the command as the workspace's owner, when that is not root.

    Without a workspace the owner of the writable paths counts, if they all have the same one:
    in a user namespace files of other owners are EACCES for root too.
    """
    if machine.uid != 0:
        return None
    paths = [workspace.path] if workspace else [g.path for g in grants if g.access == "write"]
    owners = {(s.st_uid, s.st_gid) for s in map(hostfs.stat, paths)}
    if len(owners) != 1:
        return None
    uid, gid = owners.pop()
    return None if uid == 0 else RunAs(uid, gid)


def _asked(manifest: Manifest, base: Preset) -> frozenset[str]:
    """The fields whose enforcement is reported: what was said, and what the preset says."""
    said = {name for name in FIELDS if getattr(manifest, name) is not None}
    if base.named:
        said |= {"fs_read_allow", "fs_write_allow", "network", "syscall_policy"}
    return frozenset(said)


def _with_cwd(plan: Plan, wish: Wish, workspace: Resolved | None, machine: Machine) -> Plan:
    if wish.cwd is not None:
        return _at(plan, wish.cwd, machine)
    cwd = wish.workspace if workspace and plan.preset else "/"
    return replace(plan, cwd=cwd or "/")


def _at(plan: Plan, cwd: str, machine: Machine) -> Plan:
    check_spelling(cwd, "cwd")
    spec = plan.sandbox
    places = layout(spec, machine.host)
    if places.shows_host(hostfs.realpath(cwd)):
        found = resolve(cwd, "cwd")
        if not found.identity.is_dir:
            raise PathDenied(f"{cwd} is not a folder", field="cwd")
        links = tuple(sorted({*spec.links, *found.links}))
        return replace(plan, cwd=cwd, sandbox=replace(spec, links=links))
    in_image = spec.limits is not None  # whose folders only the container knows
    if plan.backend != "none" and not in_image and not places.exists(hostfs.realpath(cwd)):
        raise PathDenied(
            f"the working directory {cwd} is not visible in the sandbox", field="cwd",
            remedy=f'add it to the manifest: "fs_read_allow": ["{cwd}"]',
        )  # fmt: skip
    return replace(plan, cwd=cwd)


def moved(plan: Plan, cwd: str) -> Plan:
    """The same plan in a sandbox that is up, where earlier commands may have made `cwd`."""
    check_spelling(cwd, "cwd")
    return replace(plan, cwd=cwd)
