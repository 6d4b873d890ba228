"""The named starting points of a manifest. A field that a request leaves out has these values."""

from __future__ import annotations

import msgspec

from sandboxd.config.config import Config, check_known
from sandboxd.policy.limits import DEFAULT_PROCESSES
from sandboxd_proto.errors import ManifestInvalid
from sandboxd_proto.manifest import Base, NetworkKind, SyscallPolicy
from sandboxd_proto.wording import nearest, shortened


class Preset(msgspec.Struct, frozen=True):
    name: str
    summary: str
    base: Base = "minimal"
    network: NetworkKind = "inherit"
    syscall_policy: SyscallPolicy = "inherit"
    workspace_writable: bool = False
    needs_workspace: bool = False
    unsandboxed: bool = False

    @property
    def max_processes(self) -> int | None:
        return None if self.unsandboxed else DEFAULT_PROCESSES

    @property
    def named(self) -> bool:
        return bool(self.name)


NO_PRESET = Preset(name="", summary="an empty manifest: the defaults")

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="read-only",
            summary="reads the machine without its secrets, writes nothing, no network",
            base="host", network="deny", syscall_policy="baseline",
        ),
        Preset(
            name="workspace-write",
            summary="read-only, and the workspace is writable except its protected files",
            base="host", network="deny", syscall_policy="baseline",
            workspace_writable=True, needs_workspace=True,
        ),
        Preset(
            name="danger-full-access",
            summary="no sandbox at all; needs both keys in the daemon's config",
            base="host", unsandboxed=True,
        ),
        Preset(
            name="external-sandbox",
            summary="something outside isolates this machine; needs both keys as well",
            base="host", unsandboxed=True,
        ),
    )
}  # fmt: skip


def preset(name: str | None) -> Preset:
    if name is None:
        return NO_PRESET
    found = PRESETS.get(name)
    if found is None:
        near = nearest(name, PRESETS)
        raise ManifestInvalid(
            f"there is no preset {shortened(name)!r}", field="preset",
            remedy=f"did you mean {near}?" if near else f"the presets are {', '.join(PRESETS)}",
        )  # fmt: skip
    return found


def check_presets(config: Config) -> None:
    """ConfigError where the config names a preset that does not exist."""
    if config.preset is not None:
        check_known(config.preset, PRESETS, "preset", "preset")
    for name in config.ceiling.presets or ():
        check_known(name, PRESETS, "ceiling.presets", "preset")
