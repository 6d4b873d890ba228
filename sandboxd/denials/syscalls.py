"""A message about a system call: ours only when a filter was loaded (or namespaces are forbidden).

Calls that need root anyway are refused to an ordinary user by the host itself: the filter is the
reason only for those that it would have been allowed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandboxd.denials.facts import Setting
from sandboxd.denials.remedies import Remedy
from sandboxd_proto.denial import Confidence, Denial, Evidence, Layer


@dataclass(frozen=True, slots=True)
class Call:
    """`needs_root`: refused to users everywhere. `lifted`: works without the filter."""

    name: str
    words: str
    needs_root: bool = False
    lifted: bool = True


CALLS = (
    Call("ptrace", r"\bptrace\b|PTRACE_|trace the inferior|could not attach|attach to process"),
    Call("unshare", r"\bunshare\b|CLONE_NEW|user namespace|newuidmap|creating new namespace",
         lifted=False),
    Call("personality", r"\bpersonality\b|address space randomization|setarch"),
    Call("setns", r"\bnsenter\b|\bsetns\b|reassociate to namespace", needs_root=True, lifted=False),
    Call("keyctl", r"\bkeyctl|add_key|request_key|keyring"),
    Call("io_uring_setup", r"io_uring"),
    Call("userfaultfd", r"userfaultfd"),
    Call("perf_event_open", r"perf_event"),
    Call("process_vm_readv", r"process_vm_(?:read|write)v"),
    Call("pidfd_getfd", r"pidfd_getfd"),
    Call("name_to_handle_at", r"name_to_handle_at|open_by_handle_at"),
    Call("bpf", r"\bbpf\b|\beBPF\b", needs_root=True, lifted=False),
    Call("chroot", r"\bchroot\b|change root directory", needs_root=True, lifted=False),
    Call("pivot_root", r"pivot_root", needs_root=True, lifted=False),
    Call("mount", r"\bu?mount(?:2|ing)?\b|\bfsopen\b|move_mount", needs_root=True, lifted=False),
    Call("init_module", r"insmod|modprobe|init_module|insert module", needs_root=True,
         lifted=False),
    Call("kexec_load", r"\bkexec", needs_root=True, lifted=False),
    Call("swapon", r"\bswapo(?:n|ff)\b", needs_root=True, lifted=False),
    Call("sethostname", r"\bsethostname|\bhostname:|setdomainname", needs_root=True, lifted=False),
    Call("settimeofday", r"settimeofday|cannot set date|clock_settime|adjtimex", needs_root=True,
         lifted=False),
    Call("syslog", r"\bdmesg\b|kernel buffer", needs_root=True, lifted=False),
)  # fmt: skip
# How a shell, make, Go, Python and strace tell that a child died of it.
_DIED = re.compile(
    r"(?:^|: |\] |\d )bad system call(?: \(core dumped\))?(?:\s*$|\s{2,}|\s+\()"
    r"|Signals\.SIGSYS|'SIGSYS'|killed by SIGSYS|signal: bad system call|signal SIGSYS",
    re.IGNORECASE,
)
_COMPILED = [(call, re.compile(call.words)) for call in CALLS]


def judge(setting: Setting, reason: str, line: str) -> Denial | None:
    """EPERM or SIGSYS of a filtered call; ENOSPC is what a forbidden user namespace answers."""
    if reason == "SIGSYS":
        died = setting.filter_loaded and _DIED.search(line) is not None
        return denial(setting, None, "text", "medium") if died else None
    call = next((call for call, words in _COMPILED if words.search(line)), None)
    if call is None or (call.needs_root and not setting.host_root):
        return None
    if reason == "ENOSPC":
        nested = call.name == "unshare" and setting.userns_disabled
        return denial(setting, call, "policy", "medium", "namespace") if nested else None
    return denial(setting, call, "policy", "medium") if setting.filter_loaded else None


def denial(
    setting: Setting, call: Call | None, evidence: Evidence, confidence: Confidence,
    layer: Layer = "seccomp", name: str | None = None,
) -> Denial:  # fmt: skip
    target = call.name if call else name
    what = f"the system call {target}" if target else "a system call"
    return Denial(
        kind="syscall", operation=target or "syscall", target=target, layer=layer,
        evidence=evidence, confidence=confidence,
        message=f"{what} was refused ({_by(setting, layer)})", remedy=_remedy(setting, call),
    )  # fmt: skip


def named(name: str | None) -> Call | None:
    return next((call for call in CALLS if call.name == name), None)


def _by(setting: Setting, layer: Layer) -> str:
    if layer == "namespace":
        return "nested user namespaces are forbidden in every sandbox"
    return f"syscall_policy {setting.plan.syscall_policy}"


def _remedy(setting: Setting, call: Call | None) -> Remedy | None:
    policy = setting.plan.syscall_policy
    if policy == "strict":
        # The baseline refuses these as well: only what it leaves alone is helped.
        return {"syscall_policy": "baseline"} if call is None else None
    if policy == "baseline" and call is not None and call.lifted:
        return {"syscall_policy": "inherit"}
    return None
