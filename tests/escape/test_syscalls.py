"""System calls that open the kernel itself: what `baseline` denies, each beside a control."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from support.attacks import Box, Build, Victim, freely, python, weakest

pytestmark = pytest.mark.isolation

ROOT = os.geteuid() == 0
FILTERED = {"manifest": weakest(syscall_policy="baseline")}


def _setting(name: str) -> str:
    path = Path("/proc/sys") / name
    return path.read_text().strip() if path.exists() else ""


def test_io_uring_opens_no_file_outside(box: Box, build: Build, victim: Victim) -> None:
    """IORING_OP_OPENAT: the kernel opens the file, and no filter sees a system call."""
    attack = build("uring")
    allowed = _setting("kernel/io_uring_disabled") in ("", "0") or ROOT
    assert freely(attack, "open", victim).worked == allowed
    victim.reset()
    readable = [*attack, str(victim.path.parent)]
    for policy in ("inherit", "baseline"):
        manifest = weakest(syscall_policy=policy, fs_read_allow=readable)
        assert box.attack(attack, "open", victim, manifest=manifest).blocked
    assert victim.untouched


@pytest.mark.parametrize("policy", ["inherit", "baseline", "strict"])
def test_no_command_makes_others_wait_with_a_lease(box: Box, victim: Victim, policy: str) -> None:
    """F_SETLEASE: who opens the file waits until the holder gives it up, 45 s by default."""
    own = victim.path.parent / "leased"
    own.write_text("x")
    attack = python("""
        import fcntl
        file = os.open(args[0], os.O_RDONLY)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        worked()
    """)
    assert freely(attack, own).worked
    manifest = weakest(syscall_policy=policy, fs_read_allow=[str(own.parent)])
    assert box.attack(attack, own, manifest=manifest).blocked
    locks = python("import fcntl", "fcntl.flock(os.open(args[0], os.O_RDONLY), 2)", "worked()")
    assert box.attack(locks, own, manifest=manifest).worked


@pytest.mark.parametrize("policy", ["inherit", "baseline", "strict"])
def test_no_command_leaves_a_write_hint_on_what_is_read_only(
    box: Box, victim: Victim, policy: str
) -> None:
    """F_SET_RW_HINT: the inode keeps a number, which the next sandbox reads, too."""
    own = victim.path.parent / "hinted"
    own.write_text("x")
    attack = python("""
        import fcntl
        fcntl.fcntl(os.open(args[0], os.O_RDONLY), 1036, struct.pack("Q", int(args[1])))
        worked()
    """)
    assert freely(attack, own, 2).worked
    manifest = weakest(syscall_policy=policy, fs_read_allow=[str(own.parent)])
    assert box.attack(attack, own, 3, manifest=manifest).blocked
    with own.open() as file:
        assert fcntl.fcntl(file, 1035, bytes(8))[0] == 2


def test_bpf_is_denied(box: Box) -> None:
    """bpf(2): programs in the kernel. Root's, or everybody's where the setting allows it."""
    attack = python("""
        attributes = ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1), 128)
        call("bpf", 0, attributes, 128)
        worked()
    """)
    free = ROOT or _setting("kernel/unprivileged_bpf_disabled") == "0"
    assert freely(attack).worked == free
    assert box.attack(attack, **FILTERED).blocked
    if not free or box.firm:
        assert box.attack(attack).blocked == (_setting("kernel/unprivileged_bpf_disabled") != "0")


def test_perf_events_are_denied(box: Box) -> None:
    """perf_event_open: samples of kernel addresses, and a long record of exploits."""
    attack = python("""
        attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 128, 0), 128)
        attributes[40:48] = struct.pack("Q", 1 << 5)  # exclude_kernel
        call("perf_event_open", attributes, 0, -1, -1, 0)
        worked()
    """)
    paranoid = int(_setting("kernel/perf_event_paranoid") or 4)
    assert freely(attack).worked == (ROOT or paranoid <= 2)
    assert box.attack(attack, **FILTERED).blocked


def test_userfaultfd_is_denied(box: Box) -> None:
    """userfaultfd: stops the kernel in the middle of a copy, which wins races."""
    attack = python("call('userfaultfd', 1); worked()")
    assert freely(attack).worked
    assert box.attack(attack, **FILTERED).blocked


def test_kcmp_is_denied(box: Box) -> None:
    """kcmp: the order of kernel addresses, by comparing processes."""
    attack = python("call('kcmp', os.getpid(), os.getpid(), 1, 0, 0); worked()")
    assert freely(attack).worked
    assert box.attack(attack, **FILTERED).blocked


def test_fanotify_is_denied(box: Box) -> None:
    """fanotify on a mount: sees, and can delay, what all processes do there. Root's technique."""
    attack = python("""
        watch = c("fanotify_init", 0, os.O_RDONLY)
        c("fanotify_mark", watch, 0x1 | 0x10, 0x20, -100, b"/usr")
        worked()
    """)
    assert freely(attack).worked == ROOT
    for params in ({}, FILTERED):
        assert box.attack(attack, **params).blocked


def test_clock_and_names_of_the_machine_are_not_changed(box: Box) -> None:
    """sethostname to what it is, and adjtimex with nothing to set: neither changes anything."""
    attack = python("""
        done = []
        name = socket.gethostname().encode()
        for way in (lambda: c("sethostname", name, len(name)),
                    lambda: time.clock_settime(time.CLOCK_REALTIME, time.time())):
            try:
                way()
                done.append("done")
            except OSError:
                pass
        worked(*done) if done else blocked("none")
    """)
    control = python("""
        name = socket.gethostname().encode()
        c("sethostname", name, len(name))
        worked()
    """)
    assert freely(control).worked == ROOT
    for params in ({}, FILTERED):
        assert box.attack(attack, **params).blocked


def test_modules_and_kexec_are_denied(box: Box) -> None:
    """Loading code into the kernel, with arguments that can never succeed: what matters is who
    answers. Without the filter the kernel does (root gets as far as the arguments)."""
    attack = python("""
        numbers = {"x86_64": (313, 246), "aarch64": (273, 104)}[os.uname().machine]
        answers = []
        for number, args in zip(numbers, ((-1, b"", 0), (0, 0, 0, 0)), strict=True):
            try:
                checked(libc.syscall, (number, *args))
                answers.append("done")
            except OSError as error:
                answers.append(errno.errorcode[error.errno])
        worked(*answers) if {*answers} - {"EPERM"} else blocked(*answers)
    """)
    if ROOT:
        assert freely(attack).worked
    assert box.attack(attack, **FILTERED).blocked


@pytest.mark.parametrize("policy", ["baseline", "strict"])
def test_filter_is_not_undone(box: Box, policy: str) -> None:
    """A filter cannot be taken off: not by a second one that allows all, nor by a new program."""
    attack = python("""
        allow_all = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
        program = struct.pack("HxxxxxxP", 1, ctypes.addressof(allow_all))
        c("prctl", 22, 2, ctypes.create_string_buffer(program), 0, 0)
        code = "import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))"
        if os.fork() == 0:
            os.execv("/usr/bin/python3", ["python3", "-I", "-S", "-c", code])
        os.wait()
        c("unshare", 0x10000000)
        worked()
    """)
    control = python("""
        c("prctl", 38, 1, 0, 0, 0)
        c("unshare", 0x10000000)
        worked()
    """)
    assert freely(control).worked
    ran = box.run(*attack, manifest=weakest(syscall_policy=policy))
    assert ran.outcome == "signaled" or ran.exit_code == 43, ran.raw
    assert "\\n0\\n" not in ran.stdout
