"""`--manifest FILE`: its [sandbox] table, with its paths meant from the file's own folder.

A [run] table may say which preset, for which workspace, the manifest is put on top of.
"""

from __future__ import annotations

import os
import tomllib
from typing import Any

from sandboxd_client.cli.parse import UsageError
from sandboxd_client.cli.workspace import resolve
from sandboxd_proto.errors import ManifestInvalid
from sandboxd_proto.manifest import manifest_from_toml, manifest_to_dict


def read_manifest(name: str) -> dict[str, Any]:
    path, text = resolve(name), _text(name)
    try:
        manifest = manifest_to_dict(manifest_from_toml(text))
    except ManifestInvalid as error:
        raise ManifestInvalid(f"{name}: {error.message}", remedy=error.remedy) from None
    for field in ("fs_read_allow", "fs_write_allow", "fs_deny"):
        if field in manifest:
            manifest[field] = [resolve(item, os.path.dirname(path)) for item in manifest[field]]
    return manifest


def read_run(name: str) -> dict[str, str]:
    """`preset` and `workspace` of the [run] table, as far as they are there."""
    table: Any = tomllib.loads(_text(name)).get("run", {})
    known = isinstance(table, dict) and all(
        key in ("preset", "workspace") and isinstance(value, str) for key, value in table.items()
    )
    if not known:
        raise ManifestInvalid(
            f"{name}: the [run] table is not valid", field="run",
            remedy="it may have a preset and a workspace, each a string",
        )  # fmt: skip
    found: dict[str, str] = dict(table)
    if "workspace" in found:
        found["workspace"] = resolve(found["workspace"], os.path.dirname(resolve(name)))
    return found


def _text(name: str) -> str:
    try:
        with open(resolve(name), encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        reason = error.strerror
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    raise UsageError(f"--manifest {name} cannot be read: {reason}", "name a TOML file")
