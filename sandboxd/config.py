"""The daemon's config: a TOML file, then the environment, then flags. One name for each key.

`[table] key` is `SANDBOXD_TABLE_KEY` in the environment and `--set table.key=VALUE` as a flag.
Other tools' names for the same keys are understood through the one table `SYNONYMS`.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from sandboxd_proto.errors import InvalidParams
from sandboxd_proto.manifest import NetworkKind
from sandboxd_proto.wire import convert

log = logging.getLogger(__name__)
BACKENDS = (
    "auto", "bubblewrap", "landlock", "docker", "opensandbox", "sandbox-exec", "appcontainer",
    "none",
)  # fmt: skip
_TRUE = {"1", "true"}


class ConfigError(Exception):
    """The config cannot be used; the message names file, key and what is accepted."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Ceiling(_Table, frozen=True, kw_only=True):
    """What no client may exceed. None: not limited."""

    roots: list[str] | None = None
    network: list[NetworkKind] | None = None
    hosts: list[str] | None = None
    backends: list[str] | None = None
    presets: list[str] | None = None
    max_timeout_secs: float | None = None
    max_memory_bytes: int | None = None
    max_cpu_secs: float | None = None
    max_processes: int | None = None
    max_file_bytes: int | None = None
    max_output_bytes: int | None = None


class Additions(_Table, frozen=True, kw_only=True):
    add: list[str] = msgspec.field(default_factory=list)


class Pool(_Table, frozen=True, kw_only=True):
    enabled: bool = True
    max_sandboxes: int = 32


class Peers(_Table, frozen=True, kw_only=True):
    allow_other_namespaces: bool = False


class Egress(_Table, frozen=True, kw_only=True):
    """`allow`: hosts for every allow_hosts sandbox. `groups`: used as `group:NAME`.

    `exfil_rules` is switched off only together with the flag --i-accept-exfil-risk.
    `private_networks`: networks whose addresses an allowed name may lead to. `resolver`:
    `address` or `address:port` of a name server to ask in place of the system's.
    Byte limits count for one execution.
    """

    allow: list[str] = msgspec.field(default_factory=list)
    groups: dict[str, list[str]] = msgspec.field(default_factory=dict)
    exfil_rules: bool = True
    private_networks: list[str] = msgspec.field(default_factory=list)
    resolver: str | None = None
    connect_secs: float = 30.0
    idle_secs: float = 300.0
    total_secs: float = 300.0
    max_connections: int = 256
    max_sent_bytes: int | None = None
    max_received_bytes: int | None = None


class Docker(_Table, frozen=True, kw_only=True):
    """`host`: the engine, as in DOCKER_HOST, which it wins over. `way`: with our init inside
    ("init"), or carried by the engine ("attach"); "auto" tries."""

    image: str = "sandboxd/base:local"
    pull: bool = False
    host: str = ""
    way: Literal["auto", "init", "attach"] = "auto"


class OpenSandbox(_Table, frozen=True, kw_only=True):
    url: str = ""
    api_key_file: str = ""
    api_key: str = ""


class Config(_Table, frozen=True, kw_only=True):
    backend: str = "auto"
    allow_no_sandbox: bool = False
    preset: str | None = None
    max_executions: int = 1024
    ceiling: Ceiling = Ceiling()
    masks: Additions = Additions()
    protect: Additions = Additions()
    pool: Pool = Pool()
    peers: Peers = Peers()
    egress: Egress = Egress()
    docker: Docker = Docker()
    opensandbox: OpenSandbox = OpenSandbox()


def both_keys(config: Config) -> bool:
    """Running without a sandbox takes both, and both are the daemon's own."""
    return config.backend == "none" and config.allow_no_sandbox


# Names of the same keys in CodeWhale's config and environment, and Wayland's variables.
SYNONYMS: dict[str, str] = {
    "sandbox_mode": "preset",
    "sandbox_backend": "backend",
    "sandbox_url": "opensandbox.url",
    "sandbox_api_key": "opensandbox.api_key",
    "prefer_bwrap": "prefer_bwrap",
}
ENV_SYNONYMS: dict[str, str] = {
    "WAYLAND_SANDBOX": "backend",
    "WAYLAND_ALLOW_NO_SANDBOX": "allow_no_sandbox",
    **{f"DEEPSEEK_{name.upper()}": key for name, key in SYNONYMS.items()},
}
# Variables of ours that are not keys of the config.
_NOT_KEYS = {"SANDBOXD_SOCKET", "SANDBOXD_CONFIG", "SANDBOXD_LOG"}


def default_path(env: Mapping[str, str]) -> str:
    named = env.get("SANDBOXD_CONFIG")
    if named:
        return named
    base = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME") or "/", ".config")
    return os.path.join(base, "sandboxd", "config.toml")


def load(path: str, env: Mapping[str, str], flags: Mapping[str, str], *, required: bool) -> Config:
    """The config of file, environment and flags, later ones winning."""
    merged: dict[str, Any] = {}
    for key, value in _from_file(path, required=required):
        _put(merged, key, value, path)
    for key, value, source in _from_env(env):
        _put(merged, key, _typed(key, value), source)
    for key, value in flags.items():
        _put(merged, key, _typed(key, value), f"--set {key}")
    return _checked(merged, path)


def _from_file(path: str, *, required: bool) -> list[tuple[str, Any]]:
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError:
        if required:
            raise ConfigError(f"the config file {path} does not exist") from None
        return []
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None
    return [(SYNONYMS.get(key, key), _foreign(key, value)) for key, value in document.items()]


def _foreign(name: str, value: Any) -> Any:
    """CodeWhale's sandbox_backend "none" means "no external backend", not "no sandbox"."""
    if name.lower().removeprefix("deepseek_") == "sandbox_backend" and value == "none":
        return "auto"
    return value


def _from_env(env: Mapping[str, str]) -> list[tuple[str, str, str]]:
    synonyms = [
        (key, _foreign(name, env[name]), name) for name, key in ENV_SYNONYMS.items() if name in env
    ]
    keys = {f"SANDBOXD_{key.replace('.', '_').upper()}": key for key in all_keys()}
    ours = [(keys[name], env[name], name) for name in keys if name in env]
    unknown = [
        name for name in env
        if name.startswith("SANDBOXD_") and name not in keys and name not in _NOT_KEYS
        and not name.startswith("SANDBOXD_TEST_")
    ]  # fmt: skip
    if unknown:
        log.warning("ignored, because no setting has this name: %s", ", ".join(sorted(unknown)))
    return synonyms + ours


def all_keys() -> list[str]:
    """Every key as `key` or `table.key`."""
    keys: list[str] = []
    for item in msgspec.structs.fields(Config):
        if isinstance(item.type, type) and issubclass(item.type, msgspec.Struct):
            keys += [f"{item.name}.{sub.name}" for sub in msgspec.structs.fields(item.type)]
        else:
            keys.append(item.name)
    return keys


def _typed(key: str, text: str) -> Any:
    """A value written as text: as TOML where it parses to the right thing, else as a string."""
    if key in ("allow_no_sandbox", "prefer_bwrap"):
        return text.strip().lower() in _TRUE
    texts = ("backend", "preset", "docker.image", "docker.host", "docker.way")
    if key in texts or key.startswith("opensandbox."):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(merged: dict[str, Any], key: str, value: Any, source: str) -> None:
    if key == "prefer_bwrap":
        # CodeWhale's switch for its second Linux backend; bubblewrap comes first here anyway.
        return
    table, _, name = key.rpartition(".")
    if key == "backend" and value == "bwrap":
        value = "bubblewrap"
    if not table:
        if isinstance(value, dict):
            merged.setdefault(key, {}).update(value)
        else:
            merged[key] = value
        return
    inner = merged.setdefault(table, {})
    if not isinstance(inner, dict):
        raise ConfigError(f"{source}: {table} is not a table")
    inner[name] = value


def _checked(merged: dict[str, Any], path: str) -> Config:
    try:
        config = convert(merged, Config)
    except InvalidParams as error:
        where = f" at {error.field}" if error.field else ""
        raise ConfigError(f"{path}: {error.message}{where}") from None
    if config.backend not in BACKENDS:
        raise ConfigError(
            f"backend is {config.backend!r}; it is one of {', '.join(BACKENDS)}"
        )
    for name in config.ceiling.backends or ():
        if name not in BACKENDS[1:]:
            raise ConfigError(f"ceiling.backends names {name!r}, which is no backend")
    return config
