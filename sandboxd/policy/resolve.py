"""Preset + manifest + ceiling → Plan. The order of the steps is the order in which errors win."""

from __future__ import annotations

import os
import time

from msgspec.structs import replace

from sandboxd.platform.current import files
from sandboxd.platform.current import places as system_places
from sandboxd.policy import ceiling, limits
from sandboxd.policy.environment import FAIL_FAST, FEW_RETRIES, Pairs, environment, overlay
from sandboxd.policy.mounts import mask_memory, masks
from sandboxd.policy.mounts.mask_links import links_on_the_way
from sandboxd.policy.mounts.mount_plan import mount_plan
from sandboxd.policy.mounts.own_paths import OwnPaths
from sandboxd.policy.mounts.preset_grants import PresetGrants, PresetInputs, preset_grants
from sandboxd.policy.mounts.refused_workspaces import refuse_workspace
from sandboxd.policy.mounts.rename_pins import pins
from sandboxd.policy.network.rules import network_rule
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.paths.canonical import Resolved, check_spelling, resolve
from sandboxd.policy.paths.homes import group_of, home_of, name_of
from sandboxd.policy.paths.refused_links import refuse_planted
from sandboxd.policy.paths.refused_places import refuse_place
from sandboxd.policy.paths.within import within
from sandboxd.policy.plan import (
    Access,
    Grant,
    Identity,
    Link,
    NetworkRule,
    Plan,
    RunAs,
    SandboxSpec,
)
from sandboxd.policy.presets import Preset, preset
from sandboxd.policy.protected import writable
from sandboxd.policy.protected.git_worktree import main_checkout
from sandboxd.policy.request import Machine, PolicyRequest
from sandboxd_proto.errors import ManifestInvalid, PathDenied
from sandboxd_proto.manifest import FIELDS, Manifest

MAX_PATHS = 1000  # in one list of a manifest
PRIVATE_HOME = "/tmp"  # of a user without a home folder; by rule it is where TMPDIR leads
# Others remove files while a plan is made: it is made again.
_MOST_ATTEMPTS, _AGAIN_S = 8, 2.0
DEFAULT_TIMEOUT_S = system_places.DEFAULT_TIMEOUT_S


def plan_for(request: PolicyRequest, machine: Machine) -> Plan:
    """The plan, or the error that names the field. Nothing has run and nothing was changed."""
    until = time.monotonic() + _AGAIN_S
    for attempts_left in reversed(range(_MOST_ATTEMPTS)):
        try:
            return _plan_for(request, machine)
        except OSError as error:
            # Missing paths were refused before; this one was swapped or removed during planning.
            again = attempts_left and time.monotonic() < until
            if not again or error.errno not in recording_fs.VANISHED:
                raise _changed(error) from None
            recording_fs.is_torn()
    raise AssertionError("the last attempt returns or raises")


def _changed(error: OSError) -> PathDenied:
    return PathDenied(
        f"{error.filename or 'a path'} changed while it was looked at: {error.strerror}",
        remedy="send the request again",
        again=True,
    )


def _plan_for(request: PolicyRequest, machine: Machine) -> Plan:
    config = machine.config
    name = request.preset
    if name is None and not request.manifest_given:
        name = config.preset
    base = preset(name)
    manifest = request.manifest
    workspace = _workspace(request, base, machine)
    env = environment(manifest.env)
    network = network_rule(manifest, base, config)
    longest_s = config.ceiling.max_timeout_secs
    default_s = min(DEFAULT_TIMEOUT_S, longest_s or DEFAULT_TIMEOUT_S)
    denied, before = _denied(manifest)
    spec, from_preset, mask_links = _sandbox(
        request, base, workspace, env, network, denied, before, machine
    )
    plan = Plan(
        sandbox=spec,
        syscall_policy=manifest.syscall_policy or base.syscall_policy,
        timeout_s=limits.timeout(manifest, default_s, longest_s),
        limits=ceiling.lower_limits(limits.limits(manifest, base.max_processes), config.ceiling),
        env=overlay(_retries(base, network), from_preset.env, _of_owner(env, spec, base, machine)),
        cwd="/",
        asked=_asked(manifest, base),
        backend="none" if base.unsandboxed else request.backend,
        preset=name,
        workspace=workspace.path if workspace else None,
        nested=from_preset.nested,
        absent_secrets=masks.absent_secrets(spec, machine),
        denied=(*(one.path for one in denied), *before),
        mask_links=mask_links,
        checkout=main_checkout(workspace.path) if workspace else None,
    )
    ceiling.check(plan, config.ceiling)
    if (plan.backend or config.backend) in machine.limit_sandboxes:
        plan = replace(plan, sandbox=replace(spec, limits=limits.of_container(plan.limits)))
    return _choose_cwd(plan, request, workspace, machine)


def _retries(base: Preset, network: NetworkRule) -> Pairs:
    """For package managers, which can install only where a workspace is writable."""
    if not base.workspace_writable or network.kind == "inherit":
        return ()
    return FAIL_FAST if network.kind == "deny" else FEW_RETRIES


def _workspace(request: PolicyRequest, base: Preset, machine: Machine) -> Resolved | None:
    if request.workspace is None:
        if base.needs_workspace:
            raise ManifestInvalid(
                f"the preset {base.name} needs a workspace", field="workspace",
                remedy='give "workspace": "/abs/dir", the folder that may be written',
            )  # fmt: skip
        return None
    found = resolve(request.workspace, "workspace")
    refuse_planted(found, request.workspace, "workspace", None)
    if not found.identity.is_dir:
        raise PathDenied(f"{request.workspace} is not a folder", field="workspace")
    if found.path == "/":
        raise PathDenied(
            "the workspace cannot be /", field="workspace",
            remedy="give the folder of the project",
        )  # fmt: skip
    access: Access = "write" if base.workspace_writable else "read"
    refuse_place(found.path, access, "workspace", uid=machine.uid, home=machine.home)
    # Not recorded: its mode is, and a folder's ctime changes with each name in it.
    if not files.access(found.path, os.R_OK | os.X_OK):
        raise PathDenied(
            f"{found.path} cannot be the workspace: its mode does not let you list and enter it",
            field="workspace", remedy="change its mode, or give another folder",
        )  # fmt: skip
    if within(found.path, "/sys"):
        raise PathDenied(f"{found.path} cannot be the workspace", field="workspace")
    if base.named and not base.unsandboxed:
        refuse_workspace(found.path, access, request.manifest, machine)
    return found


def _sandbox(
    request: PolicyRequest, base: Preset, workspace: Resolved | None, env: Pairs,
    network: NetworkRule, denied: list[Resolved], before: list[str], machine: Machine,
) -> tuple[SandboxSpec, PresetGrants, tuple[Link, ...]]:  # fmt: skip
    """`denied`: what `fs_deny` names. `before`: where links among it led to earlier."""
    manifest = request.manifest
    grants, links = _asked_grants(manifest, workspace, machine)
    if workspace is not None and base.named:
        access: Access = "write" if base.workspace_writable else "read"
        grants.append(
            Grant(workspace.path, access, workspace.identity, "caller", workspace.by_name)
        )
        links += workspace.links
        _refuse_own(workspace.path, access, "workspace", machine.own)
    hidden = (*(one.path for one in denied), *before)
    tmp_bytes, shm_bytes = limits.private_bytes(manifest)
    owner = _run_as(workspace, grants, machine)
    from_preset = preset_grants(
        PresetInputs(base, workspace, env, tuple(grants), hidden, owner, request.dry),
        machine,
    )
    if workspace is not None and workspace.path in from_preset.nested.read_only:
        grants = [
            replace(one, access="read") if one.path == workspace.path else one for one in grants
        ]
    spec = SandboxSpec(
        base=manifest.base or base.base,
        network=network,
        grants=tuple(sorted({*grants, *from_preset.grants})),
        links=tuple(sorted({*links, *from_preset.links})),
        run_as=owner,
        image=manifest.image,
        tmp_bytes=tmp_bytes,
        shm_bytes=shm_bytes,
    )
    masked = masks.masks_for(spec, denied, machine, dict(env).get("HOME"), before)
    spec = replace(spec, masks=masked.masks)
    from_preset.nested = from_preset.nested.with_warnings(masked.warnings)
    own = writable.own_code(spec, machine.own)
    later = from_preset.protected
    if machine.uid == 0:
        later = tuple(writable.within_reach(later, owner or RunAs(0, 0)))
    kept = writable.settle(own, later, spec, machine.host)
    covering = [Identity.of(recording_fs.lstat(mask.path)) for mask in spec.masks]
    kept, covered = writable.identified(kept, own)
    spec = replace(spec, protected=kept)
    pinned = pins(spec, machine.host)
    spec = replace(
        spec,
        grants=tuple(sorted({*spec.grants, *pinned})),
        mount_points=(*covering, *covered),
    )
    spelled = [*map(files.internal, manifest.fs_deny or ()), *masked.spelled]
    if spec.grants or spec.base == "host":
        spelled += masks.config_spellings(machine)
    return spec, from_preset, links_on_the_way(spelled)


def _asked_grants(
    manifest: Manifest, workspace: Resolved | None, machine: Machine
) -> tuple[list[Grant], list[Link]]:
    grants: list[Grant] = []
    links: list[Link] = []
    asked: tuple[tuple[str, Access, list[str] | None], ...] = (
        ("fs_read_allow", "read", manifest.fs_read_allow),
        ("fs_write_allow", "write", manifest.fs_write_allow),
    )
    for key, access, paths in asked:
        for index, path in _each_once(paths):
            name = f"{key}[{index}]"
            found = resolve(path, name)
            refuse_planted(found, path, name, workspace.path if workspace else None)
            refuse_place(found.path, access, name, uid=machine.uid, home=machine.home)
            _refuse_own(found.path, access, name, machine.own)
            grants.append(Grant(found.path, access, found.identity, "caller", found.by_name))
            links += found.links
    return grants, links


def _denied(manifest: Manifest) -> tuple[list[Resolved], list[str]]:
    """Also where links among them led to earlier."""
    _refuse_many_paths(manifest)
    paths = _each_once(manifest.fs_deny)
    found = [resolve(path, f"fs_deny[{i}]") for i, path in paths]
    ends = zip((files.internal(path) for _, path in paths), found, strict=True)
    return found, [one for path, at in ends for one in mask_memory.former(path, at.path)]


def _each_once(paths: list[str] | None) -> list[tuple[int, str]]:
    """(index, path), each path where it is named first."""
    first: dict[str, int] = {}
    for index, path in enumerate(paths or ()):
        first.setdefault(path, index)
    return [(index, path) for path, index in first.items()]


def _refuse_many_paths(manifest: Manifest) -> None:
    """Each path is looked at on the event loop, and is a mount."""
    for key in ("fs_read_allow", "fs_write_allow", "fs_deny"):
        count = len(set(getattr(manifest, key) or ()))
        if count > MAX_PATHS:
            raise ManifestInvalid(
                f"{count} paths are more than the {MAX_PATHS} that a manifest can name", field=key,
                remedy="name the folders that hold them",
            )  # fmt: skip


def _refuse_own(path: str, access: str, field: str, own: OwnPaths) -> None:
    inside = own.inside(path) if access == "write" else own.hides(path)
    if inside is not None:
        raise PathDenied(
            f"{path} cannot be allowed: {inside} belongs to the daemon itself", field=field,
            remedy="give a folder outside the daemon's own files",
        )  # fmt: skip
    if access == "write":
        _refuse_above_own(path, field, own)


def _refuse_above_own(path: str, field: str, own: OwnPaths) -> None:
    """PathDenied if the folder holds what is the daemon's and what no mount can keep."""
    missing, link = own.missing_in(path), own.link_in(path)
    if missing:
        raise PathDenied(
            f"{path} cannot be writable: {missing[0]} belongs to the daemon itself, does not exist "
            "and so cannot be hidden", field=field,
            remedy="name the folder of the project, or make the missing path and restart sandboxd",
        )  # fmt: skip
    if link is not None:
        raise PathDenied(
            f"{path} cannot be writable: a command could exchange the symlink {link}, which leads "
            "to files of the daemon itself", field=field, remedy="name the folder of the project",
        )  # fmt: skip


def _run_as(workspace: Resolved | None, grants: list[Grant], machine: Machine) -> RunAs | None:
    """A daemon of root runs the command as the workspace's owner, when that is not root.

    Without a workspace the owner of the writable paths counts, if they all have the same one:
    in a user namespace files of other owners are EACCES for root too.
    """
    if machine.uid != 0:
        return None
    paths = [workspace.path] if workspace else [g.path for g in grants if g.access == "write"]
    found = [recording_fs.stat(path) for path in paths]
    if len({status.st_uid for status in found}) != 1 or found[0].st_uid == 0:
        return None
    uid = found[0].st_uid
    return RunAs(uid, group_of(uid, {status.st_gid for status in found}))


def _of_owner(env: Pairs, spec: SandboxSpec, base: Preset, machine: Machine) -> Pairs:
    """Clients send the variables of their own user. Where the command runs as another one, a home
    folder and the name of the daemon's user are replaced by that one's. A user without a home
    folder has the private /tmp; a name that the user has not is left out."""
    if base.unsandboxed:
        return env
    if spec.run_as is None:
        homeless = ("HOME", machine.home) in env and not recording_fs.isdir(machine.home)
        return overlay(env, (("HOME", PRIVATE_HOME),)) if homeless else env
    uid = spec.run_as.uid
    own_name, name = name_of(machine.uid) or "", name_of(uid)
    if base.named:
        env = overlay((("HOME", machine.home), ("USER", own_name)), env)
    theirs: dict[tuple[str, str], str | None] = {
        **{("HOME", own): home_of(uid) or PRIVATE_HOME for own in machine.own_homes},
        ("USER", own_name): name,
        ("LOGNAME", own_name): name,
    }
    pairs = ((variable, theirs.get((variable, value), value)) for variable, value in env)
    return tuple((variable, value) for variable, value in pairs if value is not None)


def _asked(manifest: Manifest, base: Preset) -> frozenset[str]:
    """The fields whose enforcement is reported: what was said, and what the preset says."""
    said = {name for name in FIELDS if getattr(manifest, name) is not None}
    if base.named:
        said |= {"fs_read_allow", "fs_write_allow", "network", "syscall_policy"}
    if base.named and base.max_processes is not None:
        said.add("max_processes")
    return frozenset(said)


def _choose_cwd(
    plan: Plan, request: PolicyRequest, workspace: Resolved | None, machine: Machine
) -> Plan:
    if request.cwd is not None:
        return _start_in(plan, request.cwd, machine)
    cwd = request.workspace if workspace and plan.preset else None
    return replace(plan, cwd=files.internal(cwd) if cwd else system_places.START_FOLDER)


def _start_in(plan: Plan, cwd: str, machine: Machine) -> Plan:
    check_spelling(cwd, "cwd")
    spelled, cwd = cwd, files.internal(cwd)
    spec = plan.sandbox
    places = mount_plan(spec, machine.host)
    if places.shows_host(recording_fs.realpath(cwd)):
        found = resolve(cwd, "cwd")
        if not found.identity.is_dir:
            raise PathDenied(f"{cwd} is not a folder", field="cwd")
        links = tuple(sorted({*spec.links, *found.links}))
        return replace(plan, cwd=cwd, sandbox=replace(spec, links=links))
    in_image = spec.limits is not None  # whose folders only the container knows
    if plan.backend != "none" and not in_image and not places.exists(recording_fs.realpath(cwd)):
        raise PathDenied(
            f"the working directory {spelled} is not visible in the sandbox", field="cwd",
            remedy=f'add it to the manifest: "fs_read_allow": ["{spelled}"]',
        )  # fmt: skip
    return replace(plan, cwd=cwd)


def change_cwd(plan: Plan, cwd: str) -> Plan:
    """The same plan in a sandbox that is up, where earlier commands may have made `cwd`."""
    check_spelling(cwd, "cwd")
    return replace(plan, cwd=files.internal(cwd))
