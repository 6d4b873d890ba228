"""`sandboxctl status`: which daemon this is, what it enforces with, and what runs."""

from __future__ import annotations

import os
from textwrap import wrap

import msgspec

from sandboxd_client.autostart import nobody_there, open_connection
from sandboxd_client.cli.connect import named_socket, print_json, socket_path
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import REFUSED
from sandboxd_client.client import Client
from sandboxd_client.errors import DaemonNotRunning
from sandboxd_client.ignored_variables import unshared_variables
from sandboxd_proto.messages.server import StatusResult

_WIDTH = 80


def main(options: Options) -> int:
    heard: list[str] = []
    path = socket_path(options)
    try:
        open_connection(path, client="sandboxctl", may_start=False, note=heard.append).close()
        with Client(path, autostart=False) as client:
            status = with_warnings(client, heard)
    except DaemonNotRunning as error:
        if options.has("--json") or not nobody_there(error):
            raise
        print(_without_daemon(path, named_socket(options) is not None), end="")
        return REFUSED
    if options.has("--json"):
        print_json(status)
    else:
        print(text(status, path), end="")
    return 0


def _without_daemon(path: str, is_named: bool) -> str:
    log = path.removesuffix(".sock") + ".log"
    usual = "leave --socket and SANDBOXD_SOCKET out for the usual one"
    rows = [
        ("daemon", f"none listens on this socket; {usual}" if is_named else _start()),
        ("socket", path),
        *([("old log", log)] if os.path.exists(log) else []),
    ]
    return "".join(_row(name, value) for name, value in rows)


def _start() -> str:
    """Whether the next command can start one."""
    from sandboxd_client import start_daemon

    try:
        start_daemon.check_start()
    except DaemonNotRunning as error:
        return f"none runs, and {error.message.removeprefix('no daemon runs, and ')}"
    return "none runs; it starts by itself with the next command: sandboxctl run"


def with_warnings(client: Client, heard: list[str]) -> StatusResult:
    """`heard`: while connecting; some of it is in the status, too."""
    status, texts = client.status(), [line.removeprefix("warning: ") for line in heard]
    texts += unshared_variables(os.environ, client.initialize("sandboxctl").environment)
    return msgspec.structs.replace(status, warnings=list(dict.fromkeys(status.warnings + texts)))


def _backend(status: StatusResult) -> str:
    pinned = status.backend_setting != "auto"
    if status.backend is not None:
        return f"{status.backend}, which the settings name" if pinned else status.backend
    what = f"{status.backend_setting} does not work" if pinned else "none works"
    return f"{what}: every command is refused (sandboxctl doctor)"


def text(status: StatusResult, path: str) -> str:
    clients = counted(status.clients, "client")
    rows = [
        ("daemon", f"sandboxd {status.version}, pid {status.pid}, up {age(status.uptime_ms)}"),
        ("socket", path),
        *([("log", status.log)] if status.log else []),
        ("backend", _backend(status)),
        ("running", f"{counted(status.executions, 'command')}, {clients}"),
        ("sandboxes", f"{status.sandboxes.warm} warm, {status.sandboxes.persistent} persistent"),
        ("kernel", f"Landlock ABI {status.landlock_abi}, cgroup v{status.cgroup_version}"),
    ]
    rows += [("layers", ", ".join(b.layers)) for b in status.backends if b.name == status.backend]
    rows += [("warning", warning) for warning in status.warnings]
    return "".join(_row(name, value) for name, value in rows)


def _row(name: str, value: str) -> str:
    """Within 80 columns; a path or a word that is longer stays whole."""
    lines = wrap(value, _WIDTH - 11, break_long_words=False, break_on_hyphens=False) or [""]
    return f"{name:<10} {lines[0]}\n" + "".join(f"{'':<10} {line}\n" for line in lines[1:])


def counted(number: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("x") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"


def age(milliseconds: float) -> str:
    seconds = int(milliseconds / 1000)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
