"""Which conformance tests run over the fake OpenSandbox server, and why the others are listed.

What is listed is what the backend does not claim (docs/opensandbox.md), or what a server holds: the
fake one holds nothing.
"""

from __future__ import annotations

LINES = "execd's output is by lines: the last one gets a line end"
SIGNALS = "execd does not name the signal that ended a command"
SERVER = "the server's part, which the fake one does not hold"
STDIN = "execd has no stdin; that it is refused by name is in tests/opensandbox"
PROGRAM = "the fake sandbox starts programs through bwrap, which tells another error"
COPY = "a copy of what may only be read can be written; the folder of this machine stays"
NOT_RUN = {
    "test_signal_is_exact": SIGNALS,
    "test_a_signal_without_a_filter": SIGNALS,
    "test_the_result_names_the_backend_and_what_it_cost": "execd reports no usage",
    "test_many_connections_do_not_mix": STDIN,
    "test_a_missing_program": PROGRAM,
    "test_a_failed_start": PROGRAM,
    "test_what_cannot_be_executed": PROGRAM,
    "test_what_is_readable_is_read": LINES,
    "test_what_is_only_readable_is_not_written": COPY,
    "test_a_denied_file_in_an_allowed_folder": LINES,
    "test_what_is_allowed_in_a_denied_folder": LINES,
    "test_many_paths_are_no_problem": LINES,
    "test_it_starts_where_it_is_told_to": LINES,
    "test_the_callers_spelling_works_inside": LINES,
    "test_a_symlinked_workspace_works": LINES,
    "test_read_only_writes_nothing": LINES,
    "test_denied_a_command_can_still_talk_to_itself": SERVER,
}
# Files that are about what it refuses or what the server holds, and those about other backends.
FILES = {
    "test_base": SERVER, "test_limits": SERVER, "test_syscalls": SERVER, "test_output": LINES,
    "test_input": STDIN, "test_pty": "execd has no terminals",
    "test_environment": "the image's own variables are there besides",
    "test_enforcement": "it asks for everything at once, and network policies are refused",
    "test_endings": "a lock in the workspace tells who lives, and the workspace is a copy there",
    "test_faulty_backends": "the faulty backends impersonate bubblewrap",
}  # fmt: skip


def why_not(nodeid: str) -> str | None:
    """Why a test is not run; None when it is."""
    path, _, name = nodeid.partition("::")
    whole = FILES.get(path.rpartition("/")[2].removesuffix(".py"))
    return whole or next((why for sign, why in NOT_RUN.items() if name.startswith(sign)), None)
