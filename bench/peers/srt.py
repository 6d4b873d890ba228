"""@anthropic-ai/sandbox-runtime: the library, kept warm in a node process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.peer import Peer, Run, driver, npm

PACKAGE = "@anthropic-ai/sandbox-runtime"
_DRIVER = """
import { SandboxManager } from '@anthropic-ai/sandbox-runtime'
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
const quoted = word => "'" + word.replaceAll("'", "'\\\\''") + "'"
await SandboxManager.initialize({
  network: { allowedDomains: [], deniedDomains: [] },
  filesystem: { denyRead: [], allowWrite: ['.'], denyWrite: [] },
})
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line).map(quoted).join(' ')
  const wrapped = await SandboxManager.wrapWithSandbox(command)
  const child = spawn(wrapped, { shell: true, stdio: ['ignore', 'ignore', 'inherit'] })
  const code = await new Promise(done => child.on('exit', done))
  SandboxManager.cleanupAfterCommand?.()
  process.stdout.write(`${code ?? -1}\\n`)
}
"""


def install(folder: Path) -> None:
    npm(folder, PACKAGE)
    (folder / "driver.mjs").write_text(_DRIVER)


@contextmanager
def opened(folder: Path, workspace: Path) -> Iterator[Run]:
    with driver(["node", folder / "driver.mjs"], workspace) as run:
        yield run


PEER = Peer(f"{PACKAGE}, library in a warm node", install, opened)
