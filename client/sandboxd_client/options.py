"""The options of `execute` for both clients, and their form on the wire."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from sandboxd_client import payload
from sandboxd_client.caller import indexes, numbers, usual
from sandboxd_proto.manifest import Manifest, manifest_from, manifest_to_dict
from sandboxd_proto.messages.execute import PtySize
from sandboxd_proto.messages.session import OnDenial

if TYPE_CHECKING:
    from sandboxd_client.caller import Descriptors

# Names of subprocess and others, and what they are called here.
_ELSEWHERE = {"input": "stdin", "capture_output": "capture", "environment": "env"}
# Flags of sandboxctl → fields of the manifest.
_FLAGS = {"read": "fs_read_allow", "write": "fs_write_allow", "deny": "fs_deny", "net": "network",
          "memory": "max_memory_bytes", "syscalls": "syscall_policy"}  # fmt: skip
ManifestLike = Manifest | Mapping[str, Any]
PathLike = str | os.PathLike[str]
Word = str | bytes | os.PathLike[str]


class ExecuteOptions(TypedDict, total=False):
    """The optional params of `execute`, by their names on the wire.

    `preset`: "read-only", "workspace-write", … `workspace`: the folder that the preset is about,
    and that the command starts in. `cwd`: another folder to start in, absolute or from the
    workspace. Without both the command starts in /, not in your current folder: give `workspace`.
    `manifest`: what may be touched, field by field; its `env` in place of your usual variables.
    `timeout`: seconds, "5m", or "none"; without it the command is ended after 30 s.
    `env`: variables over your usual ones (PATH, HOME, …).
    `stdin`: of any size. `stderr="stdout"`: one ordered stream. `capture`: False, or for example
    `{"bytes": 65536, "keep": "tail"}` (head, tail, both). At most 8 MiB of each stream are
    captured, and `truncated` says that there was more; `stream` and `fds` pass on all of it.
    `fds`: pipes or sockets of yours that are connected to the command's stdin, stdout or stderr, as
    numbers or objects with `fileno()`. They stay yours: close them when the command has
    been started.
    `on_denial`: "report", "offer" or "retry"; `approval_wait_secs`: at most so long for a decision.
    """

    preset: str | None
    workspace: PathLike | None
    cwd: PathLike | None
    manifest: ManifestLike | None
    timeout: float | str | None
    env: Mapping[str, str] | None
    stdin: str | bytes | None
    stderr: Literal["stdout"] | None
    capture: bool | Mapping[str, Any] | None
    pty: PtySize | None
    sandbox: str | None
    session: str | None
    backend: str | None
    explain: bool
    on_denial: OnDenial | None
    approval_wait_secs: float | None
    fds: Descriptors | None
    execution_id: str | None


class StreamOptions(ExecuteOptions, total=False):
    """`capture`: put the output into the result as well."""

    stdin_open: bool


class CheckOptions(TypedDict, total=False):
    """What `execute` with the same options would enforce, and how. Nothing runs."""

    manifest: ManifestLike | None
    preset: str | None
    workspace: PathLike | None
    cwd: PathLike | None
    timeout: float | str | None
    env: Mapping[str, str] | None
    backend: str | None
    session: str | None


class SandboxOptions(TypedDict, total=False):
    """`name`: unique while the sandbox lives. `scope`: it ends with the "connection", the
    "session", or (by "user") when it is idle for `idle_secs` or destroyed. `timeout`: of each
    command in it; without it 30 s.
    """

    manifest: ManifestLike | None
    preset: str | None
    workspace: PathLike | None
    timeout: float | str | None
    env: Mapping[str, str] | None
    backend: str | None
    session: str | None
    on_denial: OnDenial | None
    approval_wait_secs: float | None
    idle_secs: float | None
    name: str | None
    scope: Literal["user", "session", "connection"] | None


def check_names(method: str, given: Mapping[str, Any], known: Any) -> None:
    """`known`: the TypedDict of the method's options. Python does not compare them itself."""
    names = known.__annotations__
    for name in given:
        if name not in names:
            meant = _meant(name, list(names))
            raise TypeError(f"{method}() has no option {name!r}{meant and f': {meant}'}")


def _meant(name: str, names: list[str]) -> str:
    field = _FLAGS.get(name, name)
    if "manifest" in names and field in Manifest.__struct_fields__:
        return f"it is a field of the manifest, manifest={{{field!r}: …}}"
    from difflib import get_close_matches

    near = get_close_matches(_ELSEWHERE.get(name, name), names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(names)}"


def execute_params(
    argv: Sequence[Word], options: Mapping[str, Any], method: str = "execute"
) -> dict[str, Any]:
    check_names(method, options, StreamOptions if method == "stream" else ExecuteOptions)
    if isinstance(argv, str | bytes | os.PathLike):
        raise TypeError("argv is a list of words; for a shell line give ['sh', '-c', line]")
    words = [_word(item, f"argv[{index}]") for index, item in enumerate(argv)]
    return {"argv": words, **policy_params(options, terminal=options.get("pty") is not None)}


def policy_params(options: Mapping[str, Any], *, terminal: bool = True) -> dict[str, Any]:
    """`timeout` and `env` in the manifest; your usual variables where nothing names others."""
    params = plain(options)
    timeout, env = params.pop("timeout", None), params.pop("env", None)
    if params.get("sandbox") is not None and timeout is None and env is None:
        return params  # it has its own
    manifest = params.setdefault("manifest", {})
    if timeout is not None:
        manifest["timeout"] = manifest_to_dict(manifest_from({"timeout": timeout}))["timeout"]
    if manifest.get("env") is None and params.get("sandbox") is None:
        manifest["env"] = usual(os.environ, terminal=terminal)
    if env is not None:
        manifest["env"] = {**dict(manifest.get("env") or {}), **env}
    return params


def _word(item: Any, field: str) -> str:
    """JSON carries text: bytes and paths that are not UTF-8 cannot be arguments."""
    if not isinstance(item, str | bytes | os.PathLike):
        raise TypeError(f"{field} is {item!r}, and not text: write {str(item)!r}")
    word = os.fsdecode(item)
    try:
        word.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{field} is not UTF-8, which JSON cannot carry: pass it through stdin or a file"
        ) from None
    return word


def passed_descriptors(options: Mapping[str, Any]) -> list[int]:
    """The descriptors to send with the request."""
    fds = options.get("fds")
    return numbers(fds) if fds else []


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Only the options that are set, as JSON values."""
    return {name: _value(name, item) for name, item in options.items() if item is not None}


def attach_params(
    execution_id: str, after: Mapping[str, int] | None, stdin: bool
) -> dict[str, Any]:
    params: dict[str, Any] = {"execution_id": execution_id, "stdin": stdin}
    return params if after is None else {**params, "after": dict(after)}


def write_params(execution_id: str, data: str | bytes) -> dict[str, Any]:
    if isinstance(data, str):
        return {"execution_id": execution_id, "data": data}
    return {"execution_id": execution_id, "base64": payload.base64(data)}


def _path(name: str, item: Any) -> str:
    """A workspace is meant from the caller's folder; in a sandbox `cwd` from its workspace."""
    path = os.path.expanduser(_word(item, name))
    return os.path.abspath(path) if name == "workspace" else path


def _value(name: str, item: Any) -> Any:
    if name == "manifest":
        if not isinstance(item, Manifest | Mapping):
            raise TypeError(f"manifest is {item!r}: give a dict of its fields")
        # A misspelt field fails here, before anything is sent.
        manifest = item if isinstance(item, Manifest) else manifest_from(dict(item))
        return manifest_to_dict(manifest)
    if name == "fds":
        return indexes(item)
    if name == "stdin" and isinstance(item, bytes):
        return {"base64": payload.base64(item)}
    if name in ("workspace", "cwd") or isinstance(item, os.PathLike):
        return _path(name, item)
    if name == "env":
        if not isinstance(item, Mapping):
            raise TypeError(f"env is {item!r}: give names with values, {{'NAME': 'value'}}")
        return {key: _word(value, f"env[{key!r}]") for key, value in dict(item).items()}
    return msgspec.to_builtins(item)
