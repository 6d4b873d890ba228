"""Caches private to a workspace: package managers write there, never to the host's own caches.

A poisoned host cache would run later, outside the sandbox. The folder is made on demand, with a
note beside it that names its workspace; this is the only side effect of planning. The notes are
used to remove caches of workspaces that no longer exist.
"""

from __future__ import annotations

import os
import posixpath
import sys
from contextlib import suppress

import msgspec

from sandboxd.platform.current import files
from sandboxd.policy.environment import Pairs
from sandboxd.policy.mounts import cache_notes
from sandboxd.policy.paths import recording_fs
from sandboxd.policy.plan import Grant, Identity, RunAs

# variable → (folder below the workspace's cache, why)
_FOLDERS: dict[str, tuple[str, str]] = {
    "XDG_CACHE_HOME": ("xdg", "whatever follows the XDG rules: node-gyp, go, torch, cypress …"),
    # Moves config.toml and bin too; `cargo install` in a sandbox must not put programs on PATH,
    # and rustup's toolchains are found through RUSTUP_HOME, which stays.
    "CARGO_HOME": ("cargo", "crates: their build scripts run at the next build"),
    "PIP_CACHE_DIR": ("pip", "wheels"),
    "UV_CACHE_DIR": ("uv", "wheels"),
    # UV_PYTHON_INSTALL_DIR stays: uv finds the Pythons there that are installed at home.
    "UV_TOOL_DIR": ("uv-tools", "environments of programs; uvx writes a lock there, too"),
    "UV_TOOL_BIN_DIR": ("uv-bin", "programs, which must not be put on PATH"),
    "POETRY_CACHE_DIR": ("poetry", "wheels and virtual environments"),
    "PIPENV_CACHE_DIR": ("pipenv", "wheels"),
    "PIPX_HOME": ("pipx", "environments of programs; pipx does not start without its logs there"),
    "PIPX_BIN_DIR": ("pipx/bin", "programs, which must not be put on PATH"),
    "PIPX_MAN_DIR": ("pipx/man", "their manual pages"),
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
# Tools that use ~/Library/Caches on macOS whatever XDG_CACHE_HOME says.
MACOS_FOLDERS: dict[str, tuple[str, str]] = {
    "HOMEBREW_CACHE": ("homebrew", "bottles, which are installed outside later"),
    "CP_HOME_DIR": ("cocoapods", "pods with build scripts"),
    "CYPRESS_CACHE_FOLDER": ("cypress", "a browser, which is executed"),
    "PLAYWRIGHT_BROWSERS_PATH": ("playwright", "browsers, which are executed"),
    "ELECTRON_CACHE": ("electron", "programs"),
    "CLANG_MODULE_CACHE_PATH": ("clang", "compiled modules"),
    "SWIFTPM_CACHE_PATH": ("swiftpm", "packages"),
}
if sys.platform == "darwin":
    _FOLDERS.update(MACOS_FOLDERS)


class Caches(msgspec.Struct, frozen=True):
    grants: tuple[Grant, ...]
    env: Pairs


def for_workspace(
    workspace: str, root: str, run_as: RunAs | None = None, *, make: bool = True
) -> Caches:
    """The workspace's folder below `root` and the variables that lead there.

    Nothing if it cannot be made (a read-only or full disk): the command then runs without caches.
    Without `make` a folder that is missing is left out of the grants.
    """
    folder = posixpath.join(root, cache_notes.cache_name(workspace))
    if not make and not recording_fs.lexists(folder):
        return Caches((), _env(folder))
    try:
        identity = _made(folder, run_as)
    except OSError:
        return Caches((), ())
    with suppress(OSError):
        cache_notes.write_note(root, workspace)
    return Caches((Grant(folder, "write", identity, "cache"),), _env(folder))


def _made(folder: str, run_as: RunAs | None) -> Identity:
    try:
        os.mkdir(files.native(folder), 0o700)
    except FileNotFoundError:
        os.makedirs(files.native(posixpath.dirname(folder)), 0o700, exist_ok=True)
        return _made(folder, run_as)
    except FileExistsError:
        pass
    status = recording_fs.lstat(folder)
    identity = Identity.of(status)
    if not identity.is_dir:
        raise NotADirectoryError(folder)
    if sys.platform == "win32" or run_as is None:
        return identity
    if (status.st_uid, status.st_gid) != (run_as.uid, run_as.gid):
        os.chown(folder, run_as.uid, run_as.gid, follow_symlinks=False)
        # The owner must be able to reach its own folder, but not to list the others.
        above = posixpath.dirname(folder)
        os.chmod(above, recording_fs.stat(above).st_mode & 0o7777 | 0o111)
    return identity


def _env(folder: str) -> Pairs:
    pairs = {n: files.native(posixpath.join(folder, sub)) for n, (sub, _) in _FOLDERS.items()}
    # The cache and the workspace are different mounts: links between them fail with a warning.
    pairs["UV_LINK_MODE"] = "copy"
    # Maven 3.8 and older read MAVEN_OPTS only.
    for name in ("MAVEN_ARGS", "MAVEN_OPTS"):
        pairs[name] = f"-Dmaven.repo.local={files.native(posixpath.join(folder, 'maven'))}"
    return tuple(pairs.items())
