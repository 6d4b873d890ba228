"""Seccomp programs: which system calls a sandboxed command may make.

The policy is data with reasons (`baseline`, `strict`, `gates`, `sockets`, `set_id_files`,
`namespaceless`); `compiler` collects the rules of a spec, and `assembler` writes the BPF program
that the init loads last, just before it execs.
"""

from sandboxd.linux.seccomp.compiler import compile_filter
from sandboxd.linux.seccomp.spec import FilterSpec, Level

__all__ = ["FilterSpec", "Level", "compile_filter"]
