"""Limits and timeouts of a manifest, checked and filled in."""

from __future__ import annotations

import math

from sandboxd.config.config import LEAST_BYTES
from sandboxd.policy.plan import SHM_BYTES, TMP_BYTES, Limits
from sandboxd_proto.amounts import shown_bytes
from sandboxd_proto.errors import ManifestInvalid
from sandboxd_proto.manifest import Duration, Manifest

_MAX_SECONDS = 10.0 * 365 * 86400
_MAX_BYTES = 2**62
# Builds of large projects stay below this; a fork bomb is stopped before the machine suffers.
DEFAULT_PROCESSES = 4096
_MAX_PROCESSES = 2**22  # the kernel's own limit on pids


def limits(manifest: Manifest, default_processes: int | None = None) -> Limits:
    return Limits(
        memory_bytes=_positive(manifest.max_memory_bytes, "max_memory_bytes"),
        cpu_s=_seconds(manifest.max_cpu_secs, "max_cpu_secs"),
        processes=_positive(manifest.max_processes, "max_processes", _MAX_PROCESSES),
        default_processes=default_processes,
        file_bytes=_positive(manifest.max_file_bytes, "max_file_bytes"),
        output_bytes=_positive(manifest.max_output_bytes, "max_output_bytes"),
        cpus=_seconds(manifest.max_cpus, "max_cpus"),
    )


def private_bytes(manifest: Manifest) -> tuple[int, int]:
    """Sizes of /tmp and of /dev/shm."""
    tmp = _positive(manifest.tmp_bytes, "tmp_bytes")
    shm = _positive(manifest.shm_bytes, "shm_bytes")
    return tmp or TMP_BYTES, shm or SHM_BYTES


def of_container(asked: Limits) -> Limits:
    """Those that a container is made with: equal ones share a pool."""
    return Limits(memory_bytes=asked.memory_bytes, processes=asked.process_bound, cpus=asked.cpus)


def timeout(manifest: Manifest, default_s: float, longest_s: float | None) -> float | None:
    """Seconds, or None for "none". `longest_s`: of the ceiling."""
    given = manifest.timeout
    if given is None:
        return default_s
    if given == "none":
        return None
    if given == "longest":
        return longest_s
    if isinstance(given, Duration):
        if not 0 <= given.secs <= _MAX_SECONDS or not 0 <= given.nanos < 1_000_000_000:
            raise _not_positive("timeout", f"{given.secs} s {given.nanos} ns")
        return _seconds(given.secs + given.nanos / 1e9, "timeout")
    assert not isinstance(given, str)
    return _seconds(float(given), "timeout")


def _seconds(value: float | None, field: str) -> float | None:
    if value is not None and not (math.isfinite(value) and 0 < value <= _MAX_SECONDS):
        raise _not_positive(field, value, _MAX_SECONDS)
    return value


def _positive(value: int | None, field: str, most: int = _MAX_BYTES) -> int | None:
    if value is not None and not 0 < value <= most:
        raise _not_positive(field, value, most)
    least = LEAST_BYTES.get(field, 0)
    if value is not None and value < least:
        raise ManifestInvalid(
            f"{field} is {value} bytes, too little for any program",
            field=field,
            remedy=f"give {shown_bytes(least)} ({least}) or more, or leave it out",
        )
    return value


def _not_positive(field: str, value: object, most: float = _MAX_SECONDS) -> ManifestInvalid:
    hint = f"give a positive number, or leave {field} out"
    if field == "timeout":
        hint = 'give seconds, a time like "5m", or "none" for no timeout'
    return ManifestInvalid(
        f"{field} must be greater than zero and at most {most:.0f}, and not {str(value)[:40]}",
        field=field,
        remedy=hint,
    )
