"""Landlock rulesets: files, TCP ports, device ioctls and scopes, confined inside the sandbox.

The daemon builds a ruleset here and passes its descriptor to the init, which adds rules for the
mounts that exist only inside (/tmp, /dev, /proc) with the masks of `access`, and applies it.
"""

from sandboxd.linux.landlock.abi import (
    FEATURES,
    NEWEST_KNOWN_ABI,
    Feature,
    kernel_abi,
    layers,
    missing_features,
)
from sandboxd.linux.landlock.access import (
    access_dev,
    access_handled,
    access_read,
    access_write,
    on_file,
)
from sandboxd.linux.landlock.ruleset import Ruleset, RulesetSpec, add_path, build_ruleset

__all__ = [
    "FEATURES", "NEWEST_KNOWN_ABI", "Feature", "Ruleset", "RulesetSpec", "access_dev",
    "access_handled", "access_read", "access_write", "add_path", "build_ruleset", "kernel_abi",
    "layers", "missing_features", "on_file",
]  # fmt: skip
