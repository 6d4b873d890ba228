"""Messages about system calls: a denial only if a filter was loaded or namespaces are forbidden.

The host itself refuses calls that need root to an ordinary user: the filter is the reason only for
calls that would have been allowed.
"""

from __future__ import annotations

import re

import msgspec

from sandboxd.denials.context import Setting
from sandboxd.denials.remedies import Remedy
from sandboxd_proto.denial import Confidence, Denial, Evidence, Layer


class DeniedSyscall(msgspec.Struct, frozen=True):
    """`needs_root`: refused to users everywhere. `lifted`: works without the filter. `always`: what
    is said of it otherwise."""

    name: str
    words: str
    needs_root: bool = False
    lifted: bool = True
    always: str = "it is forbidden in every sandbox"


CALLS = (
    DeniedSyscall(
        "ptrace",
        r"\bptrace\b|PTRACE_|trace the inferior|could not attach|attach to process",
        lifted=False,
        always="attaching to a process that runs is forbidden in every sandbox; gdb and strace can "
        "trace a program that they start",
    ),
    DeniedSyscall(
        "unshare",
        r"\bunshare\b|CLONE_NEW|user namespace|newuidmap|creating new namespace",
        lifted=False,
    ),
    DeniedSyscall("personality", r"\bpersonality\b|address space randomization|setarch"),
    DeniedSyscall(
        "setns", r"\bnsenter\b|\bsetns\b|reassociate to namespace", needs_root=True, lifted=False
    ),
    DeniedSyscall("keyctl", r"\bkeyctl|add_key|request_key|keyring", lifted=False),
    DeniedSyscall("io_uring_setup", r"io_uring", lifted=False),
    DeniedSyscall("userfaultfd", r"userfaultfd"),
    DeniedSyscall("perf_event_open", r"perf_event"),
    DeniedSyscall("process_vm_readv", r"process_vm_(?:read|write)v"),
    DeniedSyscall("pidfd_getfd", r"pidfd_getfd"),
    DeniedSyscall("name_to_handle_at", r"name_to_handle_at|open_by_handle_at"),
    DeniedSyscall("bpf", r"\bbpf\b|\beBPF\b", needs_root=True, lifted=False),
    DeniedSyscall("chroot", r"\bchroot\b|change root directory", needs_root=True, lifted=False),
    DeniedSyscall("pivot_root", r"pivot_root", needs_root=True, lifted=False),
    DeniedSyscall(
        "mount", r"\bu?mount(?:2|ing)?\b|\bfsopen\b|move_mount", needs_root=True, lifted=False
    ),
    DeniedSyscall(
        "init_module", r"insmod|modprobe|init_module|insert module", needs_root=True, lifted=False
    ),
    DeniedSyscall("kexec_load", r"\bkexec", needs_root=True, lifted=False),
    DeniedSyscall("swapon", r"\bswapo(?:n|ff)\b", needs_root=True, lifted=False),
    DeniedSyscall(
        "sethostname", r"\bsethostname|\bhostname:|setdomainname", needs_root=True, lifted=False
    ),
    DeniedSyscall(
        "settimeofday",
        r"settimeofday|cannot set date|clock_settime|adjtimex",
        needs_root=True,
        lifted=False,
    ),
    DeniedSyscall("syslog", r"\bdmesg\b|kernel buffer", needs_root=True, lifted=False),
)
# How a shell, make, Go, Python and strace tell that a child died of it.
_DIED = re.compile(
    r"(?:^|: |\] |\d )bad system call(?: \(core dumped\))?(?:\s*$|\s{2,}|\s+\()"
    r"|Signals\.SIGSYS|'SIGSYS'|killed by SIGSYS|signal: bad system call|signal SIGSYS",
    re.IGNORECASE,
)
_MOUNTING = re.compile(r"(?:\S{0,64}/)?u?mount(?:\.\w+)?: ")
_COMPILED = [(call, re.compile(call.words)) for call in CALLS]


def judge(setting: Setting, reason: str, line: str) -> Denial | None:
    """EPERM or SIGSYS of a filtered call; ENOSPC is what a forbidden user namespace answers."""
    if reason == "SIGSYS":
        died = setting.filter_loaded and setting.filter_kills and _DIED.search(line) is not None
        return denial(setting, None, "text", "medium") if died else None
    if reason == "LeakSanitizer":
        return _leak_check(setting) if setting.filter_loaded else None
    if reason == "EACCES" and not about_mounting(line):
        return None
    call = next((call for call, words in _COMPILED if words.search(line)), None)
    if call is None or (call.needs_root and not setting.host_root):
        return None
    if reason == "ENOSPC":
        if call.name != "unshare":
            return None
        return denial(setting, call, "policy", "medium", "namespace")
    return denial(setting, call, "policy", "medium") if setting.filter_loaded else None


def _leak_check(setting: Setting) -> Denial:
    """It traces the threads of its own process, and does not say which call was refused."""
    found = denial(setting, find_syscall("ptrace"), "policy", "medium")
    text = (
        f"{found.message}: LeakSanitizer looks for leaks with it. Without that check the program "
        "runs: give it ASAN_OPTIONS=detect_leaks=0 (sandboxctl run -e ASAN_OPTIONS=detect_leaks=0)"
    )
    return msgspec.structs.replace(found, message=text)


def about_mounting(line: str) -> bool:
    """mount(8) names a folder and says "permission denied" when the call was refused."""
    return _MOUNTING.match(line) is not None


def denial(
    setting: Setting,
    call: DeniedSyscall | None,
    evidence: Evidence,
    confidence: Confidence,
    layer: Layer = "seccomp",
    name: str | None = None,
) -> Denial:
    target = call.name if call else name
    what = f"the system call {target}" if target else "a system call"
    return Denial(
        kind="syscall",
        operation=target or "syscall",
        target=target,
        layer=layer,
        evidence=evidence,
        confidence=confidence,
        message=f"{what} was refused ({_by(setting, layer, call)})",
        remedy=_remedy(setting, call),
    )


def find_syscall(name: str | None) -> DeniedSyscall | None:
    return next((call for call in CALLS if call.name == name), None)


def _by(setting: Setting, layer: Layer, call: DeniedSyscall | None) -> str:
    if layer == "namespace":
        return "nested user namespaces are forbidden in every sandbox"
    if call is not None and not call.lifted and setting.plan.syscall_policy != "strict":
        return call.always
    return f"syscall_policy {setting.plan.syscall_policy}"


def _remedy(setting: Setting, call: DeniedSyscall | None) -> Remedy | None:
    policy = setting.plan.syscall_policy
    if policy == "strict":
        # The baseline refuses these as well: only what it leaves alone is helped.
        return {"syscall_policy": "baseline"} if call is None else None
    if policy == "baseline" and call is not None and call.lifted:
        return {"syscall_policy": "inherit"}
    return None
