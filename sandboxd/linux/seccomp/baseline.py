"""`baseline`: a deny list answering EPERM, for everything that a build or an agent never needs.

A program that asks for one of these gets an ordinary error and goes on. The calls that are
refused for some arguments only are in `gates` and `sockets`.
"""

from __future__ import annotations

from errno import ENOSYS, EPERM

from sandboxd.linux.seccomp.rules import RuleGroup


def _deny(name: str, reason: str, calls: str) -> RuleGroup:
    return RuleGroup(name, reason, tuple(calls.split()), EPERM)


IO_URING = _deny(
    "io_uring",
    "its operations (openat, socket, connect) run in the kernel without passing a filter; "
    "libuv and others fall back to epoll",
    "io_uring_setup io_uring_enter io_uring_register",
)

KEYRINGS = _deny(
    "keyrings",
    "keys belong to the user, not to a namespace: tokens of Kerberos, fscrypt and other sessions",
    "add_key request_key keyctl",
)

DENIED: tuple[RuleGroup, ...] = (
    _deny(
        "kernel modules",
        "code in the kernel",
        "init_module finit_module delete_module create_module query_module get_kernel_syms",
    ),
    _deny(
        "mounts",
        "a mount changes what the plan's paths mean; chroot confuses every path check",
        "mount umount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount "
        "open_tree open_tree_attr mount_setattr",
    ),
    _deny("bpf", "programs in the kernel; reads the memory of others", "bpf"),
    _deny("perf", "samples kernel addresses; a long record of exploits", "perf_event_open"),
    KEYRINGS,
    _deny(
        "userfaultfd",
        "stops the kernel in the middle of a copy: the standard way to win a race in an exploit",
        "userfaultfd",
    ),
    IO_URING,
    _deny("kexec", "replaces the running kernel", "kexec_load kexec_file_load"),
    _deny(
        "machine",
        "switches the machine, its swap, accounting, quotas and names",
        "reboot swapon swapoff acct quotactl quotactl_fd sethostname setdomainname vhangup",
    ),
    _deny(
        "clock",
        "one clock for the whole machine. Whether adjtimex sets or asks is behind a pointer "
        "where a filter cannot look, so asking goes too",
        "settimeofday stime clock_settime clock_settime64 adjtimex clock_adjtime clock_adjtime64",
    ),
    _deny(
        "other processes",
        "reads or changes another process: its memory, its descriptors, the nodes of its pages. "
        "MPI, gdb and jemalloc fall back when refused",
        "process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise process_mrelease "
        "migrate_pages move_pages",
    ),
    _deny("joining namespaces", "leads out of the sandbox's own namespaces", "setns"),
    _deny(
        "file handles",
        "opens a file by number, past every path (the Docker breakout of 2014)",
        "name_to_handle_at open_by_handle_at",
    ),
    _deny(
        "watching whole mounts",
        "fanotify sees, and can hold up, what others do on the same file system",
        "fanotify_init fanotify_mark",
    ),
    _deny("kernel log", "addresses and other users' events", "syslog"),
    _deny("hardware ports", "direct access to devices (x86)", "iopl ioperm"),
    _deny(
        "relics",
        "dead or nearly dead code in the kernel that no tool calls; modify_ldt serves 16-bit "
        "programs, which cannot run here",
        "lookup_dcookie nfsservctl uselib _sysctl sysfs ustat modify_ldt vm86 vm86old",
    ),
    _deny("module attributes", "changes the label that security modules see", "lsm_set_self_attr"),
    RuleGroup(
        "clone3",
        "its flags lie behind a pointer where a filter cannot look; glibc, Go and Rust use clone "
        "when it answers ENOSYS",
        ("clone3",),
        ENOSYS,
    ),
)
