"""From flags, and a manifest file, to what `execute` and `manifest/check` are asked."""

from __future__ import annotations

import os
import sys

from sandboxd_client.caller import usual
from sandboxd_client.cli.flags import NARROWING, POLICY
from sandboxd_client.cli.parse import Options, UsageError
from sandboxd_client.cli.workspace import here, inside, resolve, workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DEFAULT_PRESET = "workspace-write"
_UNSANDBOXED = ("danger-full-access", "external-sandbox")
_AMOUNTS = ("--timeout", "--memory", "--cpu", "--processes", "--tmp-size", "--shm-size")
_PATHS = {"--read": "fs_read_allow", "--write": "fs_write_allow", "--deny": "fs_deny"}


def policy(options: Options, caller: Mapping[str, str], *, terminal: bool = True) -> dict[str, Any]:
    """`preset`, `workspace`, `manifest`, `cwd` and `backend`, each only where there is one.
    `terminal`: whether the command gets one."""
    file = options.one("--manifest")
    manifest, meant = _from_file(file) if file is not None else ({}, {"preset": _preset(options)})
    preset = options.one("--preset") or meant.get("preset")
    params: dict[str, Any] = {"manifest": manifest}
    if preset is not None:
        params["preset"] = preset
    else:  # the daemon's default is `inherit`
        manifest.setdefault("network", "deny")
    folder = _workspace(options.one("--workspace") or meant.get("workspace"), preset)
    if folder is not None:
        params["workspace"] = folder
    for flag, field in _PATHS.items():
        manifest[field] = _merged(manifest.get(field), map(resolve, options.all(flag)))
    if preset == "read-only" and folder is not None:
        manifest["fs_read_allow"] = _merged(manifest["fs_read_allow"], [folder])
    _limits(options, manifest)
    env = manifest.get("env")
    before = dict(env) if env is not None else _usual(caller, folder, preset, terminal)
    passed = _of_groups(options, caller, folder)
    if env is None and "HOME" in before:  # otherwise the command has the home of another user
        passed = _of_pip(caller) | passed
    manifest["env"] = _environment(options, caller, passed | before)
    if options.has("--ssh-agent"):
        _lend_agent(manifest, caller)
    params["manifest"] = {key: value for key, value in manifest.items() if value not in (None, [])}
    cwd = _cwd(options, preset, folder, params["manifest"])
    if cwd is not None:
        params["cwd"] = cwd
    if options.has("--backend"):
        params["backend"] = options.one("--backend")
    return params


def _preset(options: Options) -> str:
    """Plan mode refuses a sandbox that can write."""
    planning = options.has("--plan") or options.one("--mode") == "plan"
    return "read-only" if planning else DEFAULT_PRESET


def _usual(
    caller: Mapping[str, str], folder: str | None, preset: str | None, terminal: bool
) -> dict[str, str]:
    """Without the home and the name of root where the command runs as the owner of the workspace:
    the daemon knows those of the owner."""
    found = usual(caller, terminal=terminal)
    sandboxed = preset is not None and preset not in _UNSANDBOXED
    if sandboxed and folder is not None and sys.platform != "win32" and os.geteuid() == 0:
        try:
            of_root = os.stat(folder).st_uid == 0
        except OSError:  # which the daemon tells of
            return found
        for name in () if of_root else ("HOME", "USER"):
            found.pop(name, None)
    return found


def _of_groups(options: Options, caller: Mapping[str, str], folder: str | None) -> dict[str, str]:
    """The addresses that the tools of `--net group:…` are configured for."""
    words = {word for item in options.all("--net") for word in item.split(",")}
    if not any(word.startswith("group:") for word in words):
        return {}
    from sandboxd_client.cli.group_settings import settings

    return settings(words, caller, [folder or here(), here()])


def _of_pip(caller: Mapping[str, str]) -> dict[str, str]:
    """Settings of the user's own files. Those of the machine and of a virtual environment are seen
    in the sandbox."""
    home = caller.get("HOME", "/")
    config = caller.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    named = (os.path.join(home, ".pip", "pip.conf"), os.path.join(config, "pip", "pip.conf"),
             caller.get("PIP_CONFIG_FILE", ""))  # fmt: skip
    files = [*filter(os.path.isfile, named)]
    if not files and not any(name.startswith("PIP_") for name in caller):
        return {}
    from sandboxd_client.cli.pip_sources import local_sources

    return local_sources(files, caller)


def in_sandbox(options: Options) -> dict[str, Any]:
    """For a command in a sandbox that exists: what it may do was said when that was made. A command
    can have variables of its own, and less time and memory."""
    given = [flag.name for flag in POLICY if flag not in NARROWING and options.has(flag.name)]
    if given:
        raise UsageError(
            f"{given[0]} cannot be changed for a sandbox that exists",
            f"give it to `sandboxctl sandbox create`, or leave out --sandbox {_id(options)}",
        )
    params: dict[str, Any] = {"sandbox": _id(options)}
    named = options.one("--cwd")
    if named is not None:
        params["cwd"] = resolve(named)
    manifest: dict[str, Any] = {}
    _amounts(options, manifest)
    env = _environment(options, os.environ, {})
    if env:
        manifest["env"] = env
    if manifest:
        params["manifest"] = manifest
    return params


def _environment(
    options: Options, caller: Mapping[str, str], before: dict[str, str]
) -> list[list[str]]:
    """What the flags add to `before`."""
    if options.has("--env-all") or options.has("--env-pass"):
        from sandboxd_client.cli.passed_env import select_variables

        before |= select_variables(options.all("--env-pass"), options.has("--env-all"), caller)
    return environment(options.all("--env"), caller, before)


def _id(options: Options) -> str:
    return options.one("--sandbox") or ""


def environment(
    asked: list[str], caller: Mapping[str, str], manifest: Any = None
) -> list[list[str]]:
    """The manifest's own variables, else the usual ones of the caller; then those asked for."""
    env = usual(caller) if manifest is None else dict(manifest)
    for item in asked:
        name, equals, value = item.partition("=")
        if not name:
            raise UsageError(f"--env {item!r} names no variable", "write --env NAME=VALUE")
        if any(character.isspace() for character in name):
            raise UsageError(
                f"--env {item!r}: the name of a variable has no blanks",
                "write --env once for each variable: --env A=1 --env B=2",
            )
        if equals:
            env[name] = value
        elif name in caller:
            env[name] = caller[name]
        else:
            raise UsageError(
                f"--env {name}: you have no such variable", f"write --env {name}=VALUE"
            )
    return [[name, value] for name, value in env.items()]


def _lend_agent(manifest: dict[str, Any], caller: Mapping[str, str]) -> None:
    """To connect to a socket it need not be writable: reading its path is enough. Without the known
    hosts ssh refuses every server."""
    path = caller.get("SSH_AUTH_SOCK")
    if not path:
        raise UsageError(
            "--ssh-agent: you have no ssh agent, SSH_AUTH_SOCK is not set",
            'start one with eval "$(ssh-agent)", then ssh-add',
        )
    if not os.path.exists(path):
        raise UsageError(
            f"--ssh-agent: your SSH_AUTH_SOCK, {path}, does not exist",
            'the agent has ended; start one with eval "$(ssh-agent)", then ssh-add',
        )
    path = resolve(path)
    known = os.path.join(caller.get("HOME") or os.path.expanduser("~"), ".ssh", "known_hosts")
    shown = [path, resolve(known)] if os.access(known, os.R_OK) else [path]
    manifest["fs_read_allow"] = _merged(manifest["fs_read_allow"], shown)
    manifest["env"] = [pair for pair in manifest["env"] if pair[0] != "SSH_AUTH_SOCK"]
    manifest["env"].append(["SSH_AUTH_SOCK", path])


def _limits(options: Options, manifest: dict[str, Any]) -> None:
    if manifest.get("timeout") is None:
        manifest["timeout"] = "longest"
    _amounts(options, manifest)
    for flag, field in (("--base", "base"), ("--syscalls", "syscall_policy")):
        if options.has(flag):
            manifest[field] = options.one(flag)
    if options.has("--net"):
        from sandboxd_client.cli.network import network, say_ignored_paths, widen

        net = network(options.all("--net"))
        if not options.has("--quiet") and not options.has("--json"):
            say_ignored_paths(options.all("--net"))
        manifest["network"] = widen(manifest.get("network"), net)
    if isinstance(manifest.get("network"), dict):
        options.hosts = manifest["network"].get("hosts") or []


def _amounts(options: Options, manifest: dict[str, Any]) -> None:
    if not any(map(options.has, _AMOUNTS)):
        return
    from sandboxd_client.cli.amounts import count, seconds, size_bytes

    timeout = options.one("--timeout")
    if timeout is not None:
        manifest["timeout"] = "none" if timeout == "none" else seconds(timeout, "--timeout")
    named = (
        ("--memory", "max_memory_bytes", size_bytes),
        ("--cpu", "max_cpu_secs", seconds),
        ("--processes", "max_processes", count),
        ("--tmp-size", "tmp_bytes", size_bytes),
        ("--shm-size", "shm_bytes", size_bytes),
    )
    for flag, field, reader in named:
        value = options.one(flag)
        if value is not None:
            manifest[field] = reader(value, flag)


def _workspace(named: str | None, preset: str | None) -> str | None:
    if preset is None and named is None:
        return None
    folder = workspace(named)
    if folder is None and preset == DEFAULT_PRESET:
        raise UsageError(
            f"{here()} cannot be the workspace: it holds a whole home folder or the machine",
            "go to a project folder, or give --workspace DIR or --preset read-only",
        )
    return folder


def _cwd(
    options: Options, preset: str | None, folder: str | None, manifest: dict[str, Any]
) -> str | None:
    """The caller's folder where it lies in the workspace. Without a workspace: where the sandbox
    has it, or a part of it. Else the daemon's default, which is the workspace if there is one."""
    named = options.one("--cwd")
    if named is not None:
        return resolve(named)
    current = here()
    if folder is not None and preset is not None:
        return current if inside(current, folder) else None
    if preset in _UNSANDBOXED:
        return current
    visible = manifest.get("fs_read_allow", []) + manifest.get("fs_write_allow", [])
    shown = any(inside(current, root) or inside(root, current) for root in visible)
    return current if shown else None


def _merged(before: Any, more: Any) -> list[str]:
    return list(dict.fromkeys([*(before or []), *more]))


def _from_file(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    from sandboxd_client.cli.manifest_file import read_manifest, read_run

    return read_manifest(name), read_run(name)
