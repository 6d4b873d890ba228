"""The rules of every profile that do not depend on a plan, each group with its reason. Data only.

Filters are SBPL text written here; nothing of a request ever becomes part of it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sandboxd.policy.data import system_dirs_macos as macos

Action = Literal["allow", "deny"]


class Rule(msgspec.Struct, frozen=True):
    """`filters` empty: the rule holds for every target of its operations."""

    operations: tuple[str, ...]
    filters: tuple[str, ...]
    why: str
    action: Action = "allow"


def _each(name: str, values: str) -> tuple[str, ...]:
    return tuple(f'({name} "{value}")' for value in values.split())


# The seeds allow all of "kern.": kern.procargs2 shows the arguments of every process of the user,
# and kern.proc.all lists them. So "kern." is a list of names, and only "hw." is a prefix.
_KERN = """
    kern.argmax kern.bootargs kern.clockrate kern.grade_cputype kern.hostname kern.hv_vmm_present
    kern.iossupportversion kern.maxfiles kern.maxfilesperproc kern.maxproc kern.maxprocperuid
    kern.ngroups kern.osproductversion kern.osproductversioncompat kern.osrelease kern.osrevision
    kern.ostype kern.osvariant_status kern.osversion kern.posix1version kern.saved_ids
    kern.secure_kernel kern.sysv.semmns kern.tcsm_available kern.tcsm_enable kern.usrstack
    kern.usrstack64 kern.version kern.willshutdown
"""
_SYSCTL = """
    machdep.ptrauth_enabled security.mac.lockdown_mode_state sysctl.proc_cputype
    sysctl.proc_native sysctl.proc_translated vm.loadavg vm.pagesize vm.swapusage
"""

PROCESSES: tuple[Rule, ...] = (
    Rule(("process-fork", "process-exec"), (), "commands start programs; those are sandboxed too"),
    Rule(
        ("signal", "process-info*"), ("(target same-sandbox)",),
        "a shell signals its jobs; other processes of the user are out of reach",
    ),
    Rule(
        ("sysctl-read",), ('(sysctl-name-prefix "hw.")',),
        "zsh 5.9 on macOS 26 (Tahoe) reads new hw.* names at start and is killed without them",
    ),
    Rule(
        ("sysctl-read",),
        (*_each("sysctl-name", _KERN + _SYSCTL),
         *_each("sysctl-name-prefix", "kern.proc.pgrp. kern.proc.pid. machdep.cpu. "
                "net.routetable.")),
        "run-time libraries ask these at start",
    ),
    Rule(
        ("sysctl-write",), _each("sysctl-name", "kern.grade_cputype kern.tcsm_enable"),
        "Rosetta and the allocator of the JVM set these for their own process",
    ),
    Rule(("ipc-posix-sem",), (), "Python's multiprocessing makes semaphores"),
    Rule(
        ("ipc-posix-shm-read*",), _each("ipc-posix-name", "apple.shm.notification_center"),
        "libnotify maps it at the start of every program",
    ),
    Rule(
        ("ipc-posix-shm-read-data", "ipc-posix-shm-write-create", "ipc-posix-shm-write-unlink"),
        ('(ipc-posix-name-regex #"^/__KMP_REGISTERED_LIB_[0-9]+$")',),
        "libomp registers itself there: numpy, torch",
    ),
    Rule(
        ("iokit-open",), _each("iokit-registry-entry-class", "RootDomainUserClient"),
        "power management, asked by libraries of Apple's at start",
    ),
)  # fmt: skip

# Never unfiltered: most services act for the client with rights of their own.
MACH = (
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.opendirectoryd.membership",
    "com.apple.system.notification_center",
    "com.apple.system.logger",
    "com.apple.logd",
    "com.apple.bsd.dirhelper",
    "com.apple.PowerManagement.control",
)
# Certificates, proxies and names: only where there is a network.
MACH_NETWORK = (
    "com.apple.SecurityServer",
    "com.apple.trustd",
    "com.apple.trustd.agent",
    "com.apple.ocspd",
    "com.apple.networkd",
    "com.apple.SystemConfiguration.configd",
    "com.apple.SystemConfiguration.DNSConfiguration",
)

DEVICES: tuple[Rule, ...] = (
    Rule(
        ("file-read*", "file-write-data", "file-ioctl"),
        _each("literal", "/dev/null /dev/zero /dev/dtracehelper /dev/tty"),
        "the usual devices; dyld opens dtracehelper, and tty is the command's own terminal",
    ),
    Rule(
        ("file-read*",), _each("literal", "/dev/random /dev/urandom /dev/autofs_nowait"),
        "randomness; libraries open autofs_nowait so as not to mount anything",
    ),
    Rule(("file-read-data", "file-write-data"), ('(subpath "/dev/fd")',), "process substitution"),
    Rule(
        ("file-read-metadata",), _each("literal", "/dev /dev/stdin /dev/stdout /dev/stderr"),
        "symlinks into /dev/fd",
    ),
    Rule(("pseudo-tty",), (), "programs that make terminals for others: expect, tmux"),
    Rule(("file-read*", "file-write*", "file-ioctl"), ('(literal "/dev/ptmx")',), "the same"),
    Rule(
        ("file-read*", "file-write*"),
        ('(require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty"))',),
        "the kernel marks terminals that a sandbox made itself; the user's own have no such mark",
    ),
    Rule(("file-ioctl",), ('(regex #"^/dev/ttys[0-9]+$")',), "tcgetattr on an inherited terminal"),
)  # fmt: skip

ROOT: tuple[Rule, ...] = (
    Rule(("file-read*",), ('(literal "/")',), "dyld looks at the root folder at start"),
    Rule(
        ("file-read-metadata",),
        (*_each("literal", "/etc /tmp /var /private /private/var /private/tmp /private/var/tmp"),
         '(path-ancestors "/System/Volumes/Data/private")'),
        "symlinks of the root folder, which every path with /tmp, /var or /etc goes through",
    ),
)  # fmt: skip

# Shared with the policy: what a plan says is shown is what the profile shows.
SYSTEM_FOLDERS = macos.PROGRAMS
SYSTEM_SECRETS = macos.SYSTEM_SECRETS
HIDDEN_FROM_HOST = macos.HIDDEN_FROM_HOST

# Names, ports and Apple's resolver. Not network*: that opens every Unix socket as well.
NETWORK_INHERIT: tuple[Rule, ...] = (
    Rule(("network-outbound",), ('(remote ip "*:*")',), "any host"),
    Rule(("network-bind", "network-inbound"), ('(local ip "*:*")',), "servers of the command"),
    Rule(
        ("network-outbound",), ('(literal "/private/var/run/mDNSResponder")',),
        "getaddrinfo asks the resolver through this socket",
    ),
    Rule(
        ("file-read*",),
        _each("literal", "/private/var/run/resolv.conf /private/var/run/mDNSResponder"),
        "programs with a resolver of their own read it",
    ),
    Rule(
        ("system-socket",), ("(require-all (socket-domain AF_SYSTEM) (socket-protocol 2))",),
        "libraries learn of changed interfaces through a control socket",
    ),
)  # fmt: skip
