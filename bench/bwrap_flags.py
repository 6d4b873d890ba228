"""The flags that the daemon gives to bwrap, made usable without the daemon.

`manifest/check` shows the command line. Descriptors in it exist only in the daemon, so a bind by
descriptor becomes a bind by name, and data from a descriptor an empty file: the same mounts.
"""

from __future__ import annotations

from collections.abc import Sequence

# How many words follow each flag that refers to a descriptor, and what stands for it here.
_BY_NAME = {"--bind-fd": "--bind", "--ro-bind-fd": "--ro-bind"}
_DATA = {"--file", "--bind-data", "--ro-bind-data"}
_DESCRIPTOR_ONLY = {
    "--args", "--info-fd", "--json-status-fd", "--sync-fd", "--block-fd", "--userns-block-fd",
    "--seccomp", "--add-seccomp-fd", "--userns", "--userns2", "--pidns", "--lock-file",
}  # fmt: skip


def without_descriptors(command_line: Sequence[str]) -> list[str]:
    """The flags between `bwrap` and the program, with nothing that needs the daemon."""
    words = list(command_line[1:])
    flags: list[str] = []
    while words and words[0] != "--" and words[0].startswith("--"):
        flag = words.pop(0)
        if flag in _DESCRIPTOR_ONLY:
            words.pop(0)
        elif flag in _BY_NAME:
            words.pop(0)
            target = words.pop(0)
            flags += [_BY_NAME[flag], target, target]
        elif flag in _DATA:
            words.pop(0)
            flags += ["--ro-bind", "/dev/null", words.pop(0)]
        else:
            flags.append(flag)
            while words and not words[0].startswith("--"):
                flags.append(words.pop(0))
    return flags
