"""Facts come before text: what the daemon, the kernel and the gate know decides."""

from __future__ import annotations

import pytest
from denials.settings import WS, denials, host, setting

from sandboxd.denials import ConnectAttempt, RunEvidence, StreamScanner
from sandboxd.policy.plan import Limits, NetworkRule
from sandboxd.traffic import GateRefusal

ALL_LIMITS = Limits(memory_bytes=1000, cpu_s=2, processes=5, file_bytes=100, output_bytes=10)


def test_a_timeout_wins_over_what_was_printed() -> None:
    facts = RunEvidence(outcome="timeout", signal=9, timed_out=True)
    (found,) = denials(setting(), "cannot open: Read-only file system\nMemoryError\n", facts)
    assert (found.kind, found.layer) == ("timeout", "supervisor")
    assert found.remedy == {"timeout": {"secs": 120}}


def test_a_cancelled_command_was_not_denied() -> None:
    facts = RunEvidence(outcome="cancelled", signal=9, cancelled=True)
    assert denials(setting(limits=ALL_LIMITS), "MemoryError\n", facts) == []


def test_a_failed_set_up_is_the_sandbox_s_error() -> None:
    (found,) = denials(setting(), facts=RunEvidence(exit_code=1, setup_failure="no user namespace"))
    assert (found.kind, found.layer, found.remedy) == ("sandbox_error", "engine", None)


def test_a_sandbox_that_was_lost_had_been_set_up() -> None:
    facts = RunEvidence(outcome="isolation_lost", signal=9, setup_failure="/etc/x was replaced")
    (found,) = denials(setting(), facts=facts)
    assert (found.kind, found.operation) == ("sandbox_error", "run")
    assert found.message == "/etc/x was replaced, so everything in the sandbox was ended"


@pytest.mark.parametrize(
    ("number", "kind", "remedy"),
    [
        (24, "cpu", {"max_cpu_secs": 8}),
        (25, "file_size", {"max_file_bytes": 400}),
    ],
)
def test_a_limit_s_signal_counts_only_with_that_limit(
    number: int, kind: str, remedy: dict[str, int]
) -> None:
    facts = RunEvidence(outcome="signaled", signal=number)
    assert denials(setting(), facts=facts) == []
    (found,) = denials(setting(limits=ALL_LIMITS), facts=facts)
    assert (found.kind, found.evidence, found.remedy) == (kind, "kernel", remedy)


def test_sigsys_counts_only_with_a_filter() -> None:
    facts = RunEvidence(outcome="signaled", signal=31)
    assert denials(setting(), facts=facts) == []
    (found,) = denials(setting(filter_loaded=True, syscall_policy="strict"), facts=facts)
    assert (found.kind, found.confidence) == ("syscall", "high")
    assert found.remedy == {"syscall_policy": "baseline"}
    assert denials(setting(filter_loaded=True), facts=RunEvidence(exit_code=159)) == []


def test_sigkill_at_the_cpu_limit_needs_the_time_to_have_been_used() -> None:
    where = setting(limits=Limits(cpu_s=2))
    assert denials(where, facts=RunEvidence(outcome="signaled", signal=9, cpu_s=0.1)) == []
    (found,) = denials(where, facts=RunEvidence(outcome="signaled", signal=9, cpu_s=2.9))
    assert found.kind == "cpu"


@pytest.mark.parametrize(
    ("hit", "field", "value"),
    [
        ("memory", "max_memory_bytes", 4000),
        ("cpu", "max_cpu_secs", 8),
        ("processes", "max_processes", 20),
        ("output", "max_output_bytes", 40),
    ],
)
def test_of_a_limit_that_was_hit_four_times_as_much_is_proposed(
    hit: str, field: str, value: int
) -> None:
    facts = RunEvidence(exit_code=0, limit_hit=hit)  # type: ignore[arg-type]
    (found,) = denials(setting(limits=ALL_LIMITS), facts=facts)
    assert (found.evidence, found.layer, found.remedy) == ("kernel", "limit", {field: value})


def test_the_gate_names_host_and_port() -> None:
    rule = NetworkRule("allow_hosts", ("a.example",))
    facts = RunEvidence(exit_code=0, gate_events=(GateRefusal("b.example", 8443, "not allowed"),))
    (found,) = denials(setting(network=rule), facts=facts)
    assert (found.target, found.evidence, found.layer) == ("b.example", "gate", "gate")
    assert found.remedy == {
        "network": {"kind": "allow_hosts", "hosts": ["a.example", "b.example:8443"]}
    }
    by_group = NetworkRule("allow_hosts", ("a.example", "of.config"), ("group:x",))
    (found,) = denials(setting(network=by_group), facts=facts)
    assert found.remedy == {
        "network": {"kind": "allow_hosts", "hosts": ["group:x", "b.example:8443"]}
    }


def test_what_the_gate_refused_is_told_beside_many_protected_paths_and_a_lost_sandbox() -> None:
    many = tuple((f"{WS}/{number}/.git", None) for number in range(40))
    event = (GateRefusal("b.example", 443, "not allowed"),)
    chosen = setting(network=NetworkRule("allow_hosts", ("a.example",)))
    for facts in (
        RunEvidence(exit_code=0, gate_events=event, protected=many),
        RunEvidence(outcome="isolation_lost", signal=9, setup_failure="lost", gate_events=event),
        RunEvidence(
            outcome="isolation_lost", signal=9, setup_failure="lost", gate_events=event,
            protected=many,
        ),
    ):  # fmt: skip
        assert "b.example" in [found.target for found in denials(chosen, facts=facts)]


def test_the_kernel_s_report_of_a_connection_needs_no_text() -> None:
    facts = RunEvidence(
        exit_code=0, notified=(ConnectAttempt("1.1.1.1", 80), ConnectAttempt("127.0.0.1", 99))
    )
    (found,) = denials(setting(), facts=facts)
    assert (found.target, found.evidence, found.confidence) == ("1.1.1.1", "kernel", "high")


def test_a_query_to_a_name_server_stands_for_the_host_of_the_command() -> None:
    facts = RunEvidence(exit_code=0, notified=(ConnectAttempt("10.0.0.53", 53),))
    (found,) = denials(setting("curl", "-s", "https://example.org/"), facts=facts)
    assert (found.target, found.evidence) == ("example.org", "kernel")
    # By a command that succeeded it may be about anything: its own name, a version check.
    assert denials(setting("./tool"), facts=facts) == []
    failed = RunEvidence(exit_code=1, notified=facts.notified)
    (unnamed,) = denials(setting("./tool"), facts=failed)
    assert (unnamed.target, unnamed.remedy) == (None, None)


def test_documented_exit_statuses_tell_of_a_silent_failure() -> None:
    command = ("bash", "-c", "curl -s https://example.org/ -o page")
    assert [d.target for d in denials(setting(*command), facts=RunEvidence(exit_code=6))] == [
        "example.org"
    ]
    assert denials(setting(*command), facts=RunEvidence(exit_code=22)) == []
    two = ("bash", "-c", "curl -s https://example.org/; exit 6")
    assert denials(setting(*two), facts=RunEvidence(exit_code=6)) == []


def test_a_protected_path_that_appeared_cannot_be_allowed() -> None:
    facts = RunEvidence(exit_code=0, protected=((f"{WS}/.envrc", "/state/aside/1"),))
    (found,) = denials(setting(), facts=facts)
    assert (found.kind, found.remedy) == ("protected_path", None)
    assert f"{WS}/.envrc appeared and was moved to /state/aside/1" in found.message


def test_a_protected_path_that_changed_and_is_back_is_not_said_to_have_appeared() -> None:
    facts = RunEvidence(exit_code=0, protected=((f"{WS}/.git/config", "/state/aside/1"),))
    (found,) = denials(setting(), facts=facts)
    assert "/.git/config changed and was moved to /state/aside/1: it is" in found.message
    assert found.message.endswith("; what was there before, or its harmless part, is in its place")


def test_a_protected_path_that_was_removed_is_not_said_to_have_appeared() -> None:
    facts = RunEvidence(exit_code=1, protected=((f"{WS}/.git/objects", None),))
    (found,) = denials(setting(), facts=facts)
    assert "removed, which is undone where that is possible" in found.message


def test_a_masked_operand_is_told_although_it_reads_as_empty() -> None:
    ok = RunEvidence(exit_code=0)
    (found,) = denials(setting("cat", ".env"), facts=ok)
    assert (found.kind, found.target, found.remedy) == ("filesystem_read", f"{WS}/.env", None)
    assert "masked" in found.message
    (code,) = denials(setting("python3", "-c", "open('/h/u/.ssh/id').read()"), facts=ok)
    assert code.target == "/h/u/.ssh/id"
    assert denials(setting("echo", "/h/u/.ssh/id"), facts=ok) == []


def test_a_secret_that_is_hidden_by_default_is_the_users_to_allow() -> None:
    ok, kept = RunEvidence(exit_code=0), "No change is proposed: it is a secret, or holds one"
    (found,) = denials(setting("cat", "/h/u/.ssh/id"), facts=ok)
    assert "unless it is allowed by its own name" in found.message
    assert kept in found.message
    assert found.remedy is None
    hidden = setting("cat", "/h/u/.ssh/id", withheld=("/h/u/.ssh",))
    for one in (hidden, setting("cat", ".env")):
        (found,) = denials(one, facts=ok)
        assert "from every command of this plan" in found.message


def test_a_hidden_folder_that_is_listed_is_told_although_it_looks_empty() -> None:
    ok = RunEvidence(exit_code=0)
    (found,) = denials(setting("ls", "-l", "/h"), facts=ok)
    assert (found.target, found.confidence) == ("/h", "low")
    assert "content on the host is not visible in the sandbox" in found.message
    for other in (("ls", "/tmp"), ("ls", WS), ("ls",), ("test", "-d", "/h"), ("ls", "/usr")):
        assert denials(setting(*other), facts=ok) == [], other


def test_a_hidden_operand_counts_only_when_the_command_failed() -> None:
    command = ("test", "-f", "/h/u/notes.txt")
    assert [d.target for d in denials(setting(*command))] == ["/h/u/notes.txt"]
    assert denials(setting(*command), facts=RunEvidence(exit_code=0)) == []


def test_a_silenced_write_to_a_read_only_place_cannot_have_worked() -> None:
    ok = RunEvidence(exit_code=0)
    (found,) = denials(setting("sh", "-c", "cp a /w/out/b 2>/dev/null; true"), facts=ok)
    assert (found.kind, found.target, found.confidence) == ("filesystem_write", "/w/out/b", "low")
    for harmless in ("cp a b 2>/dev/null", "mkdir -p /w/out 2>/dev/null", "ls /w/out 2>/dev/null"):
        assert denials(setting("sh", "-c", harmless), facts=ok) == []


def test_what_was_sent_while_streaming_stays_in_the_list() -> None:
    scanner = StreamScanner(setting(limits=ALL_LIMITS))
    sent = scanner.feed("stderr", b"touch: cannot touch '/w/out/x': Read-only file system\n")
    assert [d.target for d in sent] == ["/w/out/x"]
    final = scanner.finish(RunEvidence(exit_code=1, limit_hit="memory"))
    assert [d.kind for d in final] == ["memory", "filesystem_write"]
    assert sent[0] in final  # a limit ended it: its words are no surer than before


def test_a_pid_of_the_command_line_explains_a_message_without_one() -> None:
    where = setting("python3", "-c", "import os; os.kill(4242, 9)", view=host(pids=[4242]))
    (found,) = denials(where, "ProcessLookupError: [Errno 3] No such process\n")
    assert found.target == "4242"


@pytest.mark.parametrize(
    "text",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: '/h/u/lib/out.json'",
        "Error: ENOENT: no such file or directory, open '/h/u/lib/out.json'",
    ],
)
def test_what_a_script_calls_missing_in_a_hidden_folder_was_perhaps_written(text: str) -> None:
    failed = RunEvidence(exit_code=1)
    (found,) = denials(setting("python3", "wr.py"), text + "\n", failed)
    assert (found.target, found.kind) == ("/h/u/lib/out.json", "filesystem_write")
    assert (found.confidence, found.remedy, found.claimed) == ("low", None, True)
    assert "if it was to be written" in found.message
    elsewhere = text.replace("/h/u/lib/", "/h/u/nosuch/")
    assert denials(setting("python3", "wr.py"), elsewhere + "\n", failed) == []
    named = setting("python3", "wr.py", "/h/u/lib/out.json")
    assert denials(named, text + "\n", failed) == [], "the command line names it as an input"


def test_a_database_that_could_not_be_opened_is_only_perhaps_denied() -> None:
    text = "sqlite3.OperationalError: unable to open database file\n"
    (found,) = denials(setting("python3", "db.py"), text, RunEvidence(exit_code=1))
    assert (found.target, found.confidence, found.remedy) == (None, "low", None)
    assert denials(setting("python3", "db.py"), text, RunEvidence(exit_code=0)) == []


def test_a_script_that_is_missing_everywhere_is_no_refused_write() -> None:
    text = "bash: /h/u/lib/nosuch.sh: No such file or directory\n"
    failed = RunEvidence(exit_code=127)
    assert denials(setting("bash", "/h/u/lib/nosuch.sh"), text, failed) == []
    (found,) = denials(setting("bash", "make.sh"), text, failed)
    assert found.confidence == "low", "a redirection in a script, perhaps"
