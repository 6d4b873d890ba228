"""`--net group:python` and the like: the hosts that a tool asks by its own configuration here.

The tools are asked (`pip config`, `npm config`, `go env`), or their files are read (cargo). They
run at / and with no folder of a relative PATH: what a workspace says does not count, because a
command in a sandbox may have written it. A group of the daemon's config is left to the daemon.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from sandboxd_client.cli.parse import UsageError

PREFIX = "group:"
_PATIENCE_S = 20
# Where pip keeps what it asks when nothing is configured.
_PIP_DEFAULTS = (
    "from pip._internal.models.index import PyPI; print(PyPI.url); "
    "print('https://' + PyPI.file_storage_domain)"
)
_PYTHONS = ("python3", "python")
# No command of cargo prints its defaults; what it has used lies in its folder.
_HINTS = {
    "rust": "cargo names its default hosts in no file before it has used them: run `cargo fetch` "
    "once outside of the sandbox, after which the group has the index and the download host; or "
}
_INDEX_KEYS = ("index-url", "extra-index-url", "find-links")


def expand(word: str, environment: Mapping[str, str]) -> list[str]:
    """The hosts of a group; anything else as it is."""
    name = word.removeprefix(PREFIX)
    if not word.startswith(PREFIX) or name not in GROUPS or _configured(name, environment):
        return [word]
    hosts = list(dict.fromkeys(filter(None, map(_host, GROUPS[name](environment)))))
    if not hosts:
        raise UsageError(
            f"--net {word}: the hosts that {name} tools ask are not known on this machine",
            _HINTS.get(name, "")
            + "run it without --net: the denial names the host, which --net HOST allows",
        )
    return hosts


def _host(url: str) -> str | None:
    """The host of a URL, with its port where it is not the usual one."""
    url = url.strip().removeprefix("sparse+").removeprefix("registry+")
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return None
        port = parts.port
    except ValueError:
        return None
    return parts.hostname if port in (None, 80, 443) else f"{parts.hostname}:{port}"


def _configured(name: str, environment: Mapping[str, str]) -> bool:
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(
        environment.get("HOME", "/"), ".config"
    )
    path = environment.get("SANDBOXD_CONFIG") or os.path.join(base, "sandboxd", "config.toml")
    groups = _toml(path).get("egress", {})
    return isinstance(groups, dict) and name in groups.get("groups", {})


def _python(environment: Mapping[str, str]) -> Iterator[str]:
    found = pip_settings(environment)
    for key, value in found:
        if key in _INDEX_KEYS:
            yield from value.split()
    if not any(key == "index-url" for key, _ in found):
        asked = (_ask(environment, program, "-c", _PIP_DEFAULTS) for program in _PYTHONS)
        yield from next(filter(None, asked), "").split()


def pip_settings(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """(key, value) of all that is configured."""
    return _pip_settings(tuple(environment.items()))


@lru_cache(maxsize=1)
def _pip_settings(variables: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    environment = dict(variables)
    asked = (_ask(environment, program, "-m", "pip", "config", "list") for program in _PYTHONS)
    listed = next((text for text in asked if text is not None), "")
    pairs = (line.partition("=")[::2] for line in listed.splitlines())
    return [
        (key.rpartition(".")[2], value.strip("'\"").replace("\\n", " ")) for key, value in pairs
    ]


def _node(environment: Mapping[str, str]) -> Iterator[str]:
    return (value for _, value in npm_settings(environment))


def npm_settings(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """(key, address) of the registries."""
    return _npm_settings(tuple(environment.items()))


@lru_cache(maxsize=1)
def _npm_settings(variables: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    environment = dict(variables)
    with TemporaryDirectory() as folder:  # npm writes a log of each call into its cache
        quiet = {**environment, "npm_config_cache": folder, "npm_config_update_notifier": "false"}
        listed = _ask(quiet, "npm", "config", "list", "--json")
    settings: Any = {}
    with suppress(ValueError):
        settings = json.loads(listed or "{}")
    return [
        (key, value)
        for key, value in (settings.items() if isinstance(settings, dict) else ())
        if (key == "registry" or key.endswith(":registry")) and isinstance(value, str)
    ]


def _go(environment: Mapping[str, str]) -> Iterator[str]:
    listed = _ask(environment, "go", "env", "GOPROXY", "GOSUMDB")
    if listed is None:
        return
    proxies, _, checksums = listed.partition("\n")
    yield from (proxies.replace("|", ",")).split(",")
    for word in checksums.split():
        yield word if "://" in word else f"https://{word.partition('+')[0]}"


def _rust(environment: Mapping[str, str]) -> Iterator[str]:
    """Its settings, and the indexes that it has used on this machine."""
    home = environment.get("CARGO_HOME") or os.path.join(environment.get("HOME", "/"), ".cargo")
    for name in ("config.toml", "config"):
        settings = _toml(os.path.join(home, name))
        for table, key in (("source", "registry"), ("registries", "index")):
            entries = settings.get(table, {})
            for entry in entries.values() if isinstance(entries, dict) else ():
                if isinstance(entry, dict) and isinstance(entry.get(key), str):
                    yield entry[key]
    index = os.path.join(home, "registry", "index")
    with suppress(OSError):
        for folder in os.listdir(index):
            yield f"https://{folder.rpartition('-')[0]}"
            yield from _index_urls(os.path.join(index, folder, "config.json"))


def _index_urls(path: str) -> Iterable[str]:
    with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        settings = json.load(file)
        return [str(settings.get(key, "")) for key in ("dl", "api")]
    return []


def _toml(path: str) -> dict[str, Any]:
    with suppress(OSError, ValueError), open(path, "rb") as file:
        return tomllib.load(file)
    return {}


def _ask(environment: Mapping[str, str], program: str, *arguments: str) -> str | None:
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    found = shutil.which(program, path=os.pathsep.join(filter(os.path.isabs, folders)))
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found, *arguments], cwd=os.path.abspath(os.sep), env=dict(environment),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


GROUPS: dict[str, Callable[[Mapping[str, str]], Iterator[str]]] = {
    "python": _python, "node": _node, "go": _go, "rust": _rust,
}  # fmt: skip
