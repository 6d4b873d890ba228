"""Read the config: a TOML file, then the environment, then flags. One name for each key.

`[table] key` is `SANDBOXD_TABLE_KEY` in the environment and `--set table.key=VALUE` as a flag.
Other tools' names for the same keys are understood through the one table `SYNONYMS`.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import msgspec

from sandboxd.config.config import LEAST_BYTES, Config, ConfigError, all_keys, variable_of
from sandboxd.platform.current import system
from sandboxd_proto import toml_mistakes
from sandboxd_proto.amounts import shown_bytes
from sandboxd_proto.errors import InvalidParams
from sandboxd_proto.lenient import understood_amounts
from sandboxd_proto.wire import convert

_TRUE = {"1", "true"}
# What other tools call a backend.
BACKEND_SYNONYMS = {"bwrap": "bubblewrap"}
_PATTERN = set("*?[")
_MOST_PROBLEMS = 50
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
# Where 0 is a meaning of its own: none kept, or at once.
_ZERO_MEANS_NONE = {
    "pool.max_sandboxes", "approvals.grace_secs", "approvals.always_days", "sessions.linger_secs",
    "sessions.tmp_bytes", "audit.sync_secs", "audit.retention_days", "budget.max_processes",
    "budget.max_agent_depth", "budget.max_tokens_in", "budget.max_tokens_out",
    "budget.max_cost_usd", "budget.max_wall_time_secs", "budget.max_tool_runtime_secs",
    "session_cap.per_session_tokens", "session_cap.per_session_usd",
    "session_cap.per_user_daily_usd",
}  # fmt: skip
# Taken as they are written, whatever they look like.
_TEXTS = {
    "backend", "preset", "docker.image", "docker.host", "docker.way", "opensandbox.url",
    "opensandbox.api_key", "opensandbox.api_key_file", "opensandbox.ca_file", "opensandbox.image",
}  # fmt: skip
# Variables of ours that are not keys of the config.
_NOT_KEYS = {"SANDBOXD_SOCKET", "SANDBOXD_CONFIG", "SANDBOXD_LOG", "SANDBOXD_SESSION"}


def default_path(env: Mapping[str, str]) -> str:
    named = env.get("SANDBOXD_CONFIG")
    if named:
        return named
    base = env.get("XDG_CONFIG_HOME") or system.config_root(env)
    if not base:
        home = env.get("HOME") or _account_home()
        base = "/etc" if home in ("", "/") else os.path.join(home, ".config")
    return os.path.join(base, "sandboxd", "config.toml")


def _account_home() -> str:
    """Where HOME is not set (in a unit, say): the home of the account."""
    return system.home_of(system.user_id()) or ""


def load(
    path: str, env: Mapping[str, str], flags: Mapping[str, str], *, required: bool,
    without: Collection[str] = (),
) -> Config:  # fmt: skip
    """The config of file, environment and flags, later ones winning. `without`: keys that have
    their default, whatever is said."""
    merged: dict[str, Any] = {}
    for key, value in _from_file(path, required=required):
        _put(merged, key, value, path)
    _refuse_unknown(name for name in env if name not in without)
    for key, value, source in _from_env(env):
        _put(merged, key, _typed(key, value), source)
    for key, value in flags.items():
        _put(merged, key, _typed(key, value), f"--set {key}")
    for key in without:
        _leave_out(merged, key)
    with naming_source(path, env, flags):
        return _checked(merged)


def problems(read: Callable[[Collection[str]], object]) -> list[str]:
    """All that is wrong, not only the first: what is wrong is left out of the next reading."""
    found: list[str] = []
    wrong: set[str] = set()
    while len(found) < _MOST_PROBLEMS:
        try:
            read(wrong)
        except ConfigError as error:
            found.append(str(error))
            if error.key is None or error.key in wrong:
                break
            wrong.add(error.key)
        else:
            break
    return found


def _leave_out(merged: dict[str, Any], key: str) -> None:
    """The key, or the innermost table of it that there is."""
    table: Any = merged
    *tables, name = key.partition("[")[0].split(".")
    for part in tables:
        if not isinstance(table.get(part), dict):
            name = part
            break
        table = table[part]
    table.pop(name, None)


@contextmanager
def naming_source(path: str, env: Mapping[str, str], flags: Mapping[str, str]) -> Iterator[None]:
    """An error about a value says where the value was read: a flag, a variable or the file."""
    try:
        yield
    except ConfigError as error:
        if error.key is None:
            raise
        source = _source(error.key, path, env, flags)
        raise ConfigError(f"{source}: {error}", key=error.key) from None


def _source(key: str, path: str, env: Mapping[str, str], flags: Mapping[str, str]) -> str:
    """Where the value of a key was read that has one."""
    if key in flags:
        return "--backend" if key == "backend" else f"--set {key}"
    named = [source for one, _, source in _from_env(env) if one == key]
    return named[-1] if named else path


def _from_file(path: str, *, required: bool) -> list[tuple[str, Any]]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        document = tomllib.loads(text)
    except FileNotFoundError:
        if required:
            raise ConfigError(f"the config file {path} does not exist") from None
        return []
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except tomllib.TOMLDecodeError as error:
        hint = toml_mistakes.advice(text, error)
        raise ConfigError(f"{path} is not TOML: {error}{hint}") from None
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
    ours = [(key, env[name], name) for name, key in _variables().items() if name in env]
    return synonyms + ours


def _variables() -> dict[str, str]:
    return {variable_of(key): key for key in all_keys()}


def _refuse_unknown(names: Iterable[str]) -> None:
    keys = _variables()
    unknown = [
        name for name in names
        if name.startswith("SANDBOXD_") and name not in keys and name not in _NOT_KEYS
        and not name.startswith("SANDBOXD_TEST_")
    ]  # fmt: skip
    for name in sorted(unknown):
        near = get_close_matches(name, keys, n=1, cutoff=0.7)
        hint = f"did you mean {near[0]}?" if near else "sandboxctl config show lists the settings"
        raise ConfigError(f"the variable {name} names no setting; {hint}", key=name)


def _typed(key: str, text: str) -> Any:
    """A value written as text: as TOML where it parses to the right thing, else as a string."""
    if key in ("allow_no_sandbox", "prefer_bwrap"):
        return text.strip().lower() in _TRUE
    if key in _TEXTS:
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
    if key == "backend" and isinstance(value, str):
        value = BACKEND_SYNONYMS.get(value, value)
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


def _checked(merged: dict[str, Any]) -> Config:
    try:
        config = _converted(merged)
    except InvalidParams as error:
        field = (error.field or "").removesuffix("[...]")
        where = f"[{table}] " if (table := field.rpartition(".")[0]) else ""
        tables = [key.rpartition(".")[0] for key in all_keys() if key.endswith(f".{field}")]
        remedy = f"it belongs into [{tables[0]}]" if tables else error.remedy
        hint = f"; {remedy}" if remedy else ""
        raise ConfigError(f"{where}{error.message}{hint}", key=field) from None
    _check_amounts(msgspec.to_builtins(config))
    _check_paths(config)
    return config


def _converted(merged: dict[str, Any]) -> Config:
    try:
        return convert(merged, Config)
    except InvalidParams:
        return convert(understood_amounts(merged), Config)


def _check_amounts(config: dict[str, Any]) -> None:
    """No amount may be negative; limits and times of 0 would allow nothing."""
    for key in all_keys():
        table, _, name = key.rpartition(".")
        value = config[table][name] if table else config[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        least = 0 if key in _ZERO_MEANS_NONE else 1e-9
        if is_number and not least <= value < math.inf:
            raise ConfigError(
                f"{key} is {value}, which does nothing; "
                f"it is a number {'of 0 or more' if least == 0 else 'above 0'}",
                key=key,
            )
        needed = LEAST_BYTES.get(name, 0) if value else 0
        if is_number and value < needed:
            raise ConfigError(
                f"{key} is {value} bytes, too little for any program; "
                f'write "{shown_bytes(needed)}" or more',
                key=key,
            )


def _check_paths(config: Config) -> None:
    """A relative path names nothing: the daemon has no folder of the user's to start from. A
    pattern is none, but a name with a star in it can be meant."""
    for key, items in (
        ("masks.add", config.masks.add),
        ("ceiling.roots", config.ceiling.roots or ()),
        ("protect.add", config.protect.add),
    ):
        for item in items:
            if _PATTERN & set(item) and not os.path.lexists(os.path.expanduser(item)):
                whole = "file name" if key == "protect.add" else "path of a file or folder"
                raise ConfigError(
                    f"{key} has {item!r}, which does nothing: there are no patterns; "
                    f"write each {whole}", key=key,
                )  # fmt: skip
            if key != "protect.add" and not item.startswith(("/", "~")):
                raise ConfigError(
                    f"{key} has {item!r}, which does nothing; write the whole path, "
                    f"for example {os.path.join('~', item)!r}", key=key,
                )  # fmt: skip


def render(
    config: Config, path: str, env: Mapping[str, str], flags: Mapping[str, str], *, as_json: bool
) -> str:
    """Every setting with its value; those that differ from the default with where they were read.
    No secret."""
    values, defaults = msgspec.to_builtins(config), msgspec.to_builtins(Config())
    rows, sources = [], {}
    for key in all_keys():
        table, _, name = key.rpartition(".")
        value, default = ((c[table] if table else c)[name] for c in (values, defaults))
        if value != default:
            sources[key] = _source(key, path, env, flags)
        if key == "opensandbox.api_key" and value:
            value = "(hidden)"
        rows.append((key, value))
    if as_json:
        return msgspec.json.encode(
            {"path": path, "config": dict(rows), "sources": sources}
        ).decode()
    width = max(len(key) for key, _ in rows)
    note = "" if os.path.exists(path) else " (does not exist)"
    lines = [f"# {path}{note}\n", "# * marks what differs from the default, and where it is set\n"]
    for key, value in rows:
        text = "(unset)" if value is None else msgspec.json.encode(value).decode()
        origin = sources.get(key, "")
        origin = "  # the file" if origin == path else f"  # {origin}" if origin else ""
        lines.append(f"{'*' if key in sources else ' '} {key:<{width}}  {text}{origin}\n")
    return "".join(lines)
