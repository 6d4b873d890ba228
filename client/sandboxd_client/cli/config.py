"""`sandboxctl config show|check`: the daemon's settings, read by the daemon's own program."""

from __future__ import annotations

import os
import subprocess

from sandboxd_client import start_daemon
from sandboxd_client.cli.parse import Options


def show(options: Options) -> int:
    return _daemon("--show-config", *(["json"] if options.has("--json") else ["text"]))


def check(options: Options) -> int:
    return _daemon("--check-config")


def _daemon(*arguments: str) -> int:
    """The environment is the one that an autostarted daemon would get."""
    environment = {**start_daemon.environment(os.environ), **start_daemon.source_tree()}
    done = subprocess.run([*start_daemon.program(), *arguments], env=environment, check=False)
    return done.returncode
