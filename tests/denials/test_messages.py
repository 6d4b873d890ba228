"""Messages of many programs, in their own wording: what is ours is found, what is not is left."""

from __future__ import annotations

import pytest
from denials.messages import NETWORK, NOT_OURS, OURS, READ, WRITE
from denials.settings import WS, denials, host, setting
from msgspec.structs import replace

from sandboxd.denials import RunEvidence
from sandboxd.denials.context import HostFile
from sandboxd.policy.mounts.mount_plan import Mount, MountKind, MountPlan
from sandboxd.policy.plan import Limits, NetworkRule, Protected
from sandboxd_proto.manifest import SyscallPolicy

NOTES = "/h/u/notes.txt"
PYTHON_BIND = "    self.socket.bind(address)\nPermissionError: [Errno 13] Permission denied"


@pytest.mark.parametrize(("text", "kind", "target"), OURS)
def test_a_message_that_the_plan_explains_is_a_denial(
    text: str, kind: str, target: str | None
) -> None:
    found = denials(setting(), text + "\n")
    assert [(d.kind, d.target) for d in found] == [(kind, target)]


@pytest.mark.parametrize("text", NOT_OURS)
def test_a_message_that_the_plan_does_not_explain_is_left_alone(text: str) -> None:
    assert denials(setting(), text + "\n") == []


@pytest.mark.parametrize(("text", "kind"), [(t, k) for t, k, _ in OURS if k == NETWORK])
def test_network_messages_mean_nothing_where_the_network_is_allowed(text: str, kind: str) -> None:
    assert denials(setting(network=NetworkRule("inherit")), text) == []


def test_an_allowed_host_that_does_not_answer_is_not_a_denial() -> None:
    rule = NetworkRule("allow_hosts", ("example.org",))
    text = "curl: (6) Could not resolve host: {}\n"
    assert denials(setting(network=rule), text.format("example.org")) == []
    (other,) = denials(setting(network=rule), text.format("example.com"))
    assert other.remedy == {
        "network": {"kind": "allow_hosts", "hosts": ["example.org", "example.com"]}
    }


def test_localhost_is_a_denial_only_for_a_service_of_the_host() -> None:
    text = "curl: (7) Failed to connect to localhost port 8080 after 0 ms: Couldn't connect\n"
    assert denials(setting(view=host(ports=[9090])), text) == []
    (found,) = denials(setting(view=host(ports=[8080])), text)
    assert (found.kind, found.target) == ("network", "localhost")


def test_a_pid_of_the_host_is_told_from_one_that_is_nowhere() -> None:
    where = setting(view=host(pids=[4242]))
    (found,) = denials(where, "bash: line 1: kill: (4242) - No such process\n")
    assert (found.kind, found.target, found.remedy) == ("process", "4242", None)
    assert denials(where, "bash: line 1: kill: (4243) - No such process\n") == []
    (seen,) = denials(where, "cat: /proc/4242/cmdline: No such file or directory\n")
    assert seen.kind == "process"


@pytest.mark.parametrize(
    ("script", "text", "kind"),
    [
        ("ln -sf {} nt; cat nt", "cat: nt: No such file or directory", READ),
        ("ln -s {} nt; python3 -c 'open(\"nt\")'", "FileNotFoundError: [Errno 2] No such file or "
         "directory: 'nt'", READ),
        ("cp -a link nt; cat nt", "cat: nt: No such file or directory", READ),
        ("ln -s {} x; mv x nt; head -1 nt", "head: cannot open 'nt' for reading: No such file or "
         "directory", READ),
        ("ln -sf {} nt; echo x > nt", "sh: 1: cannot create nt: Read-only file system", WRITE),
        ("ln -sf {} nt; echo x | tee nt", "tee: nt: Read-only file system", WRITE),
        ("ln -sf {} nt; echo x > nt", "sh: 1: cannot create nt: Directory nonexistent", WRITE),
        ("ln -s {} nt; python3 -c 'open(\"nt\", \"w\")'", "FileNotFoundError: [Errno 2] No such "
         "file or directory: 'nt'", WRITE),
    ],
)  # fmt: skip
def test_what_a_link_leads_to_is_not_written_by_the_program_that_made_it(
    script: str, text: str, kind: str
) -> None:
    there = host(more={f"{WS}/nt": HostFile("")})
    there = replace(there, canonical=lambda path: path.replace(f"{WS}/nt", NOTES))
    (found,) = denials(setting("sh", "-c", script.format(NOTES), view=there), f"{text}\n")
    assert (found.kind, found.target) == (kind, NOTES)
    field = "fs_read_allow" if kind == READ else "fs_write_allow"
    assert found.remedy == {field: [NOTES]}


def test_eacces_is_ours_only_with_landlock_and_only_where_the_host_would_allow() -> None:
    text = "touch: cannot touch '/w/out/x': Permission denied\n"
    assert denials(setting(), text) == []
    (found,) = denials(setting(landlock=True), text)
    assert (found.kind, found.layer) == ("filesystem_write", "landlock")
    assert denials(setting(landlock=True, view=host(mine=("/h",))), text) == []


def test_a_hard_link_between_two_folders_is_answered_with_a_copy_and_no_flag() -> None:
    for text in (
        "ln: failed to create hard link 'f' => '/w/out/old.txt': Invalid cross-device link\n",
        "Error: EXDEV: cross-device link not permitted, rename '/w/out/old.txt' -> 'f'\n",
        "OSError: [Errno 18] Invalid cross-device link: 'f' -> '/w/out/old.txt'\n",
    ):
        (found,) = denials(setting(), text)
        assert (found.kind, found.operation, found.remedy) == ("filesystem_write", "link", None)
        assert "Copy the file" in found.message
        assert denials(setting(), text.replace("/w/out/old.txt", "/w/ws/src")) == []


@pytest.mark.parametrize(
    "argv",
    [("git", "-C", "lib", "config", "a.b", "c"), ("sh", "-c", "cd lib && git config a.b c")],
)
def test_a_relative_name_is_one_in_the_folder_that_the_command_goes_to(
    argv: tuple[str, ...],
) -> None:
    where = setting(*argv)
    spec = where.plan.sandbox
    inner = Protected(f"{WS}/lib/.git/config", WS, present=True)
    plan = replace(where.plan, sandbox=replace(spec, protected=(*spec.protected, inner)))
    text = "error: could not write config file .git/config: Device or resource busy\n"
    (found,) = denials(replace(where, plan=plan), text)
    assert found.target == inner.path
    assert found.operation == "rename", "what is busy was to be replaced: a grant would not help"


def test_a_message_about_that_folder_itself_is_not_about_one_in_it() -> None:
    view = host(modes=("/w/ws/no",))
    where = setting("make", "-C", "src", view=view, host_root=True)
    (found,) = denials(where, "make: *** src: Permission denied.  Stop.\n")
    assert found.target == f"{WS}/src"


@pytest.mark.parametrize(
    ("argv", "name", "text"),
    [
        (("rm", "-rf", "src"), "src", "rm: cannot remove 'src': Permission denied"),
        (("sed", "-i", "s/a/b/", "t5"), "t5", "sed: can't read t5: Permission denied"),
        (("perl", "-pi", "-e", "s/a/b/", "t5"), "t5", "Can't open t5: Permission denied."),
        (("gzip", "t5"), "t5", "gzip: t5: Permission denied"),
    ],
)
def test_what_is_replaced_or_removed_has_to_be_readable(
    argv: tuple[str, ...], name: str, text: str
) -> None:
    """The bits of its folder, which is the user's own, let the entry change."""
    closed = f"{WS}/{name}"
    view = replace(
        host(more={f"{WS}/t5": HostFile("")}),
        barrier=lambda path, access, top: path if path == closed else None,
    )
    (found,) = denials(setting(*argv, view=view, host_root=True), f"{text}\n")
    assert (found.kind, found.target) == (READ, closed)
    assert "its permission bits keep root out" in found.message
    assert denials(setting(*argv, view=view), f"{text}\n") == []


def test_eperm_of_a_system_call_needs_a_loaded_filter() -> None:
    text = "strace: ptrace(PTRACE_SEIZE, 12): Operation not permitted\n"
    assert denials(setting(), text) == []
    (found,) = denials(setting(filter_loaded=True, syscall_policy="baseline"), text)
    assert (found.kind, found.target, found.layer) == ("syscall", "ptrace", "seccomp")


@pytest.mark.parametrize("policy", ["baseline", "inherit"])
@pytest.mark.parametrize(
    "text",
    [
        "strace: attach: ptrace(PTRACE_SEIZE, 12): Operation not permitted\n",
        "ptrace: Operation not permitted.\n",
        "==2==LeakSanitizer has encountered a fatal error.\n",
        "keyctl_search: Operation not permitted\n",
        "io_uring_setup: Operation not permitted\n",
    ],
)
def test_a_call_that_every_filter_refuses_is_said_to_be(policy: SyscallPolicy, text: str) -> None:
    (found,) = denials(setting(filter_loaded=True, syscall_policy=policy), text)
    assert "is forbidden in every sandbox" in found.message
    assert "weaker filter" not in found.message
    assert policy not in found.message
    assert found.remedy is None


def test_a_weaker_filter_is_not_proposed_by_the_word_of_the_command() -> None:
    text = "perf_event_open: Operation not permitted\n"
    (found,) = denials(setting(filter_loaded=True, syscall_policy="baseline"), text)
    assert found.remedy is None
    assert "weaker filter" in found.message


def test_a_leak_check_that_cannot_trace_is_told_with_the_way_round() -> None:
    text = "==2==LeakSanitizer has encountered a fatal error.\n"
    assert denials(setting(), text) == []
    (found,) = denials(setting(filter_loaded=True, syscall_policy="baseline"), text)
    assert (found.kind, found.target) == ("syscall", "ptrace")
    assert "ASAN_OPTIONS=detect_leaks=0" in found.message


@pytest.mark.parametrize(
    ("line", "text", "target"),
    [
        ("node s.js", "Error: listen EACCES: permission denied 0.0.0.0:80", "port 80"),
        ("node s.js", "Error: listen EACCES: permission denied :::443", "port 443"),
        ("./server", "panic: listen tcp :81: bind: permission denied", "port 81"),
        ("nginx", "nginx: [emerg] bind() to 0.0.0.0:80 failed (13: Permission denied)", "port 80"),
        ("php -S :80", "Failed to listen on localhost:80 (reason: Permission denied)", "port 80"),
        ("nc -l 80", "nc: Permission denied", "port 80"),
        ("python3 -m http.server 80", PYTHON_BIND, "port 80"),
        ("python3 app.py", PYTHON_BIND, None),
        ("python3 -c s.bind((0,22))", "PermissionError: [Errno 13] Permission denied", "port 22"),
    ],
)
def test_a_port_below_1024_is_told_with_the_way_round(
    line: str, text: str, target: str | None
) -> None:
    (found,) = denials(setting(*line.split()), text + "\n")
    assert (found.kind, found.operation, found.target) == ("process", "listen", target)
    assert "Take a higher one" in found.message


def test_a_socket_file_and_a_higher_port_are_not_ports_below_1024() -> None:
    for text in ("listen EACCES: permission denied /run/x.sock", "listen EACCES: x 0.0.0.0:8080"):
        assert denials(setting("node", "s.js", "80"), f"Error: {text}\n") == []


def test_a_name_that_holds_a_word_of_a_failed_test_is_a_name() -> None:
    for name in ("expected.txt", "assert", "expected"):
        (found,) = denials(setting(), f"cp: cannot create '/w/out/{name}': Read-only file system\n")
        assert found.target == f"/w/out/{name}"
    for line in (
        "AssertionError: '/w/out/x: Read-only file system' != ''",
        "- /w/out/x: Read-only file system",
        "expected '/w/out/x: Read-only file system'",
    ):
        assert denials(setting(), line + "\n") == []


def test_a_child_that_died_of_a_filtered_call_is_told_from_a_sentence_about_it() -> None:
    where = setting(filter_loaded=True)
    for text in ("bash: line 1:     3 Bad system call         ./x", "signal: bad system call"):
        assert [d.kind for d in denials(where, text)] == ["syscall"]
    assert denials(where, "lint: a Bad system call is answered by the filter") == []


def test_calls_that_need_root_are_ours_only_for_root() -> None:
    text = "chroot: cannot change root directory to '/x': Operation not permitted\n"
    assert denials(setting(filter_loaded=True), text) == []
    assert [d.kind for d in denials(setting(filter_loaded=True, host_root=True), text)] == [
        "syscall"
    ]


@pytest.mark.parametrize(
    ("limits", "text", "kind"),
    [
        (Limits(memory_bytes=1 << 20), "MemoryError", "memory"),
        (Limits(memory_bytes=1 << 20), "failed; error='Not enough space' (errno=12)", "memory"),
        (Limits(memory_bytes=1 << 20), "fatal error: runtime: out of memory", "memory"),
        (Limits(memory_bytes=1 << 20), "memory allocation of 99 bytes failed", "memory"),
        (Limits(memory_bytes=1 << 20), "terminate called: std::bad_alloc", "memory"),
        (Limits(processes=9), "bash: fork: retry: Resource temporarily unavailable", "processes"),
        (Limits(processes=9), "RuntimeError: can't start new thread", "processes"),
        (Limits(cpu_s=1), "bash: line 1: 3 CPU time limit exceeded ./x", "cpu"),
        (Limits(file_bytes=9), "OSError: [Errno 27] File too large", "file_size"),
    ],
)
def test_a_limit_is_believed_from_text_only_when_it_was_set(
    limits: Limits, text: str, kind: str
) -> None:
    assert denials(setting(), text) == []
    (found,) = denials(setting(limits=limits), text)
    assert (found.kind, found.confidence, found.evidence) == (kind, "medium", "text")


def test_a_sentence_on_stdout_is_data_and_an_error_line_is_not() -> None:
    prose = "The touch: cannot touch '/w/out/x' message Read-only file system means that\n"
    assert denials(setting(), stdout=prose, facts=RunEvidence(exit_code=0)) == []
    line = "touch: cannot touch '/w/out/x': Read-only file system\n"
    assert denials(setting(), stdout=line, facts=RunEvidence(exit_code=0)) == []
    (alone,) = denials(setting(), stdout=line)
    assert (alone.confidence, alone.remedy) == ("low", None)
    (merged,) = denials(setting("sh", "-c", "make 2>&1 | tail"), stdout=line)
    assert merged.confidence == "medium"


MACOS = [
    ("touch: /w/out/x: Operation not permitted", WRITE, "/w/out/x"),
    ("Sandbox: bash(12) deny(1) file-write-create /w/out/x", WRITE, "/w/out/x"),
    ("cat: /h/u/notes.txt: Operation not permitted", READ, "/h/u/notes.txt"),
]


@pytest.mark.parametrize(("text", "kind", "target"), MACOS)
def test_macos_refuses_with_eperm(text: str, kind: str, target: str) -> None:
    (found,) = denials(setting(platform="darwin"), text)
    assert (found.kind, found.target) == (kind, target)
    assert denials(setting(), text) == []


@pytest.mark.parametrize(
    "text",
    [
        "OSError: [WinError 10013] An attempt was made to access a socket in a way forbidden by "
        "its access permissions: connect to example.org port 443",
        "The remote name could not be resolved: https://example.org/",
    ],
)
def test_windows_wording_of_a_refused_connection(text: str) -> None:
    (found,) = denials(setting(platform="win32"), text)
    assert (found.kind, found.target) == ("network", "example.org")


@pytest.mark.parametrize("flags", [(), ("-q",)])
def test_what_a_command_line_writes_is_missing_for_writing(flags: tuple[str, ...]) -> None:
    """`git push` prints the words of a missing folder, about a remote that it is to write."""
    text = "fatal: '/h/u/lib' does not appear to be a git repository\n"
    text += "fatal: Could not read from remote repository.\n"
    (pushed,) = denials(setting("git", "push", *flags, "/h/u/lib", "main"), text)
    assert (pushed.kind, pushed.target) == ("filesystem_write", "/h/u/lib")
    (fetched,) = denials(setting("git", "fetch", *flags, "/h/u/lib", "main"), text)
    assert (fetched.kind, fetched.target) == ("filesystem_read", "/h/u/lib")


@pytest.mark.parametrize("mounts", [True, False])
def test_folders_that_are_made_on_the_way_are_granted_where_one_exists(mounts: bool) -> None:
    reason = "ENOENT: no such file or directory" if mounts else "EACCES: permission denied"
    text = f"Error: {reason}, mkdir '/w/out/new/d'\n"
    (found,) = denials(setting("node", "x.js", mounts=mounts, landlock=not mounts), text)
    assert found.remedy == {"fs_write_allow": ["/w/out"]}
    assert "make it first" not in found.message
    assert found.layer == ("mount" if mounts else "landlock")


@pytest.mark.parametrize(
    ("argv", "temporary"),
    [
        (("sed", "-i", "s/a/b/", ".git/config"), ".git/sedNSWZ6u"),
        (("sed", "-i", "s/a/b/", f"{WS}/.git/config"), f"{WS}/.git/sedNSWZ6u"),
        (("sh", "-c", "cd .git && sed -i s/a/b/ ./config"), "./sedNSWZ6u"),
    ],
)
def test_a_temporary_name_of_sed_stands_for_the_file_that_it_replaces(
    argv: tuple[str, ...], temporary: str
) -> None:
    text = f"sed: cannot rename {temporary}: Device or resource busy\n"
    (found,) = denials(setting(*argv), text)
    assert (found.kind, found.target) == ("protected_path", f"{WS}/.git/config")
    assert denials(setting("sed", "-i", "s/a/b/", "other/config"), text) == []


def test_where_there_are_no_mounts_dev_shm_is_said_to_be_missing() -> None:
    view = host(mine=("/dev/shm",), more={"/dev/shm/other": HostFile("")})
    where = setting("make", mounts=False, landlock=True, view=view)
    hidden = Mount("/dev/shm", MountKind.HIDDEN)
    where = replace(where, layout=MountPlan([*where.layout.places, hidden]))
    text = "PermissionError: [Errno 13] Permission denied: '/dev/shm/sem.XNT0Qp'\n"
    (found,) = denials(where, text)
    assert "this backend has no /dev/shm" in found.message
    assert found.remedy is None
    stack = (
        "    sl = self._semlock = _multiprocessing.SemLock(\n"
        "                         ^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "PermissionError: [Errno 13] Permission denied\n"
    )
    (unnamed,) = denials(where, stack)
    assert (unnamed.target, unnamed.remedy) == ("/dev/shm", None)
    assert "this backend has no /dev/shm" in unnamed.message
    assert denials(setting("make"), stack) == []
