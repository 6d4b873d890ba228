"""Build hook of `sandboxd-client`: sandboxd_proto lies beside this folder; in an sdist in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def proto() -> Path:
    inside = HERE / "sandboxd_proto"
    return inside if inside.exists() else HERE.parent / "proto" / "sandboxd_proto"


def version() -> str:
    """The one that is written down, for the daemon too."""
    text = (proto() / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError("proto/sandboxd_proto/__init__.py has no __version__")
    return found[1]


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # only the version is asked for
    pass
else:

    class ProtoHook(BuildHookInterface):  # type: ignore[type-arg,misc]
        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if self.target_name == "wheel" and version == "editable":
                return
            build_data["force_include"][str(proto())] = "sandboxd_proto"
