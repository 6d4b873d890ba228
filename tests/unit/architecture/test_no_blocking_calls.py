"""No call that can block on something others control runs on the event loop: a look at the source.

An open can wait for ever: a FIFO for its other end, a leased file for its holder, a device for its
driver. Every call of a kind that can wait is listed here, with the reason why it does not, or why
it may. A new one fails this test, and its author has to think about it:
`sandboxd.platform.regular_file` reads files that others control, and
`sandboxd.concurrency.bounded_thread` waits for what may hang.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "sandboxd"

# An open with one of these never waits. O_EXCL: the file is new. O_DIRECTORY and O_PATH: nothing
# that could wait is opened.
_HARMLESS_FLAGS = (
    "O_NONBLOCK", "O_PATH", "O_DIRECTORY", "O_EXCL", "QUIETLY",
    "LIST_FOLDER", "OPEN_FOLDER", "PATH_ONLY",
)  # fmt: skip
_PLAIN_OPENS = {"open", "io.open", "tarfile.open", "codecs.open"}
_METHODS = {"read_text", "read_bytes", "write_text", "write_bytes"}
_WAITING = {
    "os.system", "os.popen", "time.sleep", "os.waitpid", "os.wait", "input",
    "socket.create_connection", "socket.getaddrinfo", "socket.gethostbyname",
    "shutil.copyfile", "shutil.copy", "shutil.copytree", "shutil.move", "shutil.rmtree",
    "ctypes.util.find_library", "tempfile.TemporaryDirectory", "os.walk",
}  # fmt: skip

# (file, function) → why it cannot wait for something that others control.
KERNEL = "a file of the kernel's in /proc or /sys"
OWN = "a file of the daemon's own, in a folder that is closed to others"
SYSTEM = "a system file: only root can put something else there"
START = "before the event loop runs"
THREAD = "in a worker thread, for a bounded time"
ALLOWED: dict[tuple[str, str], str] = {
    ("backends/sandbox_exec/log_reader.py", "reading"): "starts a program of the system",
    ("macos/lifeline.py", "_start"): "starts the daemon's own interpreter",
    ("macos/lifeline.py", "end_all"): "in the lifeline's own process",
    ("audit/files.py", "lines_of"): THREAD,
    ("workspace_guard/watch/absent_paths.py", "sweep"): THREAD,
    ("audit/files.py", "last_line"): START,
    ("audit/files.py", "torn_bytes"): START,
    ("audit/recovery.py", "_move_torn"): START,
    ("audit/recovery.py", "_since_last_start"): START,
    ("audit/trail.py", "_open"): OWN,
    ("audit/trail.py", "open_trail"): START,
    ("rpc/approver_token.py", "approver_token"): START,
    ("platform/posix/system.py", "people"): SYSTEM,
    ("platform/posix/system.py", "listens"): KERNEL,
    ("platform/posix/system.py", "listens_at"): KERNEL,
    ("platform/terminal_jobs.py", "_ignores"): KERNEL,
    ("platform/windows/files.py", "lock"): THREAD,
    ("backends/appcontainer/attempt.py", "attempt"): OWN,
    ("backends/appcontainer/attempt.py", "_file"): OWN,
    ("backends/appcontainer/backend.py", "_open"): THREAD,
    ("backends/opensandbox/remote_init/sandbox.py", "_program"): OWN,
    ("backends/opensandbox/copies/applying.py", "__exit__"): THREAD,
    ("backends/opensandbox/copies/packing.py", "pack"): THREAD,
    ("backends/unsandboxed/windows.py", "_open"): THREAD,
    ("windows/access_lists/journal.py", "_rewrite"): THREAD,
    ("windows/access_lists/journal.py", "read"): THREAD,
    ("linux/cgroup/v1.py", "find"): KERNEL,
    ("linux/init_client/rlimits.py", "present_tasks"): KERNEL,
    ("supervisor/approvals/grants.py", "_load"): OWN,
    ("supervisor/approvals/grants.py", "change"): THREAD,
    ("supervisor/budgets/day.py", "_read"): THREAD,
    ("supervisor/budgets/day.py", "_write"): THREAD,
    ("supervisor/budgets/day.py", "_locked"): THREAD,
    ("supervisor/sessions/store.py", "_read"): START,
    ("supervisor/sessions/store.py", "_write"): THREAD,
    ("backends/bubblewrap/diagnosis.py", "_status"): KERNEL,
    ("backends/bubblewrap/diagnosis.py", "_sysctl"): KERNEL,
    ("backends/docker/with_init/counters.py", "_at"): KERNEL,
    ("backends/docker/with_init/handshake.py", "cgroups_of"): KERNEL,
    ("backends/docker/with_init/handshake.py", "close"): OWN,
    ("backends/docker/mountpoints.py", "_place"): OWN,
    ("backends/owner_identity.py", "supervisor_identity"): SYSTEM,
    ("backends/docker/attach/bundle.py", "_tar"): "in memory",
    ("backends/docker/attach/bundle.py", "pack"): OWN,
    ("backends/docker/with_init/netns.py", "_ready"): OWN,
    ("backends/docker/with_init/netns.py", "_root"): KERNEL,
    ("linux/mountinfo.py", "read_mountinfo"): KERNEL,
    ("backends/docker/with_init/sandbox.py", "__init__"): START,
    ("workspace_guard/repositories/stale_lock.py", "_is_git_in"): KERNEL,
    ("workspace_guard/repositories/stale_lock.py", "_is_git_of"): KERNEL,
    ("config/loading.py", "_from_file"): START,
    ("denials/text/translations.py", "_catalog"): SYSTEM,
    ("egress/dns/resolver.py", "_looked_up"): THREAD,
    ("linux/cgroup/tree.py", "find"): KERNEL,
    ("linux/cgroup/tree.py", "read"): KERNEL,
    ("linux/cgroup/tree.py", "write"): KERNEL,
    ("linux/cgroup/tree.py", "open_entrance"): KERNEL,
    ("linux/host_mounts.py", "__init__"): KERNEL,
    ("linux/folder_notices.py", "__init__"): KERNEL,
    ("linux/rootfs/curated_etc.py", "_copy"): SYSTEM,
    ("linux/rootfs/curated_etc.py", "_files_in_folders"): SYSTEM,
    ("linux/rootfs/curated_etc.py", "_nsswitch"): SYSTEM,
    ("linux/rootfs/curated_etc.py", "_write"): OWN,
    ("linux/rootfs/curated_etc.py", "names"): OWN,
    ("linux/init_client/binary.py", "load"): START,
    ("linux/netns/sockets.py", "_namespaces_below"): KERNEL,
    ("linux/netns/sockets.py", "_only_child"): KERNEL,
    ("linux/removal.py", "_mount"): KERNEL,
    ("linux/spawn.py", "poll"): "WNOHANG",
    ("rpc/transport/unix_listener.py", "_lock"): START,
    ("rpc/peer_auth/linux.py", "_parent"): KERNEL,
    ("supervisor/host_facts.py", "cgroup_version"): KERNEL,
}


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """(function that it is in, call)."""

    def visit(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call):
            yield function, node
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function)

    yield from visit(tree, "<module>")


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def flags_of(call: ast.Call, tree: ast.Module) -> str:
    """The source of the flags; of a name, what the module assigns to that name anywhere."""
    if len(call.args) < 2:
        return ""
    text = ast.unparse(call.args[1])
    names = {node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id in names:
                    text += " " + ast.unparse(node.value)
    return text


def can_wait(call: ast.Call, tree: ast.Module) -> bool:
    name = name_of(call.func)
    if name == "os.open":
        if call.args and ast.unparse(call.args[0]) == "os.devnull":
            return False
        flags = flags_of(call, tree)
        return not any(flag in flags for flag in _HARMLESS_FLAGS)
    method = isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS
    return name in _PLAIN_OPENS or name in _WAITING or method or name.startswith("subprocess.")


@cache
def found() -> dict[tuple[str, str], list[str]]:
    places: dict[tuple[str, str], list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for function, call in calls(tree):
            if can_wait(call, tree):
                place = (str(path.relative_to(SOURCE)), function)
                places.setdefault(place, []).append(f"{call.lineno}: {ast.unparse(call)[:80]}")
    return places


def test_no_call_can_wait_for_what_others_control() -> None:
    new = {place: what for place, what in found().items() if place not in ALLOWED}
    assert not new, "\n".join(f"{file} {name} {what}" for (file, name), what in new.items())


def test_the_list_has_no_more_than_there_is() -> None:
    assert set(ALLOWED) <= set(found())


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("open(path)", True),
        ("os.open(path, os.O_RDONLY)", True),
        ("os.open(path, os.O_RDONLY | os.O_NONBLOCK)", False),
        ("os.open(path, FLAGS)", False),
        ("os.open(path, OTHER)", True),
        ("Path(path).read_text()", True),
        ("subprocess.run(['x'])", True),
        ("time.sleep(1)", True),
        ("anyio.sleep(1)", False),
        ("backend.open(spec)", False),
    ],
)
def test_what_counts(line: str, waits: bool) -> None:
    tree = ast.parse(f"FLAGS = os.O_PATH\nOTHER = os.O_WRONLY\n{line}")
    call = tree.body[-1].value  # type: ignore[attr-defined]
    assert can_wait(call, tree) is waits
