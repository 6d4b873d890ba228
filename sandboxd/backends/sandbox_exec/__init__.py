"""The sandbox-exec backend for macOS. Not verified on a real macOS yet."""

from sandboxd.backends.interface import BackendContext
from sandboxd.backends.sandbox_exec.backend import SandboxExec

__all__ = ["SandboxExec", "make"]


def make(context: BackendContext) -> SandboxExec:
    assert context.macos is not None, "made for macOS only"
    return SandboxExec(context.macos)
