"""A sandbox spec to the body of the engine's create call. Pure: the same for the same facts.

What always holds: a read-only root, no capabilities, no new privileges, the engine's own seccomp
profile, no log, no swap beyond the memory limit, and no descriptor, socket or device of the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandboxd.backends.docker.engine import Body
from sandboxd.backends.docker.mounts import TMP_BYTES, Bind, Mount, Tmpfs
from sandboxd.policy.plan import Limits, RunAs, SandboxSpec

SHM_BYTES = 256 << 20
# The init and the keeper of a command stand beside the command's own processes.
OWN_PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """What the container starts as."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = "/"
    stdin: bool = False
    tty: bool = False
    remove_at_end: bool = True  # by the engine itself


@dataclass(frozen=True, slots=True)
class Volume:
    """An empty place at `dest` that goes with the container: files can be put into it before."""

    dest: str


@dataclass(frozen=True, slots=True)
class Frame:
    """What surrounds the spec: the image, who runs, the engine's ways, whose container it is.

    `rootless`: its root is the engine's user. `podman`: the engine is Podman."""

    image: str
    user: RunAs
    labels: Mapping[str, str]
    userns_host: bool = False
    rootless: bool = False
    podman: bool = False
    own_processes: int = OWN_PROCESSES


def create_body(
    spec: SandboxSpec, mounts: Sequence[Mount | Volume], entry: Entry, frame: Frame
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
    spec: SandboxSpec, mounts: Sequence[Mount | Volume], entry: Entry, frame: Frame
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
        "ShmSize": SHM_BYTES,
        "Mounts": [_mount(mount) for mount in mounts if not isinstance(mount, Tmpfs)],
        "Tmpfs": {
            mount.dest: _tmpfs(frame)
            for mount in mounts
            if isinstance(mount, Tmpfs)
        },
        "Ulimits": [
            {"Name": name, "Soft": value, "Hard": value}
            for name, value in _ULIMITS
        ],
        **({"UsernsMode": "host"} if frame.userns_host else {}),
        **_limits(spec.limits or Limits(), frame.own_processes),
    }


_ULIMITS = (("core", 0),)
_TMPFS = f"rw,exec,nosuid,nodev,size={TMP_BYTES},mode=1777"


def _tmpfs(frame: Frame) -> str:
    if frame.podman:
        return f"{_TMPFS},notmpcopyup"
    # Its owner too: where the image has the folder, runc gives it the image's mode.
    return f"{_TMPFS},uid={frame.user.uid},gid={frame.user.gid}"


def _mount(mount: Bind | Volume) -> dict[str, Any]:
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
        # Equal values: no swap, so the limit is the whole truth.
        found |= {"Memory": limits.memory_bytes, "MemorySwap": limits.memory_bytes}
    if limits.processes is not None:
        found["PidsLimit"] = limits.processes + own_processes
    if limits.cpus is not None:
        # A rate. CPU seconds are watched.
        found["NanoCpus"] = round(limits.cpus * 1e9)
    return found


def command_line(body: Body) -> list[str]:
    """The docker command that comes closest, for people."""
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
