"""`sandboxctl shell`: an interactive shell in a sandbox of its own, or in one that exists.

The sandbox is a persistent one, so that what is started in the background of the shell lives as
long as the shell. It is destroyed at the end; if this process is killed before it can do that,
the sandbox's short idle time does.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

assert sys.platform != "win32"

from sandboxd_client import handshake, transport  # noqa: E402 - after the platform is known
from sandboxd_client.cli.connect import socket_path  # noqa: E402
from sandboxd_client.cli.execute import Left, attempt, streaming, wants_pty  # noqa: E402
from sandboxd_client.cli.finish_run import report  # noqa: E402
from sandboxd_client.cli.live_denials import LiveDenials  # noqa: E402
from sandboxd_client.cli.parse import Options  # noqa: E402
from sandboxd_client.cli.plain_text import quote  # noqa: E402
from sandboxd_client.cli.prefix import find_sandbox  # noqa: E402
from sandboxd_client.cli.request import in_sandbox, policy  # noqa: E402
from sandboxd_client.cli.run import connection, take_line  # noqa: E402
from sandboxd_client.cli.screen import say  # noqa: E402
from sandboxd_client.cli.start_notices import say_unprotected  # noqa: E402
from sandboxd_client.cli.streams import Streams  # noqa: E402
from sandboxd_proto.errors import SandboxdError  # noqa: E402
from sandboxd_proto.locations import caches_root  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Mapping
    from typing import Any

IDLE_S = 30.0
_PATHS_SHOWN = 4
# Which shell there is, only a look from inside tells. bash's start-up files set its prompt, so
# the mark is put there after them; others take the prompt from the environment.
_SCRIPT = """\
export SANDBOXD=1 TERM="$1"; shift
for name in "$@"; do
    found=$(command -v "$name" 2>/dev/null) && [ -x "$found" ] || continue
    export SHELL="$found"
    [ -t 0 ] || exec "$found"
    case $found in
    */bash)
        export PROMPT_COMMAND='case $PS1 in "(sandbox) "*) ;; *) PS1="(sandbox) $PS1" ;; esac' ;;
    *) export PS1='(sandbox) $ ' ;;
    esac
    exec "$found" -i
done
"""


def main(options: Options) -> int:
    take_line(options)
    streams = Streams(
        pty=wants_pty(options, os.isatty(0) and os.isatty(1)), input=True, output=False,
        # A shell prints its prompt to stderr: only a command has it redirected.
        stderr=bool(options.operands),
    )  # fmt: skip
    params, asked = _where(options)
    sock = connection(options)
    try:
        find_sandbox(sock, params)
        if asked is not None:
            params["sandbox"] = _create(sock, asked)
        try:
            if not (options.has("--quiet") or options.operands):
                say(_note(sock, params["sandbox"], asked))
            return _shell(sock, options, params, streams)
        finally:
            if asked is not None:
                _destroy(options, params["sandbox"])
    finally:
        sock.close()


def _where(options: Options) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What `execute` is asked, and what `sandbox/create` is; None: it exists already."""
    if options.has("--sandbox"):
        return in_sandbox(options), None
    asked = policy(options, os.environ)
    say_unprotected(options, asked)
    asked["manifest"].setdefault("env", []).append(["SANDBOXD", "1"])
    cwd = asked.pop("cwd", None)
    return ({} if cwd is None else {"cwd": cwd}), asked


def _shell(sock: socket, options: Options, params: dict[str, Any], streams: Streams) -> int:
    argv = options.operands or _shells(os.environ)
    params = streaming(params, argv, streams)
    denials = LiveDenials(options, claims=True)
    live = None if options.has("--quiet") else lambda: denials
    try:
        result = attempt(sock, params, streams, keys_kill=False, live=live)
    except Left as left:
        return left.ended()
    return report(result, options, denials.told.values())


def _shells(caller: Mapping[str, str]) -> list[str]:
    wanted = [caller.get("SHELL") or "bash", "bash", "sh"]
    return ["/bin/sh", "-c", _SCRIPT, "sh", caller.get("TERM", "dumb"), *dict.fromkeys(wanted)]


def _create(sock: socket, asked: dict[str, Any]) -> str:
    made = handshake.ask(sock, "sandbox/create", {**asked, "idle_secs": IDLE_S})
    return str(made["sandbox"])


def _destroy(options: Options, sandbox: str) -> None:
    """On a connection of its own: on the other one answers may still be on their way."""
    with suppress(SandboxdError):  # it has ended by itself, or the daemon has
        sock = transport.connect(socket_path(options))
        try:
            handshake.ask(sock, "sandbox/destroy", {"sandbox": sandbox})
        finally:
            sock.close()


def _note(sock: socket, sandbox: str, asked: dict[str, Any] | None) -> str:
    if asked is None:
        return f"in sandbox {sandbox}, which stays when you leave (Ctrl-D or exit)"
    plan = handshake.ask(sock, "manifest/check", asked)["plan"]
    return f"in a sandbox: {_writable(plan)}, {_network(plan['network'])}; Ctrl-D or exit leaves it"


def _writable(plan: dict[str, Any]) -> str:
    caches = caches_root()
    writable = plan.get("fs_write_allow") or []
    paths = [quote(path) for path in writable if not path.startswith(caches)]
    shown = " ".join(paths[:_PATHS_SHOWN]) or "nothing of yours"
    more = len(paths) - _PATHS_SHOWN
    return f"writable: {shown}" + (f" and {more} more" if more > 0 else "")


def _network(rule: dict[str, Any]) -> str:
    if rule.get("kind") == "allow_hosts":
        return f"network: {' '.join(rule.get('hosts') or ['none'])}"
    return {"deny": "no network", "inherit": "network: all"}.get(str(rule.get("kind")), "")
