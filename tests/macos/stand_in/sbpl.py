"""A sandbox profile evaluated by TinyScheme, the interpreter that sandbox-exec is made from.

Every operation, filter and constant that a profile may use is defined first, so that a misspelt
one is an unbound variable, as it is on macOS. The result is what the profile says after evaluation:
parameters are values then. Needs nothing of this project: the stand-in imports it alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping

OPERATIONS = (
    "default", "file*", "file-chroot", "file-clone", "file-ioctl", "file-issue-extension",
    "file-link", "file-map-executable", "file-mknod", "file-mount", "file-read*",
    "file-read-data", "file-read-metadata", "file-read-xattr", "file-revoke", "file-search",
    "file-test-existence", "file-unmount", "file-write*", "file-write-acl",
    "file-write-create", "file-write-data", "file-write-flags", "file-write-mode",
    "file-write-owner", "file-write-setugid", "file-write-times", "file-write-unlink",
    "file-write-xattr", "iokit*", "iokit-open", "iokit-get-properties",
    "iokit-set-properties", "ipc*", "ipc-posix*", "ipc-posix-sem", "ipc-posix-shm*",
    "ipc-posix-shm-read*", "ipc-posix-shm-read-data", "ipc-posix-shm-read-metadata",
    "ipc-posix-shm-write*", "ipc-posix-shm-write-create", "ipc-posix-shm-write-data",
    "ipc-posix-shm-write-unlink", "ipc-sysv*", "lsopen", "mach*", "mach-bootstrap",
    "mach-lookup", "mach-register", "mach-priv-host-port", "mach-priv-task-port",
    "mach-task-name", "network*", "network-bind", "network-inbound", "network-outbound",
    "nvram*", "process*", "process-exec", "process-exec*", "process-fork", "process-info*",
    "process-info-listpids", "process-info-pidinfo", "pseudo-tty", "signal", "sysctl*",
    "sysctl-read", "sysctl-write", "system*", "system-socket", "system-fsctl",
    "system-info", "user-preference*",
)  # fmt: skip
FILTERS = (
    "literal", "subpath", "regex", "prefix", "path-ancestors", "target", "sysctl-name",
    "sysctl-name-prefix", "global-name", "global-name-prefix", "local-name", "extension",
    "vnode-type", "iokit-registry-entry-class", "ipc-posix-name", "ipc-posix-name-regex",
    "local", "remote", "socket-domain", "socket-protocol", "require-all", "require-any",
    "require-not", "with",
)  # fmt: skip
CONSTANTS = (
    "self", "same-sandbox", "others", "children", "message", "no-log", "report",
    "DIRECTORY", "REGULAR-FILE", "SYMLINK", "SOCKET", "AF_SYSTEM", "AF_UNIX", "AF_INET",
    "AF_INET6", "ip", "tcp", "udp", "unix-socket",
)  # fmt: skip
_DONE = "evaluated to the end"


class ProfileError(Exception):
    """The profile does not evaluate."""


def evaluate(text: str, parameters: Mapping[str, str]) -> list[str]:
    """Each rule as TinyScheme writes it, in order. ProfileError says what is wrong."""
    program = "\n".join([*_prelude(parameters), _without_raw_strings(text), f'(display "{_DONE}")'])
    with tempfile.NamedTemporaryFile("w", suffix=".scm", delete=False) as file:
        file.write(program + "\n")
    try:
        done = subprocess.run(
            ["tinyscheme", file.name], capture_output=True, text=True, timeout=20, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    finally:
        os.unlink(file.name)
    lines = done.stdout.splitlines()
    if not lines or lines[-1] != _DONE:
        said = [line for line in lines if "Error" in line or "error" in line]
        raise ProfileError("; ".join(said)[:400] or "it does not evaluate to its end")
    rules = [line for line in lines if line.startswith(("(allow ", "(deny "))]
    if not any(line.startswith("(deny default") for line in rules):
        raise ProfileError("it does not deny by default")
    return rules


def _prelude(parameters: Mapping[str, str]) -> list[str]:
    # By symbol: TinyScheme 1.42 compares two equal strings with an error.
    pairs = " ".join(
        f"(cons (string->symbol {quoted(k)}) {quoted(v)})" for k, v in parameters.items()
    )
    return [
        f"(define *parameters* (list {pairs}))",
        "(define (param key) (cdr (assq (string->symbol key) *parameters*)))",
        '(define (version n) (if (not (= n 1)) (error "unknown version")))',
        *(f"(define {name} '{name})" for name in (*OPERATIONS, *CONSTANTS)),
        *(f"(define ({name} . rest) (cons '{name} rest))" for name in FILTERS),
        "(define (say action rest) (write (cons action rest)) (newline))",
        "(define (allow . rest) (say 'allow rest))",
        "(define (deny . rest) (say 'deny rest))",
    ]


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _without_raw_strings(text: str) -> str:
    """Apple's #"…" holds a regular expression as it is; TinyScheme has only "…"."""
    return re.sub(r'#"([^"]*)"', lambda found: quoted(found.group(1)), text)
