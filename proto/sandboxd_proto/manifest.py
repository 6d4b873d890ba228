"""The manifest: what a command may touch. JSON as it is, or a TOML file's `[sandbox]` table.

Every field may be left out (or null): it then has the preset's value, else the default, which the
daemon's policy defines.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sandboxd_proto.errors import InvalidParams, ManifestInvalid
from sandboxd_proto.lenient import understood
from sandboxd_proto.wire import WireStruct, convert

Base = Literal["minimal", "host"]
SyscallPolicy = Literal["inherit", "baseline", "strict"]
NetworkKind = Literal["inherit", "deny", "allow_hosts"]


class Network(WireStruct, frozen=True, kw_only=True):
    kind: NetworkKind
    hosts: list[str] = msgspec.field(default_factory=list)


class Duration(WireStruct, frozen=True, kw_only=True):
    secs: int
    nanos: int = 0


class Manifest(WireStruct, frozen=True, kw_only=True):
    """The fields that a caller can set; None means "not set".

    `timeout`: "none", or "longest": as long as the daemon's config permits.
    """

    fs_read_allow: list[str] | None = None
    fs_write_allow: list[str] | None = None
    fs_deny: list[str] | None = None
    base: Base | None = None
    network: Network | Literal["inherit", "deny"] | None = None
    syscall_policy: SyscallPolicy | None = None
    timeout: Duration | float | Literal["none", "longest"] | None = None
    max_memory_bytes: int | None = None
    max_cpu_secs: float | None = None
    max_cpus: float | None = None
    max_processes: int | None = None
    max_file_bytes: int | None = None
    max_output_bytes: int | None = None
    tmp_bytes: int | None = None
    shm_bytes: int | None = None
    env: list[tuple[str, str]] | dict[str, str] | None = None
    image: str | None = None


FIELDS: tuple[str, ...] = Manifest.__struct_fields__


def manifest_from(value: Any) -> Manifest:
    """A decoded JSON or TOML value as a manifest; ManifestInvalid names the field."""
    try:
        return convert(value, Manifest)
    except InvalidParams:
        pass
    try:
        return convert(understood(value), Manifest)
    except InvalidParams as error:
        raise ManifestInvalid(error.message, field=error.field, remedy=error.remedy) from None


def manifest_from_toml(text: str) -> Manifest:
    """The `[sandbox]` table of a TOML document."""
    import tomllib  # only here: most programs pass a dict

    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for a number too long to read
        from sandboxd_proto import toml_mistakes

        hint = toml_mistakes.advice(text, error)
        raise ManifestInvalid(f"the manifest is not TOML: {error}{hint}") from None
    table = document.get("sandbox")
    if not isinstance(table, dict):
        raise ManifestInvalid(
            "the manifest has no [sandbox] table",
            remedy='start the file with "[sandbox]" and put the fields below it',
        )
    return manifest_from(table)


def manifest_to_dict(manifest: Manifest) -> dict[str, Any]:
    """Only the fields that are set, for sending."""
    built = msgspec.to_builtins(manifest)
    return {key: value for key, value in built.items() if value is not None}
