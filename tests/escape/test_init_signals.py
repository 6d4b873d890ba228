"""A command ends the sandbox's init by a signal that seems to come from outside."""

from __future__ import annotations

from contextlib import closing

import pytest
from support.attacks import Box, freely, python
from support.backends import running_backend

pytestmark = pytest.mark.requires("bubblewrap")

# A signal that is queued has a sender. Where the queue of a process is full, the kernel leaves the
# sender of an ordinary signal out: it is then 0, as for a sender outside of the pid namespace.
FORGE = """
    SEND = {"x86_64": 129, "aarch64": 138}[os.uname().machine]
    def queue(pid, number):
        info = struct.pack("iii", number, 0, -1).ljust(128, b"\\0")
        return libc.syscall(SEND, pid, number, info)
    def forge(pid):
        while queue(pid, 41) == 0:
            pass
        if queue(pid, 15) != 0:
            blocked("nothing was sent")
"""
# The receiver is a child that takes the signal as the init does.
FREELY = python(
    FORGE,
    """
    import signal
    ours, theirs = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, {15, 41})
    child = os.fork()
    if child == 0:
        os.read(ours, 1)
        got = signal.sigwaitinfo({15})
        os._exit(7 if (got.si_code, got.si_pid) == (0, 0) else 1)
    forge(child)
    os.write(theirs, b"x")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    worked() if code == 7 else blocked(code)
""",
)
# The init answers a call after the signal that came before it.
INSIDE = python(FORGE, "forge(1)", 'os.chmod("/no/such/folder", 0o2755)')


@pytest.mark.parametrize("template", ["true", "false"])
def test_a_signal_without_a_sender_does_not_end_the_sandbox(template: str) -> None:
    assert freely(FREELY).worked
    with (
        running_backend("bubblewrap", config=f"[pool]\ntemplate = {template}\n") as daemon,
        closing(Box("bubblewrap", daemon)) as box,
    ):
        assert box.attack(INSIDE).words == "ENOENT"
