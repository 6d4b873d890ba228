"""What `execute` can be asked for, once for both clients, and how it is put on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from sandboxd_client import descriptors, payload
from sandboxd_proto.manifest import Manifest, manifest_from, manifest_to_dict
from sandboxd_proto.messages.execute import PtySize

if TYPE_CHECKING:
    from sandboxd_client.descriptors import Descriptors

ManifestLike = Manifest | Mapping[str, Any]


class ExecuteOptions(TypedDict, total=False):
    """The optional params of `execute`, by their names on the wire.

    `fds`: pipes or sockets of yours that become the command's stdin, stdout or stderr, as numbers
    or objects with `fileno()`. They stay yours: close them when the command has been started.
    """

    cwd: str | None
    preset: str | None
    workspace: str | None
    manifest: ManifestLike | None
    stdin: str | bytes | None
    pty: PtySize | None
    sandbox: str | None
    session: str | None
    backend: str | None
    explain: bool
    fds: Descriptors | None
    execution_id: str | None


class StreamOptions(ExecuteOptions, total=False):
    """`capture`: put the output into the result as well."""

    stdin_open: bool
    capture: bool | None


class CheckOptions(TypedDict, total=False):
    manifest: ManifestLike | None
    preset: str | None
    workspace: str | None
    cwd: str | None
    backend: str | None


class SandboxOptions(TypedDict, total=False):
    manifest: ManifestLike | None
    preset: str | None
    workspace: str | None
    backend: str | None
    session: str | None
    idle_secs: float | None


def execute_params(argv: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(argv, str):
        raise TypeError("argv is a list of words; for a shell line give ['sh', '-c', line]")
    return {"argv": list(argv), **plain(options)}


def passed(options: Mapping[str, Any]) -> list[int]:
    """The descriptors to send with the request."""
    fds = options.get("fds")
    return descriptors.numbers(fds) if fds else []


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Only what was said, as JSON values."""
    return {name: _value(name, item) for name, item in options.items() if item is not None}


def write_params(execution_id: str, data: str | bytes) -> dict[str, Any]:
    if isinstance(data, str):
        return {"execution_id": execution_id, "data": data}
    return {"execution_id": execution_id, "base64": payload.base64(data)}


def _value(name: str, item: Any) -> Any:
    if name == "manifest":
        # A misspelt field fails here, before anything is sent.
        manifest = item if isinstance(item, Manifest) else manifest_from(dict(item))
        return manifest_to_dict(manifest)
    if name == "fds":
        return descriptors.indexes(item)
    if name == "stdin" and isinstance(item, bytes):
        return {"base64": payload.base64(item)}
    return msgspec.to_builtins(item)
