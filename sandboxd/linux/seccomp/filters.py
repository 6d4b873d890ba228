"""Compiled seccomp programs as sealed memfds, one for each spec, for the life of the daemon."""

from __future__ import annotations

from functools import lru_cache

from sandboxd.linux.init_client.binary import seal
from sandboxd.linux.seccomp import FilterSpec, compile_filter


@lru_cache(maxsize=64)
def filter_descriptor(spec: FilterSpec) -> int | None:
    """The descriptor to hand to the init; None when nothing is to be loaded."""
    program = compile_filter(spec)
    return None if program is None else seal(program, "seccomp-filter")
