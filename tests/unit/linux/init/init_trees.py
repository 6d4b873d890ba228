"""What runs below an init, as the host sees it."""

from __future__ import annotations

import time

from init_driver import Command, Init
from support.processes import Process, processes_below

# Out of its parent's session and, when the parent ends, an orphan.
DAEMONIZE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("orphan", flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
"""


def wait_for_output(command: Command, text: bytes) -> None:
    deadline = time.monotonic() + 20
    while text not in command.ended().stdout:
        assert time.monotonic() < deadline, command.ended()
        time.sleep(0.01)


def tree_of(init: Init) -> list[Process]:
    return processes_below(init.process.pid)


def sleepers(init: Init) -> list[Process]:
    return [found for found in tree_of(init) if found.name in ("sleep", "python3")]


def wait_for_sleepers(init: Init, count: int) -> list[Process]:
    """A fork is not yet the program that it becomes."""
    deadline = time.monotonic() + 20
    while len(found := sleepers(init)) != count:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found
