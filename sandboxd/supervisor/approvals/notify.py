"""`[approvals] notify`: the operator's own command, told of approvals that wait for longer than two
seconds. It gets the approval as JSON on stdin; what it prints and how it ends is ignored."""

from __future__ import annotations

import logging
import subprocess

import anyio

from sandboxd.config.config import ApprovalsConfig
from sandboxd.supervisor.approvals.approval import Approval
from sandboxd.supervisor.background import Background
from sandboxd_proto.wire import encode

log = logging.getLogger(__name__)
WAIT_S = 2.0
LIMIT_S = 60.0
MOST_AT_ONCE = 8


class Notifications:
    def __init__(self, config: ApprovalsConfig, background: Background) -> None:
        self._command = list(config.notify)
        self._background = background
        self._room = anyio.Semaphore(MOST_AT_ONCE)

    def requested(self, approval: Approval) -> None:
        if self._command:
            self._background.start(self._tell, approval)

    async def _tell(self, approval: Approval) -> None:
        with anyio.move_on_after(WAIT_S):
            await approval.resolved.wait()
        async with self._room:
            if not approval.is_pending:
                return
            try:
                with anyio.move_on_after(LIMIT_S):
                    await anyio.run_process(
                        self._command, input=encode(approval.info()), check=False, cwd="/",
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    )  # fmt: skip
            except OSError as error:
                log.error("[approvals] notify: %s cannot be run: %s", self._command[0], error)
