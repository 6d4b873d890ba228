"""The rule for running without a sandbox: it takes two keys, and both are the daemon's own.

No request can set one. Outside the package `unsandboxed`, because `select`, `admission` and
`status` apply the rule without importing a backend.
"""

from __future__ import annotations

from sandboxd.config.config import Config
from sandboxd_proto.errors import SandboxUnavailable

HOW_TO_SET = (
    'put backend = "none" and allow_no_sandbox = true into the daemon\'s config, and restart it, '
    "to accept NO isolation"
)


def both_keys(config: Config) -> bool:
    return config.backend == "none" and config.allow_no_sandbox


def second_key_missing(config: Config) -> bool:
    return config.backend == "none" and not config.allow_no_sandbox


def keys_missing_error(config: Config) -> SandboxUnavailable:
    missing = "the second" if second_key_missing(config) else "the first"
    return SandboxUnavailable(
        f"running without a sandbox needs both keys, and {missing} is not set",
        remedy="leave out the backend none and the preset danger-full-access: the command then "
        f"runs in a sandbox. Otherwise {HOW_TO_SET}",
    )
