"""Whether bubblewrap works here: bwrap is found, and a sandbox that needs nothing comes up."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from sandboxd.backends.bubblewrap import diagnosis
from sandboxd.backends.bubblewrap.binary import Bwrap, Hung, find, known
from sandboxd.backends.bubblewrap.breaker import Breaker
from sandboxd.backends.interface import Available, Probe, Unavailable
from sandboxd.backends.linux_context import root_warnings
from sandboxd.linux.landlock import kernel_abi
from sandboxd.linux.landlock import layers as landlock_layers
from sandboxd.linux.landlock import missing_features as landlock_missing
from sandboxd.policy.plan import NetworkRule, SandboxSpec
from sandboxd.resource_errors import process_limit_error
from sandboxd.types import Sandbox
from sandboxd_proto.errors import Busy, SandboxUnavailable

TRIVIAL = SandboxSpec(base="minimal", network=NetworkRule("deny"))


async def probe(trivial: AbstractAsyncContextManager[Sandbox], limits_layer: str) -> Probe:
    """The init's "ready" is the probe: every sandbox that comes up has proved itself."""
    try:
        async with trivial:
            program = known()
            layers = _layers(program) if program is not None else ()
            return Available((*layers, limits_layer), _warnings())
    except (SandboxUnavailable, Busy) as error:
        return Unavailable(error.message, error.remedy or "")


async def find_program(breaker: Breaker) -> Bwrap:
    """The bwrap of this machine; SandboxUnavailable if there is none or it hangs."""
    try:
        program = await find()
    except Hung as hung:
        breaker.hung("bwrap hung")
        raise SandboxUnavailable(f"bwrap hangs: {hung}", remedy=diagnosis.HANGS) from None
    except BlockingIOError:
        raise process_limit_error("bwrap could not be started") from None
    if program is None:
        missing = diagnosis.NOT_INSTALLED
        raise SandboxUnavailable(missing.reason, remedy=missing.remedy)
    return program


def _layers(program: Bwrap) -> tuple[str, ...]:
    abi = kernel_abi()
    namespaces = f"namespaces and mounts by bubblewrap {program.version}"
    confined = [layer for layer in landlock_layers(abi) if not layer.startswith("TCP")]
    landlock = (f"Landlock ABI {abi}: {', '.join(confined)}",) if abi else ()
    return (namespaces, *landlock, "seccomp filters")


def _warnings() -> tuple[str, ...]:
    return (*landlock_missing(kernel_abi()), *root_warnings())
