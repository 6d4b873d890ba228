"""The wording that programs report a refusal in, as data: one `Sign` for each reason.

A sign is only a reason to look at a line. Whether the line means a denial is decided by the plan.
Phrases are compared without case (Go prints strerror in lower case); codes exactly and as whole
words: "ENOTFOUND" without case is a part of ModuleNotFoundError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from sandboxd.denials.text.foreign import DARWIN, WINDOWS


class Sign(msgspec.Struct, frozen=True):
    """`libc`: msgids of the C library, whose translations count as this sign too."""

    name: str
    libc: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()


# What the kernel answers for files.
FILE_SIGNS = (
    Sign("EROFS", ("Read-only file system",), codes=("EROFS",)),
    Sign(
        "EACCES",
        ("Permission denied",),
        ("AccessDeniedException",),  # java.nio
        ("EACCES",),
    ),
    Sign("EXDEV", ("Invalid cross-device link",), ("cross-device link",), ("EXDEV",)),
    Sign("EBUSY", ("Device or resource busy",), codes=("EBUSY",)),
    Sign(
        "ENOENT",
        ("No such file or directory",),
        (
            "Directory nonexistent",  # dash, redirecting
            "Cannot find module",  # node
            "Cannot find package",
            "can't open file",  # python script.py
            "NoSuchFileException",  # java.nio
            "NoSuchFile",
            "no such file",
            "does not exist",
            "does not appear to be a git repository",
            "cannot find the path",
            "cannot be found",
            "non-existing path",  # pip, of find-links
            "could not be found",
            ": not found",  # dash, running a program
        ),
        ("ENOENT",),
    ),
    # No errno was printed: the plan has to explain both path and direction.
    Sign(
        "unwritable",
        phrases=(
            "not writable", "isn't writable", "readonly database", "is read-only",
            "no write access", "cannot write", "can't write", "could not write",
            "failed to write", "unable to write", "not written due to", "cannot create",
            "can't create", "could not create", "couldn't create", "failed to create",
            "unable to create", "not permitted to write",
            "failure writing", "failed writing", "error writing",
            "/CMakeFiles/pkgRedirects",  # cmake; the line above says that it could not make it
        ),
    ),
    Sign(
        "unopened",
        phrases=(
            "unable to open", "cannot open", "can't open", "could not open", "couldn't open",
            "failed to open", "error opening", "cannot access", "cannot connect to the docker",
            "failed to load", "unable to access", "could not read", "cannot read",
        ),
    ),
    Sign("EPERM", ("Operation not permitted",), codes=("EPERM",)),
    Sign("ENOSPC", ("No space left on device",), codes=("ENOSPC",)),
)  # fmt: skip

NETWORK_SIGNS = (
    Sign(
        "lookup",
        (
            "Temporary failure in name resolution", "Name or service not known",
            "No address associated with hostname", "Non-recoverable failure in name resolution",
            "Name resolution failed", "Host name lookup failure", "Unknown host",
        ),
        (
            "could not resolve", "couldn't resolve", "unable to resolve", "cannot resolve",
            "failed to resolve", "temporary failure resolving", "failed to lookup address",
            "name resolution", "nodename nor servname", "UnknownHostException", "host not found",
            "bad address '", "bad hostname", "getaddrinfo E", "getaddrinfo:", "getaddrinfo failed",
            "no such host", "dial tcp: lookup", "resolve host",
            "name does not resolve", "unresolved address", "unresolvedaddress",
        ),
        ("EAI_AGAIN", "EAI_NONAME", "EAI_FAIL", "EAI_NODATA", "ENOTFOUND", "ERR_NAME_NOT_RESOLVED"),
    ),
    Sign(
        "unreachable",
        (
            "Network is unreachable", "No route to host", "Network is down",
            "Cannot assign requested address",
        ),
        ("network unreachable", "check your internet connection", "ERR_INTERNET_DISCONNECTED"),
        ("ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", "EADDRNOTAVAIL"),
    ),
    Sign(
        "unconnected",
        ("Connection refused",),
        (
            "failed to connect", "couldn't connect", "could not connect", "unable to connect",
            "cannot connect", "can't connect", "cannot initiate the connection",
            "failed to establish a new connection", "connection failed", "connection attempt",
        ),
        ("ECONNREFUSED", "ERR_CONNECTION_REFUSED"),
    ),
)  # fmt: skip

PROCESS_SIGNS = (
    Sign("ESRCH", ("No such process",), ("process not found", "does not exist: pid"), ("ESRCH",)),
    Sign(
        "no_new_privs",
        phrases=(
            '"no new privileges" flag is set', "effective uid is not 0",
            "must be setuid root", "must be owned by uid 0 and have the setuid bit set",
        ),
    ),
    Sign(
        "missing_command",
        phrases=("command not found", "unknown command:", "executable file not found"),
    ),
    Sign("unsigned", phrases=("failed to sign the data", "gpg: signing failed")),  # git, gpg
    Sign("LeakSanitizer", phrases=("LeakSanitizer has encountered a fatal error",)),
    Sign("SIGSYS", ("Bad system call",), codes=("SIGSYS",)),
)  # fmt: skip

# Counted only when that limit was set, and mostly only when the command failed.
LIMIT_SIGNS = (
    Sign(
        "memory",
        ("Cannot allocate memory",),
        (
            "out of memory", "MemoryError", "bad_alloc", "OutOfMemory", "memory exhausted",
            "insufficient memory", "could not reserve enough space", "failed to reserve",
            "cannot allocate", "could not allocate", "failed to allocate", "unable to allocate",
            "memory allocation of", "allocation failed", "process oom", "NoMemoryError",
            "failed to map segment", "not enough memory", "heap exhausted",
            "(errno=12)",  # Java, on stderr; the rest of its words are on stdout
        ),
        ("ENOMEM",),
    ),
    Sign(
        "processes",
        ("Resource temporarily unavailable",),
        (
            "cannot fork", "can't fork", "can't start new thread", "unable to create native thread",
            "unable to create new native thread", "pthread_create", "failed to spawn thread",
            "newosproc", "can't create thread", "fork failed", "uv_thread_create",
            "failed to create new OS thread", "failed to start thread",
        ),
        ("EAGAIN",),
    ),
    Sign("cpu", ("CPU time limit exceeded", "Cputime limit exceeded"), codes=("SIGXCPU",)),
    Sign("file_size", ("File size limit exceeded", "File too large"), codes=("EFBIG", "SIGXFSZ")),
)  # fmt: skip

COMMON: tuple[Sign, ...] = (*FILE_SIGNS, *NETWORK_SIGNS, *PROCESS_SIGNS, *LIMIT_SIGNS)

_FOREIGN: Mapping[str, Mapping[str, tuple[str, ...]]] = {"darwin": DARWIN, "win32": WINDOWS}


def signs_for(platform: str, translated: Mapping[str, Iterable[str]] | None = None) -> list[Sign]:
    """The signs of a platform, widened by translations of the C library's own messages."""
    foreign = _FOREIGN.get(platform, {})
    words = translated or {}
    signs: list[Sign] = []
    for sign in COMMON:
        more = [text for msgid in sign.libc for text in words.get(msgid, ())]
        phrases = (*sign.libc, *sign.phrases, *foreign.get(sign.name, ()), *more)
        signs.append(Sign(sign.name, (), tuple(dict.fromkeys(phrases)), sign.codes))
    return signs


class PhraseMatch(msgspec.Struct, frozen=True):
    name: str
    start: int
    end: int


class SignFinder:
    """Finds every sign in one line. Plain searches: a pattern of all phrases is 20 times slower."""

    def __init__(self, signs: Iterable[Sign]) -> None:
        # Longest first: "no such file" must not cut "no such file or directory" short.
        self._signs = [(sign.name, _by_length(sign.phrases), sign.codes) for sign in signs]

    def find(self, line: str) -> list[PhraseMatch]:
        low = line.lower()
        if len(low) != len(line):
            low = line  # a letter that grows in lower case would shift every position
        found = []
        for name, phrases, codes in self._signs:
            match = _phrase(name, phrases, low) or _code(name, codes, line)
            if match is not None:
                found.append(match)
        return found


def _by_length(phrases: tuple[str, ...]) -> list[str]:
    return sorted({phrase.lower() for phrase in phrases}, key=len, reverse=True)


def _phrase(name: str, phrases: list[str], low: str) -> PhraseMatch | None:
    for phrase in phrases:
        if phrase in low:
            start = low.index(phrase)
            return PhraseMatch(name, start, start + len(phrase))
    return None


def _code(name: str, codes: tuple[str, ...], line: str) -> PhraseMatch | None:
    for code in codes:
        if code in line:
            hit = re.search(rf"(?<!\w){code}(?!\w)", line)
            if hit is not None:
                return PhraseMatch(name, hit.start(), hit.end())
    return None
