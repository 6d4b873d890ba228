"""How an error names the setting that forbids a request, and where to change it."""

from __future__ import annotations

import os

from sandboxd.config.config import variable_of


def setting_words(key: str, value: object) -> tuple[str, str, str]:
    """The line of the config; who says so; and what changes it."""
    table, _, name = key.rpartition(".")
    line = f"[{table}] {name} = {value!r}".replace("'", '"')
    variable = variable_of(key)
    if variable in os.environ:
        return (
            line,
            f"{variable}, which was set when the daemon started, says: {line}",
            f"unset {variable} and run `sandboxctl restart`",
        )
    return line, f"the config says: {line}", "change that line and restart sandboxd"


def backend_words(name: str) -> str:
    """What makes the daemon use another backend: a variable only where one is set, which counts
    more than the file. Elsewhere it would hold for the daemons of one terminal only."""
    if variable_of("backend") in os.environ:
        return f"set {variable_of('backend')}={name} and restart sandboxd"
    return f'set backend = "{name}" in the config and restart sandboxd'
