"""Recorded runs with their truth: loading, the setting of each, and how to run it again.

The records name their files below RECORDED_ROOT. For recorded streams the names stay, and the host
view looks them up in a fixture; to run a command again, `Record.moved_to` renames them.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from sandboxd.denials import HostView, RunEvidence, Setting, StreamScanner
from sandboxd.policy.mounts.mount_plan import Host, Mount, MountKind, MountPlan, mount_plan
from sandboxd.policy.plan import (
    Access,
    Grant,
    Identity,
    Limits,
    Mask,
    NetworkRule,
    Plan,
    Protected,
    SandboxSpec,
)  # fmt: skip
from sandboxd_proto.denial import Denial
from sandboxd_proto.manifest import SyscallPolicy

DATA = Path(__file__).resolve().parent / "data"
RECORDED_ROOT = "/home/user/corpus"
RECORDED_PID = 18782  # a process of the host while the recording was made


@dataclass(frozen=True)
class Record:
    id: int
    argv: tuple[str, ...]
    manifest: dict[str, Any]
    row: dict[str, Any]

    @property
    def truth(self) -> str | None:
        return str(self.row["truth"]["kind"]) if self.row["truth"]["denied"] else None

    @property
    def target(self) -> str | None:
        path = self.row["truth"]["path"]
        return str(path) if path is not None else None

    @property
    def belongs_to_recording(self) -> str | None:
        """Why it cannot be run again elsewhere, if so."""
        if "raw" in self.manifest or "seccomp" in self.manifest:
            return "bwrap arguments or a filter of the recording"
        text = " ".join(self.argv)
        for part, why in _BOUND.items():
            if part in text:
                return why
        return None

    def manifest_to_run(self) -> dict[str, Any]:
        """The recorded manifest in our words; `fs: workspace` showed the home folder as well."""
        given = self.manifest
        ours: dict[str, Any] = {
            "base": "minimal" if given["fs"] == "strict" else "host",
            "network": given["network"],
            "timeout": given.get("timeout", 10),
        }
        for name, field in _SAME_MEANING.items():
            if name in given:
                ours[field] = given[name]
        return ours

    def moved_to(self, root: str) -> Record:
        """The same run below another folder."""
        row = json.loads(json.dumps(self.row).replace(RECORDED_ROOT, root))
        return _record(row)


_SAME_MEANING = {
    "fs_write_allow": "fs_write_allow",
    "fs_read_deny": "fs_deny",
    "max_memory_bytes": "max_memory_bytes",
    "max_as_bytes": "max_memory_bytes",
    "cgroup_memory_bytes": "max_memory_bytes",
    "max_cpu_secs": "max_cpu_secs",
    "max_processes": "max_processes",
    "max_file_bytes": "max_file_bytes",
}
_BOUND = {
    str(RECORDED_PID): "a pid of the recording",
    "127.0.0.1:32913": "a port of the recording",
    "/home/user/labbin/": "a program of the recording",
    "ssh -p": "an ssh server of the recording",
}


def records() -> list[Record]:
    with open(DATA / "denials.jsonl", encoding="utf-8") as file:
        return [_record(json.loads(line)) for line in file if line.strip()]


def lay_out(root: Path) -> None:
    """The files that the commands were recorded on."""
    script = DATA / "denials_fixture.py"
    spec = importlib.util.spec_from_file_location("denials_fixture", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.lay_out(str(root))


def _record(row: dict[str, Any]) -> Record:
    cmd = row["cmd"]
    argv = tuple(cmd) if isinstance(cmd, list) else ("bash", "-c", cmd)
    return Record(row["id"], argv, row["manifest"], row)


def setting_of(record: Record, fixture: Path) -> Setting:
    manifest = record.manifest
    spec = _spec(manifest)
    return Setting(
        plan=_plan(manifest, spec),
        layout=_layout(manifest, spec),
        host=host_of(fixture),
        argv=record.argv,
        cwd=f"{RECORDED_ROOT}/ws",
        filter_loaded="seccomp" in manifest,
    )


def facts_of(record: Record) -> RunEvidence:
    row = record.row
    code, timed_out = row["exit"], bool(row["timed_out"])
    ran = row["child_exit_reported"] is not None or timed_out
    # bwrap told a signal as 128+n; the exact status is what the daemon would have.
    number = row["signal"] if code is None else (code - 128 if code > 128 else None)
    oom = "oom_kill" in json.dumps(row.get("evidence", {}))
    return RunEvidence(
        outcome="timeout" if timed_out else "signaled" if number else "exited",
        exit_code=None if number else code,
        signal=number,
        limit_hit="memory" if oom else None,
        timed_out=timed_out,
        setup_failure=None if ran else row["stderr"].strip(),
    )


def classify(record: Record, fixture: Path, *, chunk: int = 4096) -> list[Denial]:
    scanner = StreamScanner(setting_of(record, fixture))
    facts = facts_of(record)
    if facts.setup_failure is not None:
        return scanner.finish(facts)  # what was printed is the engine's, not the command's
    for stream, key in (("stdout", "stdout_tail"), ("stderr", "stderr")):
        data = (record.row[key] or "").encode()
        for at in range(0, len(data), chunk):
            scanner.feed("stdout" if stream == "stdout" else "stderr", data[at : at + chunk])
    return scanner.finish(facts)


def _spec(manifest: dict[str, Any]) -> SandboxSpec:
    writable = [
        Grant(path, "write", Identity(0, 0, is_dir=True))
        for path in manifest.get("fs_write_allow", ())
    ]
    masks = [
        Mask(path, is_dir=not path.endswith("credentials"))
        for path in manifest.get("fs_read_deny", ())
    ]
    return SandboxSpec(
        base="minimal" if manifest["fs"] == "strict" else "host",
        network=NetworkRule(manifest["network"]),
        grants=tuple(writable),
        masks=tuple(masks),
        protected=tuple(_protected(manifest.get("raw", []))),
    )


def _protected(raw: list[str]) -> Iterable[Protected]:
    root = f"{RECORDED_ROOT}/ws"
    for option, path in pairwise(raw):
        if not path.startswith(root + "/"):
            continue
        if option == "--ro-bind":
            yield Protected(path, root, present=True, is_dir=not path.endswith("config"))
        elif option == "--bind":
            # A folder above a protected one was made a mount point.
            yield Protected(f"{path}/hooks", root, present=True, is_dir=True)


def _plan(manifest: dict[str, Any], spec: SandboxSpec) -> Plan:
    memory = [manifest.get(k) for k in ("max_memory_bytes", "max_as_bytes", "cgroup_memory_bytes")]
    allowlist = manifest.get("seccomp") in {"wlx.bpf", "cw.bpf"}
    denylist: SyscallPolicy = "baseline" if "seccomp" in manifest else "inherit"
    return Plan(
        sandbox=spec,
        syscall_policy="strict" if allowlist else denylist,
        timeout_s=manifest.get("timeout", 10.0),
        limits=Limits(
            memory_bytes=next((m for m in memory if m), None),
            cpu_s=manifest.get("max_cpu_secs"),
            processes=manifest.get("max_processes"),
            file_bytes=manifest.get("max_file_bytes"),
        ),
        env=(("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", f"{RECORDED_ROOT}/home")),
        cwd=f"{RECORDED_ROOT}/ws",
    )


def _layout(manifest: dict[str, Any], spec: SandboxSpec) -> MountPlan:
    if manifest["fs"] == "strict":
        links = (("/bin", "usr/bin"), ("/sbin", "usr/sbin"), ("/lib", "usr/lib"))
        return mount_plan(spec, Host(system=(("/usr", None), *links), homes=("/home",)))
    # The recording hid no home folder: the whole root was there, read-only.
    ours = mount_plan(spec, Host(system=(), homes=())).places
    return MountPlan(
        [*(p for p in ours if p.kind not in {MountKind.HIDDEN}), Mount("/", MountKind.SYSTEM)]
    )


def host_of(fixture: Path) -> HostView:
    """The machine of the recording: the fixture's files, a Debian around it, one other process."""

    def real(path: str) -> str | None:
        if path == RECORDED_ROOT or path.startswith(RECORDED_ROOT + "/"):
            return str(fixture) + path[len(RECORDED_ROOT) :]
        return None if path.startswith("/home/user/") else path

    def exists(path: str) -> bool:
        inside = real(path)
        known = {"/home", "/home/user", "/home/user/labbin", "/home/user/labbin/sys31"}
        return path in known or (inside is not None and os.path.lexists(inside))

    def permits(path: str, access: Access) -> bool:
        return access == "read" or path.startswith((RECORDED_ROOT + "/", "/tmp/"))

    return HostView(
        exists=exists,
        is_dir=lambda path: os.path.isdir(real(path) or "/nonexistent"),
        permits=permits,
        pid_exists=lambda pid: pid == RECORDED_PID,
    )
