"""`syscall_policy`: refused calls answer EPERM under baseline, and end the process under strict."""

from __future__ import annotations

import signal

import pytest
from support.rpc import RpcError
from support.subject import Subject

CALL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {{"x86_64": {0}, "aarch64": {1}}}[os.uname().machine]
made = libc.syscall(number, {2})
print("made" if made >= 0 else os.strerror(ctypes.get_errno()), flush=True)
"""
# userfaultfd for user memory only, which everybody may make: refused by nobody but a filter.
KNOWN_CALL = CALL.format(323, 282, "1")
# quotactl, with arguments that mean nothing: on no list of what programs need.
ODD_CALL = CALL.format(179, 60, "-1, 0, 0, 0")


@pytest.mark.holds("syscall_policy")
def test_baseline_answers_with_an_error(subject: Subject) -> None:
    ran = subject.python(KNOWN_CALL, manifest={"syscall_policy": "baseline"})
    assert ran.stdout == "Operation not permitted\n"


@pytest.mark.holds("syscall_policy")
def test_strict_ends_the_process(subject: Subject) -> None:
    ran = subject.python(ODD_CALL, manifest={"syscall_policy": "strict"})
    assert (ran.outcome, ran.signal) == ("signaled", signal.SIGSYS), ran.story
    assert [denial["kind"] for denial in ran.denials] == ["syscall"]


@pytest.mark.holds("syscall_policy")
def test_strict_ends_a_child_and_not_the_command(subject: Subject) -> None:
    code = f"""
import os
if os.fork() == 0:
    {ODD_CALL.strip().replace(chr(10), chr(10) + "    ")}
    os._exit(0)
print(os.WTERMSIG(os.wait()[1]))
"""
    ran = subject.python(code, manifest={"syscall_policy": "strict"})
    assert ran.stdout == f"{signal.SIGSYS.value}\n", ran.story


@pytest.mark.parametrize("policy", ["inherit", "baseline", "strict"])
def test_ordinary_programs_run(subject: Subject, policy: str) -> None:
    script = "ls /usr | sort > /dev/null; python3 -c 'import threading, subprocess'; exit 9"
    try:
        assert subject.shell(script, manifest={"syscall_policy": policy}).exited(9)
    except RpcError as refusal:
        assert refusal.kind == "PolicyNotSupported"


def test_an_unknown_policy_is_refused(subject: Subject) -> None:
    with pytest.raises(RpcError) as refusal:
        subject.run("true", manifest={"syscall_policy": "paranoid"})
    assert refusal.value.code == -32602
