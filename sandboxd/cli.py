"""`sandboxd`: run the daemon in the foreground."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Collection, Mapping
from functools import partial

import sandboxd
from sandboxd.backends.registry import check_names
from sandboxd.config import loading
from sandboxd.config.config import Config, ConfigError, all_keys
from sandboxd.config.staleness import ConfigFile
from sandboxd.logs import LEVELS, configure
from sandboxd.platform.current import system
from sandboxd.policy.network.exfil_switch import exfil_switch
from sandboxd.policy.network.rules import check_config as check_network
from sandboxd.policy.presets import check_presets
from sandboxd_proto.wording import nearest


def main(argv: list[str] | None = None) -> int:
    gc.disable()  # until the daemon listens: what imports create stays
    system.harden()
    options = _parser().parse_args(argv)
    try:
        configure(options.log_level or _level_of(os.environ))
        flags = _flags(options)
        path = options.config or loading.default_path(os.environ)
        required = bool(options.config or os.environ.get("SANDBOXD_CONFIG"))
        read = partial(_read, path, flags, required=required, shows=bool(options.show_config))
        file = ConfigFile(path, read)
        if options.check_config:
            return _report(path, loading.problems(read))
        config = read()
        if options.show_config:
            as_json = options.show_config == "json"
            return _put(loading.render(config, path, os.environ, flags, as_json=as_json))
    except ConfigError as error:
        print(f"sandboxd: error: {error}", file=sys.stderr)
        return 2
    config = exfil_switch(config, accepted=options.accept_exfil_risk)
    from sandboxd.daemon.daemon import Start, run

    return run(
        Start(config=config, config_file=file, socket=options.socket, idle_exit_s=options.idle_exit)
    )


def _report(path: str, problems: list[str]) -> int:
    for problem in problems:
        print(f"sandboxd: error: {problem}", file=sys.stderr)
    if problems:
        return 2
    return _put(f"{path}: {'no problem found' if os.path.exists(path) else 'does not exist'}\n")


def _put(text: str) -> int:
    """Print it; the exit code. Nothing is left for the interpreter to flush, which reports a
    failure in its own words."""
    rest = memoryview(text.encode(errors="backslashreplace"))
    try:
        while rest:
            rest = rest[os.write(1, rest) :]
    except BrokenPipeError:
        return 141  # like a program that SIGPIPE killed
    except OSError as error:
        why = f"the output could not be written: {error.strerror}"
        print(f"sandboxd: error: {why}", file=sys.stderr)
        return 1
    return 0


def _read(
    path: str, flags: Mapping[str, str], without: Collection[str] = (), *, required: bool,
    shows: bool,
) -> Config:  # fmt: skip
    """ConfigError where no daemon would start with it. `without`: keys that are left out. `shows`:
    names are not looked up."""
    config = loading.load(path, os.environ, flags, required=required, without=without)
    with loading.naming_source(path, os.environ, flags):
        check_network(config)
        if not shows:
            check_names(config)
            check_presets(config)
    return config


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sandboxd",
        description="Runs commands in a sandbox for every agent and editor on this machine.",
    )
    parser.add_argument("--socket", metavar="PATH", help="where to listen ($SANDBOXD_SOCKET)")
    parser.add_argument("--config", metavar="FILE", help="the config file ($SANDBOXD_CONFIG)")
    parser.add_argument("--backend", help="auto, a backend's name, or none ($SANDBOXD_BACKEND)")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="settings",
        help="any key of the config, for example pool.enabled=false",
    )  # fmt: skip
    parser.add_argument(
        "--check-config", action="store_true", help="read the config, say what is wrong, and exit"
    )
    parser.add_argument(
        "--show-config", choices=("text", "json"), help="print every setting, and exit"
    )
    parser.add_argument(
        "--idle-exit", metavar="SECS", type=float, help="end after so long without a client"
    )
    parser.add_argument(
        "--i-accept-exfil-risk", action="store_true", dest="accept_exfil_risk",
        help="together with [egress] exfil_rules = false: no rules against data leaving",
    )  # fmt: skip
    parser.add_argument("--log-level", choices=LEVELS, help="$SANDBOXD_LOG, else info")
    parser.add_argument("--version", action="version", version=f"sandboxd {sandboxd.__version__}")
    return parser


def _level_of(env: Mapping[str, str]) -> str:
    level = env.get("SANDBOXD_LOG", "info")
    if level not in LEVELS:
        raise ConfigError(f"SANDBOXD_LOG is {level!r}; it is one of {', '.join(LEVELS)}")
    return level


def _flags(options: argparse.Namespace) -> dict[str, str]:
    flags: dict[str, str] = {}
    for setting in options.settings:
        key, separator, value = setting.partition("=")
        if key not in all_keys():
            near = nearest(key, all_keys())
            known = f"did you mean {near}?" if near else f"the keys are {', '.join(all_keys())}"
            raise ConfigError(f"--set {setting}: there is no key {key!r}; {known}")
        if not separator:
            raise ConfigError(f"--set {setting}: write --set {key}=VALUE")
        flags[key] = value
    if options.backend is not None:
        flags["backend"] = options.backend
    return flags


if __name__ == "__main__":
    sys.exit(main())
