"""The cgroup of the next clone belongs to one owner, also when the template ends at that moment."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import cast

import anyio
import anyio.lowlevel
import pytest

if sys.platform != "linux":
    pytest.skip("templates are Linux's", allow_module_level=True)

from sandboxd.linux.cgroup.cgroups import Cgroups
from sandboxd.linux.cgroup.sandbox_process_limit import SandboxCgroup
from sandboxd.linux.init_client import seqpacket
from sandboxd.linux.init_client.template import Clone, Template
from sandboxd.linux.spawn import has_ended, spawn


class Counted:
    """Cgroups of plain files, and those that were let go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.made: list[SandboxCgroup] = []
        self.let_gone: list[object] = []

    def make_for_sandbox(self) -> SandboxCgroup:
        number = len(self.made)
        cgroup = _Plain(str(self._folder / str(number)))
        self.made.append(cgroup)
        return cgroup

    def let_go(self, cgroup: SandboxCgroup) -> None:
        cgroup.close_entrance()
        self.let_gone.append(cgroup)


class _Plain(SandboxCgroup):
    def _set_limits(self) -> None:
        Path(self.folder, "cgroup.procs").touch()


def clone_of(folder: Path, *, dies: bool) -> tuple[Clone, Counted, list[object]]:
    """A clone of a template that has ended, or ends after it, and what was let go by then."""
    counted = Counted(folder)
    result: list[tuple[Clone, list[object]]] = []

    async def work() -> None:
        control, theirs = seqpacket.pair()
        errors, stderr = os.pipe()
        os.set_blocking(errors, False)
        helper = spawn(["/bin/sleep", "600"], {}, [], stderr=stderr)
        os.close(stderr)
        cgroups = cast(Cgroups, counted)
        template = Template(helper, control, errors, lambda: None, cgroups)
        template._enter_cgroup()
        if dies:  # without a turn of the event loop, which would notice
            theirs.close()
            helper.kill()
            os.waitid(os.P_PID, helper.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
            assert has_ended(helper._pidfd)
        ours, init = seqpacket.pair()
        with ours, init:
            clone = template.clone(init)
            at_once = list(counted.let_gone)
            await anyio.lowlevel.checkpoint()
        if not dies:
            os.kill(helper.pid, signal.SIGKILL)
            theirs.close()
        template.close()
        with anyio.fail_after(60):
            await template.ended()
        result.append((clone, at_once))

    anyio.run(work)
    [(clone, at_once)] = result
    return clone, counted, at_once


def test_a_template_that_ended_does_not_let_go_of_its_clones_cgroup(tmp_path: Path) -> None:
    """Its owner does: twice let go, it would be given to two sandboxes."""
    clone, counted, at_once = clone_of(tmp_path, dies=True)
    assert clone.cgroup is counted.made[0]
    assert clone.cgroup not in at_once
    assert clone.cgroup not in counted.let_gone


def test_control_the_cgroup_of_the_next_clone_is_let_go_once(tmp_path: Path) -> None:
    clone, counted, at_once = clone_of(tmp_path, dies=False)
    assert (clone.cgroup, at_once) == (counted.made[0], [])
    assert counted.let_gone == counted.made[1:]
    assert len(counted.made) == 2
