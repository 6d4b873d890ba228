"""Toolchains in the home folder that the caller's PATH leads to, bound read-only."""

from __future__ import annotations

import os

from sandboxd.policy.environment import Pairs
from sandboxd.policy.plan import Grant, Identity

# folder below home on PATH → the folders that the programs there need
ROOTS: dict[str, tuple[str, ...]] = {
    ".pyenv": (".pyenv",),
    ".nvm": (".nvm",),
    ".volta": (".volta",),
    ".asdf": (".asdf",),
    ".sdkman": (".sdkman",),
    ".bun": (".bun",),
    ".deno": (".deno",),
    ".cargo/bin": (".cargo/bin", ".rustup"),  # rustup's proxies in bin run what lies in .rustup
    ".local/bin": (".local/bin", ".local/share/uv", ".local/pipx"),
    "go/bin": ("go/bin",),
    ".local/share/mise": (".local/share/mise",),
}


def grants(env: Pairs, home: str) -> list[Grant]:
    search = dict(env).get("PATH", "").split(":")
    roots: set[str] = set()
    for entry in search:
        for lead, needed in ROOTS.items():
            start = os.path.join(home, lead)
            if entry == start or entry.startswith(start + "/"):
                roots.update(os.path.join(home, path) for path in needed)
    return [grant for root in sorted(roots) for grant in _grant(root)]


def _grant(root: str) -> list[Grant]:
    try:
        real = os.path.realpath(root, strict=True)
        return [Grant(real, "read", Identity.of(os.lstat(real)), "toolchain")]
    except OSError:
        return []
