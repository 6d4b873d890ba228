"""`sandboxctl status`: which daemon this is, what it enforces with, what runs."""

from __future__ import annotations

from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.session import connect, print_json, socket_path
from sandboxd_proto.messages.server import StatusResult


def main(options: Options) -> int:
    with connect(options, may_start=True) as client:
        status = client.status()
    if options.has("--json"):
        print_json(status)
    else:
        print(text(status, socket_path(options)), end="")
    return 0


def text(status: StatusResult, path: str) -> str:
    rows = [
        ("daemon", f"sandboxd {status.version}, pid {status.pid}, up {age(status.uptime_ms)}"),
        ("socket", path),
        ("backend", status.backend or "none works: every command is refused (sandboxctl doctor)"),
        ("running", f"{status.executions} commands, {status.clients} clients"),
        ("sandboxes", f"{status.sandboxes.warm} warm, {status.sandboxes.persistent} persistent"),
        ("kernel", f"Landlock ABI {status.landlock_abi}, cgroup v{status.cgroup_version}"),
    ]
    rows += [("layers", ", ".join(b.layers)) for b in status.backends if b.name == status.backend]
    rows += [("warning", warning) for warning in status.warnings]
    return "".join(f"{name:<10} {value}\n" for name, value in rows)


def age(milliseconds: float) -> str:
    seconds = int(milliseconds / 1000)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
