"""The files that a program changes, from its operands and options as its manual has them.

A message such as `tee: p: No such file or directory` does not say whether p was read or written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from posixpath import dirname

import msgspec


class WrittenFile(msgspec.Struct, frozen=True):
    """`in_folder`: it is replaced or removed, so its folder has to be writable."""

    path: str
    in_folder: bool = False


_ALL, _FIRST, _LAST, _AFTER_FIRST = slice(0, None), slice(0, 1), slice(-1, None), slice(1, None)
_OPERANDS: dict[str, slice] = {
    "cp": _LAST, "install": _LAST, "ln": _LAST, "rsync": _LAST, "mv": _ALL, "tee": _ALL,
    "touch": _ALL, "mkdir": _ALL, "truncate": _ALL, "rm": _ALL, "rmdir": _ALL, "unlink": _ALL,
    "shred": _ALL, "chmod": _AFTER_FIRST, "chown": _AFTER_FIRST, "chgrp": _AFTER_FIRST,
    "zip": _FIRST, "strip": _ALL, "patch": _FIRST, "sqlite3": _FIRST,
    "gzip": _ALL, "gunzip": _ALL, "bzip2": _ALL, "xz": _ALL, "unxz": _ALL, "zstd": _ALL,
}  # fmt: skip
_COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "ld", "as", "go", "rustc", "nasm",
              "pandoc", "dot", "mcs", "ghc", "gfortran", "jq", "protoc")  # fmt: skip
_OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_COMPILERS, ("-o", "--output", "--out-dir")),
    "sort": ("-o", "--output"),
    "shuf": ("-o", "--output"),
    "curl": ("-o", "--output"),
    "wget": ("-O", "--output-document", "-P", "--directory-prefix"),
    "javac": ("-d",),
    "javadoc": ("-d",),
    "unzip": ("-d",),
    "openssl": ("-out",),
    "cmake": ("-B",),
}
# Programs that take `-so FILE` for `-s -o FILE`.
_CLUSTERS = frozenset({"sort", "shuf", "curl", "wget"})
_REPLACES = frozenset(
    {"mv", "rm", "rmdir", "unlink", "zip", "strip", "patch", "sqlite3", "gzip", "gunzip", "bzip2",
     "xz", "unxz", "zstd"}
)  # fmt: skip
# They follow no link in the place of what they change.
ENTRY_PROGRAMS = frozenset({"ln", "mv", "rm", "rmdir", "unlink"})
_PACKERS = frozenset({"gzip", "gunzip", "bzip2", "xz", "unxz", "zstd"})
_TO_STDOUT = frozenset({"-c", "--stdout", "--to-stdout", "-l", "--list", "-t", "--test"})
_TAR_WRITES = frozenset("cru")
_TAR_LONG = frozenset({"--create", "--append", "--update", "--concatenate", "--delete"})


def outputs(program: str, words: Sequence[str]) -> tuple[WrittenFile, ...]:
    """What the program changes, when the options in between take no values of their own."""
    return tuple(WrittenFile(path, in_folder) for path, in_folder in _found(program, words) if path)


def _found(program: str, words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    operands = [word for word in words if not word.startswith("-")]
    if program in _OPERANDS and not (program in _PACKERS and _TO_STDOUT & set(words)):
        for path in operands[_OPERANDS[program]]:
            yield path, program in _REPLACES
            if program == "rsync":
                yield dirname(path), False
    for option in _OPTIONS.get(program, ()):
        for path in _values(words, option, cluster=program in _CLUSTERS):
            yield path, False
    if program in {"sed", "perl"} and any(_in_place(program, word) for word in words):
        for path in operands:
            yield path, True
    if program == "git" and operands[:1] == ["push"]:
        for path in operands[1:2]:
            yield path, False
    if program.startswith("python") and tuple(words[:2]) == ("-m", "venv"):
        for path in operands[-1:]:
            yield path, False
    if program == "dd":
        for word in words:
            if word.startswith("of="):
                yield word[3:], False
    if program in {"tar", "bsdtar", "jar"} and _tar_writes(words):
        for path in _archives(words):
            yield path, False
    elif program in {"tar", "bsdtar"}:
        for option in ("-C", "--directory"):
            for path in _values(words, option) if _tar_extracts(words) else ():
                yield path, False


def _values(words: Sequence[str], option: str, *, cluster: bool = False) -> Iterator[str]:
    """Of `-o v`, `-ov`, `--output v` and `--output=v`."""
    for word, following in zip(words, (*words[1:], ""), strict=False):
        joined = cluster and word[:1] == "-" and word[1:2] != "-" and word.endswith(option[1:])
        if word == option or joined:
            yield following
        elif option.startswith("--") and word.startswith(f"{option}="):
            yield word[len(option) + 1 :]
        elif len(option) == 2 and word.startswith(option):
            yield word[2:]


def _in_place(program: str, word: str) -> bool:
    if word.startswith("--"):
        return word.startswith("--in-place")
    switches = word[1:] if word.startswith("-") else ""
    before = switches.partition("i")[0]
    return "i" in switches and set(before) <= set("nErsz" if program == "sed" else "pnlw0ae")


def _tar_letters(words: Sequence[str]) -> str:
    """The letters of its short options; the first word may have no dash."""
    short = [word[1:] for word in words if word.startswith("-") and not word.startswith("--")]
    return "".join([*short, *(word for word in words[:1] if not word.startswith("-"))])


def _tar_writes(words: Sequence[str]) -> bool:
    return bool(_TAR_LONG & set(words)) or bool(_TAR_WRITES & set(_tar_letters(words)))


def _tar_extracts(words: Sequence[str]) -> bool:
    return "x" in _tar_letters(words) or bool({"--extract", "--get"} & set(words))


def _archives(words: Sequence[str]) -> Iterator[str]:
    for word, following in zip(words, (*words[1:], ""), strict=False):
        if word.startswith("--file="):
            yield word[len("--file=") :]
        elif word == "--file" or (word.endswith("f") and not word.startswith("--")):
            yield following
            return
