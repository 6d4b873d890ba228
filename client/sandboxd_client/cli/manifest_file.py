"""`--manifest FILE`: its [sandbox] table, with its paths meant from the file's own folder."""

from __future__ import annotations

import os
from typing import Any

from sandboxd_client.cli.place import resolve
from sandboxd_proto.errors import ManifestInvalid
from sandboxd_proto.manifest import manifest_from_toml, manifest_to_dict


def read_manifest(name: str) -> dict[str, Any]:
    path = resolve(name)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestInvalid(f"the manifest {name} cannot be read: {error}") from None
    try:
        manifest = manifest_to_dict(manifest_from_toml(text))
    except ManifestInvalid as error:
        raise ManifestInvalid(
            f"{name}: {error.message}", field=error.field, remedy=error.remedy
        ) from None
    for field in ("fs_read_allow", "fs_write_allow", "fs_deny"):
        if field in manifest:
            manifest[field] = [resolve(item, os.path.dirname(path)) for item in manifest[field]]
    return manifest
