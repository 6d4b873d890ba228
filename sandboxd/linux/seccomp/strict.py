"""`strict`: an allowlist; whatever is not named here, in `gates` or in `sockets` kills.

Three classes. Allowed: what real programs need (tests/strict runs them), generously, where the
call reaches only what the caller already holds. Refused with an errno: what ordinary programs try
in passing and do without. Killed: what only an administrator's tool or an exploit calls (modules,
mounts, bpf, kexec, ports, file handles, another process's descriptors).

Nested namespaces are refused with EPERM rather than killed: browsers, bazel and bwrap try for one
and go on without it, and the refusal is as firm.
"""

from __future__ import annotations

from errno import ENOSYS, EPERM

from sandboxd.linux.seccomp.rules import ALLOW, RuleGroup
from sandboxd.linux.seccomp.set_id_files import OPENAT2


def _allow(name: str, reason: str, calls: str) -> RuleGroup:
    return RuleGroup(name, reason, tuple(calls.split()), ALLOW)


def _refuse(name: str, reason: str, calls: str, answer: int) -> RuleGroup:
    return RuleGroup(name, reason, tuple(calls.split()), answer)


ALLOWED: tuple[RuleGroup, ...] = (
    _allow(
        "file contents",
        "every program; splice, tee and copy_file_range: cp, cat, tar, go's io.Copy",
        "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek "
        "sendfile splice tee vmsplice copy_file_range readahead fadvise64 truncate ftruncate "
        "fallocate fsync fdatasync sync syncfs sync_file_range cachestat",
    ),
    _allow(
        "names and folders",
        "every program; what a name leads to is for the mounts and Landlock to decide. "
        "open, mknod and their kind are gated by mode (set_id_files)",
        "close close_range access faccessat faccessat2 stat fstat "
        "lstat newfstatat statx readlink readlinkat getdents getdents64 getcwd chdir fchdir "
        "mkdir mkdirat rmdir rename renameat renameat2 link linkat unlink unlinkat symlink "
        "symlinkat statfs fstatfs umask",
    ),
    _allow(
        "attributes",
        "tar, cp -a, git, make: owners, times, extended attributes; chmod is gated (set_id_files)",
        "chown fchown lchown fchownat utime utimes futimesat "
        "utimensat setxattr lsetxattr fsetxattr setxattrat getxattr lgetxattr fgetxattr "
        "getxattrat listxattr llistxattr flistxattr listxattrat removexattr lremovexattr "
        "fremovexattr removexattrat file_getattr file_setattr",
    ),
    _allow(
        "descriptors",
        "shells duplicate and lock them; sqlite and git lock by fcntl",
        "dup dup2 dup3 fcntl flock pipe pipe2 memfd_create",
    ),
    _allow(
        "waiting for descriptors",
        "node, go, java, python: event loops; inotify: watch modes of build tools; timerfd, "
        "eventfd and signalfd: the same loops",
        "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait "
        "epoll_pwait2 eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime "
        "timerfd_gettime inotify_init inotify_init1 inotify_add_watch inotify_rm_watch",
    ),
    _allow(
        "asynchronous file input and output",
        "databases under test (MySQL, RocksDB): the old interface, bound to open descriptors",
        "io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents",
    ),
    _allow(
        "memory",
        "every program; node and java: mprotect, madvise, pkey; java -XX:+UseNUMA: mempolicy "
        "of the caller itself; mseal: new glibc; memory locks: gpg, java",
        "brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 munlock mlockall "
        "munlockall pkey_alloc pkey_free pkey_mprotect mseal map_shadow_stack membarrier "
        "get_mempolicy set_mempolicy mbind set_mempolicy_home_node",
    ),
    _allow(
        "starting and ending programs",
        "shells, make, npm; clone and unshare are gated, clone3 answers ENOSYS",
        "fork vfork execve execveat exit exit_group wait4 waitid pidfd_open pidfd_send_signal",
    ),
    _allow(
        "threads",
        "every runtime; rseq and robust lists: glibc; arch_prctl: the thread register on x86-64",
        "set_tid_address gettid futex futex_waitv futex_wake futex_wait futex_requeue "
        "set_robust_list get_robust_list rseq arch_prctl restart_syscall tgkill tkill",
    ),
    _allow(
        "signals",
        "every program; whom a signal reaches is for the pid namespace and Landlock to decide",
        "kill rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait "
        "rt_sigqueueinfo rt_tgsigqueueinfo rt_sigsuspend sigaltstack pause alarm",
    ),
    _allow(
        "time",
        "every program: reading clocks, sleeping, own timers",
        "time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep times getitimer "
        "setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete",
    ),
    _allow(
        "identity",
        "id, git, ssh; changing ids: tar and install as root, test suites. Capabilities and "
        "no_new_privs decide; capset can only give up",
        "getpid getppid getuid geteuid getgid getegid getgroups getresuid getresgid getpgid "
        "getpgrp getsid setpgid setsid setuid setgid setreuid setregid setresuid setresgid "
        "setfsuid setfsgid setgroups capget capset",
    ),
    _allow(
        "limits and scheduling",
        "ulimit, nice, java, go (number of processors), node",
        "getrlimit setrlimit prlimit64 getrusage getpriority setpriority sched_yield "
        "sched_getaffinity sched_setaffinity sched_getparam sched_setparam sched_getscheduler "
        "sched_setscheduler sched_getattr sched_setattr sched_get_priority_max "
        "sched_get_priority_min sched_rr_get_interval ioprio_get ioprio_set getcpu",
    ),
    _allow(
        "about the system",
        "uname, free, java (memory size), python's hashing (getrandom)",
        "uname sysinfo getrandom",
    ),
    _allow(
        "sockets",
        "curl, npm, dev servers; which families can be made is gated, and what they reach is "
        "for the network namespace to decide",
        "bind listen accept accept4 connect getsockname getpeername getsockopt setsockopt "
        "sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown",
    ),
    _allow(
        "System V and POSIX objects",
        "fakeroot, PostgreSQL, python multiprocessing: private to the sandbox's IPC namespace",
        "shmget shmat shmctl shmdt msgget msgsnd msgrcv msgctl semget semop semtimedop semctl "
        "mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr",
    ),
    _allow(
        "own process",
        "prctl: thread names, parent-death signals; seccomp and landlock: programs that "
        "confine themselves further, which only narrows",
        "prctl seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self",
    ),
    _allow(
        "probe trampolines",
        "inserted into the program by the kernel when an administrator traces it from outside",
        "uretprobe uprobe",
    ),
)

REFUSED: tuple[RuleGroup, ...] = (
    _refuse(
        "clone3",
        "its flags lie behind a pointer where a filter cannot look; glibc, Go and Rust use clone "
        "when it answers ENOSYS",
        "clone3",
        ENOSYS,
    ),
    _refuse(
        "io_uring",
        "node: libuv probes for it and uses epoll instead",
        "io_uring_setup io_uring_enter io_uring_register",
        ENOSYS,
    ),
    OPENAT2,
    _refuse(
        "newer than the program needs",
        "util-linux, coreutils and systemd's library ask, and read /proc instead; "
        "memfd_secret: gpg and openssl use mlock; remap_file_pages: emulated, obsolete",
        "statmount listmount lsm_get_self_attr lsm_list_modules memfd_secret remap_file_pages",
        ENOSYS,
    ),
    _refuse(
        "tracing and other processes",
        "crash handlers, MPI, Mesa and allocators try, and do without; LeakSanitizer says that "
        "it cannot work (ASAN_OPTIONS=detect_leaks=0 turns it off)",
        "ptrace process_vm_readv process_vm_writev kcmp process_madvise process_mrelease "
        "migrate_pages move_pages perf_event_open userfaultfd",
        EPERM,
    ),
    _refuse(
        "keyrings",
        "Kerberos, curl's gssapi and fscrypt tools look for one",
        "add_key request_key keyctl",
        EPERM,
    ),
    _refuse(
        "namespaces and roots",
        "programs with a sandbox of their own try, and go on without",
        "setns chroot",
        EPERM,
    ),
    _refuse(
        "whole machine, asked in passing",
        "hostname, dmesg, NTP libraries, file watchers, systemd's library: told that they may not",
        "sethostname setdomainname syslog adjtimex clock_adjtime fanotify_init fanotify_mark "
        "name_to_handle_at",
        EPERM,
    ),
)
