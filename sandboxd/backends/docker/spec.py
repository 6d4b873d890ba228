"""Turn a sandbox spec into the body of the engine's create call. Pure.

What always holds: a read-only root, no capabilities, no new privileges, the engine's own seccomp
profile, no log, no swap beyond the memory limit, and no descriptor, socket or device of the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sandboxd.backends.docker.engine import Body
from sandboxd.backends.docker.mounts import ContainerBind, ContainerMount, Tmpfs
from sandboxd.policy.plan import Limits, RunAs, SandboxSpec

# Room for the init and the reaper beside the command's own processes.
OWN_PROCESSES = 2


class ContainerEntry(msgspec.Struct, frozen=True):
    """The program and user that the container starts with."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = "/"
    stdin: bool = False
    tty: bool = False
    remove_at_end: bool = True  # by the engine itself


class Volume(msgspec.Struct, frozen=True):
    """An empty volume at `dest`, removed with the container. Files can be copied into it before."""

    dest: str


class ContainerContext(msgspec.Struct, frozen=True):
    """The context of the spec: image, user, properties of the engine, owner of the container.

    `rootless`: its root is the engine's user. `podman`: the engine is Podman."""

    image: str
    user: RunAs
    labels: Mapping[str, str]
    userns_host: bool = False
    rootless: bool = False
    podman: bool = False
    own_processes: int = OWN_PROCESSES


def create_body(
    spec: SandboxSpec,
    mounts: Sequence[ContainerMount | Volume],
    entry: ContainerEntry,
    frame: ContainerContext,
) -> Body:
    return {
        "Image": frame.image,
        "Entrypoint": list(entry.argv),
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in entry.env],
        "WorkingDir": entry.cwd,
        "User": f"{frame.user.uid}:{frame.user.gid}",
        "Labels": dict(frame.labels),
        "NetworkDisabled": spec.network.kind != "inherit",
        "Healthcheck": {"Test": ["NONE"]},
        "Tty": entry.tty,
        "OpenStdin": entry.stdin,
        "StdinOnce": entry.stdin,
        "AttachStdin": entry.stdin,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": _host_config(spec, mounts, entry, frame),
    }


def _host_config(
    spec: SandboxSpec,
    mounts: Sequence[ContainerMount | Volume],
    entry: ContainerEntry,
    frame: ContainerContext,
) -> dict[str, Any]:
    return {
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "Privileged": False,
        "NetworkMode": "default" if spec.network.kind == "inherit" else "none",
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},
        "AutoRemove": entry.remove_at_end,
        "Init": False,
        "ShmSize": spec.shm_bytes,
        "Mounts": [_mount(mount) for mount in mounts if not isinstance(mount, Tmpfs)],
        "Tmpfs": {
            mount.dest: _tmpfs(frame, spec.tmp_bytes)
            for mount in mounts
            if isinstance(mount, Tmpfs)
        },
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in _ULIMITS],
        **({"UsernsMode": "host"} if frame.userns_host else {}),
        **_limits(spec.limits or Limits(), frame.own_processes),
    }


_ULIMITS = (("core", 0),)


def _tmpfs(frame: ContainerContext, size: int) -> str:
    options = f"rw,exec,nosuid,nodev,size={size},mode=1777"
    if frame.podman:
        return f"{options},notmpcopyup"
    # With its owner: where the image has the folder, runc gives it the image's mode.
    return f"{options},uid={frame.user.uid},gid={frame.user.gid}"


def _mount(mount: ContainerBind | Volume) -> dict[str, Any]:
    if isinstance(mount, Volume):
        return {"Type": "volume", "Target": mount.dest, "VolumeOptions": {"NoCopy": True}}
    return {
        "Type": "bind",
        "Source": mount.source,
        "Target": mount.dest,
        "ReadOnly": not mount.writable,
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": not mount.writable},
    }


def _limits(limits: Limits, own_processes: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if limits.memory_bytes is not None:
        # Equal values: no swap beyond the limit.
        found |= {"Memory": limits.memory_bytes, "MemorySwap": limits.memory_bytes}
    if limits.processes is not None:
        found["PidsLimit"] = limits.processes + own_processes
    if limits.cpus is not None:
        # A rate. CPU seconds are watched.
        found["NanoCpus"] = round(limits.cpus * 1e9)
    return found


def command_line(body: Body) -> list[str]:
    """The closest docker command, for display."""
    host = body["HostConfig"]
    words = ["docker", "run", "--rm", "--read-only", "--cap-drop", "ALL",
             "--security-opt", "no-new-privileges", "--log-driver", "none",
             "--user", body["User"], "--network", host["NetworkMode"]]  # fmt: skip
    for mount in host["Mounts"]:
        if mount["Type"] != "bind":
            continue
        mode = ",readonly,bind-nonrecursive" if mount["ReadOnly"] else ""
        words += ["--mount", f"type=bind,src={mount['Source']},dst={mount['Target']}{mode}"]
    for path, options in host["Tmpfs"].items():
        words += ["--tmpfs", f"{path}:{options}"]
    flags = {"Memory": "--memory", "MemorySwap": "--memory-swap", "PidsLimit": "--pids-limit"}
    for key, flag in flags.items():
        if key in host:
            words += [flag, str(host[key])]
    if "NanoCpus" in host:
        words += ["--cpus", f"{host['NanoCpus'] / 1e9:g}"]
    entry = body["Entrypoint"]
    return [*words, "--entrypoint", entry[0], body["Image"], *entry[1:]]
