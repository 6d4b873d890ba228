"""Caches private to a workspace: package managers write there, never to the host's own caches.

A poisoned host cache would run later, outside the sandbox. The folder is made on demand: the one
side effect of planning.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass

from sandboxd.policy import hostfs
from sandboxd.policy.environment import Pairs
from sandboxd.policy.plan import Grant, Identity, RunAs

# variable → (folder below the workspace's cache, why)
_FOLDERS: dict[str, tuple[str, str]] = {
    "XDG_CACHE_HOME": ("xdg", "whatever follows the XDG rules: node-gyp, go, torch, cypress …"),
    # Moves config.toml and bin too; `cargo install` in a sandbox must not put programs on PATH,
    # and rustup's toolchains are found through RUSTUP_HOME, which stays.
    "CARGO_HOME": ("cargo", "crates: their build scripts run at the next build"),
    "PIP_CACHE_DIR": ("pip", "wheels"),
    "UV_CACHE_DIR": ("uv", "wheels"),
    "POETRY_CACHE_DIR": ("poetry", "wheels and virtual environments"),
    "PIPENV_CACHE_DIR": ("pipenv", "wheels"),
    "PRE_COMMIT_HOME": ("pre-commit", "hook environments, which run at commits"),
    "npm_config_cache": ("npm", "packages: their install scripts run; its logs go there too"),
    "YARN_CACHE_FOLDER": ("yarn", "packages"),
    "YARN_GLOBAL_FOLDER": ("yarn-global", "Yarn 2 and later keep mirrors there"),
    "PNPM_HOME": ("pnpm", "the package store is below it"),
    "COREPACK_HOME": ("corepack", "package managers themselves"),
    "BUN_INSTALL_CACHE_DIR": ("bun", "packages"),
    "DENO_DIR": ("deno", "modules"),
    # GOPATH as well: the checksum database's cache is in GOPATH/pkg/sumdb.
    "GOPATH": ("go", "modules and programs"),
    "GOMODCACHE": ("go/pkg/mod", "modules"),
    "GOCACHE": ("go-build", "compiled packages"),
    "GRADLE_USER_HOME": ("gradle", "dependencies, wrappers and init scripts"),
    "NUGET_PACKAGES": ("nuget", "packages with build targets"),
    "DOTNET_CLI_HOME": ("dotnet", "first-run state that dotnet insists on"),
    "COMPOSER_CACHE_DIR": ("composer", "packages"),
    "BUNDLE_USER_CACHE": ("bundle", "gems"),
    "GEM_SPEC_CACHE": ("gem-specs", "gem indexes"),
    "CCACHE_DIR": ("ccache", "object files"),
    "SCCACHE_DIR": ("sccache", "object files"),
    "ZIG_GLOBAL_CACHE_DIR": ("zig", "packages and object files"),
}


@dataclass(frozen=True, slots=True)
class Caches:
    grants: tuple[Grant, ...]
    env: Pairs


def for_workspace(workspace: str, root: str, run_as: RunAs | None = None) -> Caches:
    """The workspace's folder below `root` and the variables that lead there.

    Nothing if it cannot be made (a read-only or full disk): the command then runs without caches.
    """
    folder = os.path.join(root, _key(workspace))
    try:
        identity = _made(folder, run_as)
    except OSError:
        return Caches((), ())
    return Caches((Grant(folder, "write", identity, "cache"),), _env(folder))


def _key(workspace: str) -> str:
    """The folder's name: readable, and no two workspaces share one."""
    data = os.fsencode(workspace)
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in os.path.basename(workspace))
    return f"{name[:32]}-{hashlib.sha256(data).hexdigest()[:16]}"


def _made(folder: str, run_as: RunAs | None) -> Identity:
    try:
        os.mkdir(folder, 0o700)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(folder), 0o700, exist_ok=True)
        return _made(folder, run_as)
    except FileExistsError:
        pass
    status = hostfs.lstat(folder)
    identity = Identity.of(status)
    if not identity.is_dir:
        raise NotADirectoryError(folder)
    if sys.platform == "win32" or run_as is None:
        return identity
    if (status.st_uid, status.st_gid) != (run_as.uid, run_as.gid):
        os.chown(folder, run_as.uid, run_as.gid, follow_symlinks=False)
        # The owner must get through to its own folder; names of others stay unlisted.
        above = os.path.dirname(folder)
        os.chmod(above, hostfs.stat(above).st_mode & 0o7777 | 0o111)
    return identity


def _env(folder: str) -> Pairs:
    pairs = {name: os.path.join(folder, sub) for name, (sub, _) in _FOLDERS.items()}
    # The cache and the workspace are different mounts: links between them fail with a warning.
    pairs["UV_LINK_MODE"] = "copy"
    pairs["MAVEN_ARGS"] = f"-Dmaven.repo.local={os.path.join(folder, 'maven')}"
    return tuple(pairs.items())
