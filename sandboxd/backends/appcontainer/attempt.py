"""The probe's attempt: a granted file must be read, and one that is not granted must not be."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

import anyio

from sandboxd.backends.interface import Available, Probe, Unavailable
from sandboxd.platform.windows.paths import internal
from sandboxd.policy.plan import Grant, Identity, Limits, NetworkRule, SandboxSpec
from sandboxd.types import Command, Stdio
from sandboxd.windows import ends
from sandboxd_proto.errors import SandboxdError

if TYPE_CHECKING:
    from sandboxd.backends.appcontainer.backend import AppContainer

assert sys.platform == "win32"

_WORD = "granted"
_LIMIT_S = 20.0
LAYERS = ("AppContainer", "job object", "not verified on a real Windows")
_REMEDY = "`sandboxctl doctor` says what an administrator has to prepare"


async def attempt(backend: AppContainer) -> Probe:
    folder = tempfile.mkdtemp(prefix="sandboxd-probe-")
    try:
        shown = _file(os.path.join(folder, "granted"))
        hidden = _file(os.path.join(folder, "other"))
        status = os.lstat(shown)
        grant = Grant(internal(shown), "read", Identity.of(status))
        spec = SandboxSpec(base="minimal", network=NetworkRule("deny"), grants=(grant,))
        async with backend.open(spec) as sandbox:
            found = await _findstr(sandbox, shown)
            other = await _findstr(sandbox, hidden)
    except SandboxdError as error:
        return Unavailable(error.message, error.remedy or _REMEDY)
    except OSError as error:
        return Unavailable(f"the probe failed: {error}", _REMEDY)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found != 0:
        return Unavailable(f"a granted file could not be read (code {found})", _REMEDY)
    if other == 0:
        return Unavailable("a file that was not granted could be read", _REMEDY)
    return Available(LAYERS)


def _file(path: str) -> str:
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{_WORD}\n")
    return path


async def _findstr(sandbox: object, path: str) -> int | None:
    from sandboxd.backends.appcontainer.sandbox import AppContainerSandbox

    assert isinstance(sandbox, AppContainerSandbox)
    root = os.environ.get("SYSTEMROOT", "C:\\Windows")
    program = os.path.join(root, "System32", "findstr.exe")
    command = Command(
        argv=(program, _WORD, path), env=(), cwd=internal(root), limits=Limits(),
        syscall_policy="inherit",
    )  # fmt: skip
    inward, outward = ends.input_pipe(), ends.output_pipe()
    try:
        process = await sandbox.spawn(command, Stdio(inward[1], outward[1], outward[1]))
        try:
            with anyio.move_on_after(_LIMIT_S):
                return (await process.wait()).exit_code
            return None
        finally:
            process.close()
    finally:
        for handle in (*inward, *outward):
            ends.close(handle)
