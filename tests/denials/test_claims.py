"""What a command prints is a claim: how far it goes, by exit, stream and evidence."""

from __future__ import annotations

import errno

import pytest
from denials.messages import LOCALE, MISLEADING, PLANTED
from denials.settings import WS, denials, host, setting
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sandboxd.denials import (
    ConnectAttempt,
    RunEvidence,
    StreamScanner,
    load_translations,
)
from sandboxd.denials.context import HostFile
from sandboxd.policy.display_names import named
from sandboxd.policy.plan import Limits, NetworkRule
from sandboxd.traffic import GateRefusal
from sandboxd.types import RefusedAccess

OK, FAILED = RunEvidence(exit_code=0), RunEvidence(exit_code=1)
REAL = "touch: cannot touch '/w/out/x': Read-only file system\n"


@pytest.mark.parametrize("line", PLANTED)
@pytest.mark.parametrize("command", [("cat", "build.log"), ("git", "log"), ("sh", "-c", "x 2>&1")])
def test_a_line_of_a_file_yields_no_remedy_when_the_command_succeeds(
    line: str, command: tuple[str, ...]
) -> None:
    where = setting(*command, filter_loaded=True, limits=Limits(memory_bytes=9), landlock=True)
    for found in (denials(where, line + "\n", OK), denials(where, "", OK, stdout=line + "\n")):
        assert [d for d in found if d.remedy is not None or d.confidence != "low"] == []


def test_memory_that_lacked_is_told_of_a_command_that_succeeds_where_a_limit_was_asked_for() -> (
    None
):
    where = setting("sh", "-c", "x || echo fallback", limits=Limits(memory_bytes=9))
    assert denials(where, "MemoryError\n", OK) == []
    asked = replace(where, plan=replace(where.plan, asked=frozenset({"max_memory_bytes"})))
    (found,) = denials(asked, "MemoryError\n", OK)
    assert (found.kind, found.confidence, found.remedy) == ("memory", "low", None)


@pytest.mark.parametrize("line", PLANTED)
def test_stdout_alone_never_yields_a_remedy(line: str) -> None:
    where = setting("cat", "build.log", landlock=True, limits=Limits(memory_bytes=9))
    found = denials(where, "", FAILED, stdout=line + "\n")
    assert [d for d in found if d.remedy is not None or d.confidence != "low"] == []


@pytest.mark.parametrize("line", PLANTED)
def test_with_a_failing_exit_it_is_medium_at_most_and_marked(line: str) -> None:
    found = denials(setting("sh", "-c", "cat build.log >&2; exit 1", landlock=True), line + "\n")
    assert all(d.confidence != "high" and d.claimed for d in found), found
    assert all("the command says" in d.message for d in found)
    assert ".ssh" not in str([d.remedy for d in found])
    assert ".bashrc" not in str([d.remedy for d in found])


def test_a_real_refusal_with_a_failing_exit_has_a_remedy_that_is_marked() -> None:
    """The control: the same words are worth something where the command failed."""
    (found,) = denials(setting("touch", "/w/out/x"), REAL, FAILED)
    assert (found.confidence, found.claimed) == ("medium", True)
    assert found.remedy == {"fs_write_allow": ["/w/out"]}


def test_a_command_that_was_ended_from_outside_did_not_fail_by_itself() -> None:
    for facts in (
        RunEvidence(outcome="timeout", signal=9, timed_out=True),
        RunEvidence(outcome="cancelled", signal=15, cancelled=True),
        RunEvidence(outcome="memory", signal=9, limit_hit="memory"),
    ):
        said = [d for d in denials(setting(), REAL, facts) if d.claimed]
        assert [(d.confidence, d.remedy) for d in said] == [("low", None)]


def test_what_is_told_while_it_runs_is_low_and_the_result_may_raise_it() -> None:
    scanner = StreamScanner(setting())
    (told,) = scanner.feed("stderr", REAL.encode())
    assert (told.confidence, told.remedy, told.claimed) == ("low", None, True)
    (final,) = scanner.finish(FAILED)
    assert final.confidence == "medium"
    assert StreamScanner(setting()).feed("stdout", REAL.encode()) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("cat: /h/u/.ssh/id: No such file or directory", "it is a secret"),
        ("cat: /h/u/.netrc: No such file or directory", "it is a secret"),
        ("bash: /h/u/.bashrc: Read-only file system", "it is a start-up file"),
        ("cat: /h/u/notes.txt: No such file or directory", None),
    ],
)
def test_why_nothing_is_proposed_is_said_while_the_command_runs(line: str, why: str | None) -> None:
    """As at the end: a shell ends hours later."""
    view = host(more={f"/h/u/{name}": HostFile("") for name in (".netrc", ".bashrc")})
    (told,) = StreamScanner(setting("bash", view=view)).feed("stderr", line.encode() + b"\n")
    said = told.message.partition(". No change is proposed: ")[2]
    assert said.startswith(why) if why else not said
    assert told.remedy is None


def test_the_kernel_and_the_gate_are_believed_over_words() -> None:
    words = "curl: (7) Failed to connect to 1.1.1.1 port 80: Network is unreachable\n"
    facts = RunEvidence(exit_code=0, notified=(ConnectAttempt("1.1.1.1", 80),))
    (found,) = denials(setting(), words, facts)
    assert (found.confidence, found.evidence, found.claimed) == ("high", "kernel", False)
    gate = RunEvidence(exit_code=0, gate_events=(GateRefusal("b.example", 443, "not allowed"),))
    rule = NetworkRule("allow_hosts", ("a.example",))
    (refused,) = denials(setting(network=rule), "", gate)
    assert (refused.confidence, refused.claimed) == ("high", False)


def test_a_guess_at_what_was_looked_up_is_not_high() -> None:
    facts = RunEvidence(exit_code=0, notified=(ConnectAttempt("10.0.0.53", 53),))
    (found,) = denials(setting("curl", "https://example.org/"), "", facts)
    assert found.confidence == "medium"


@pytest.mark.parametrize("line", MISLEADING)
def test_a_word_of_a_sentence_is_no_path(line: str) -> None:
    for cwd in ("/", WS, "/w/out"):
        where = setting("make", cwd=cwd, landlock=True, view=host(mine=("/",)))
        assert [d for d in denials(where, line + "\n") if d.target is not None] == []


def test_a_bare_name_is_a_path_when_it_exists_or_is_quoted_or_was_asked_for() -> None:
    where = setting("touch", "new", cwd="/w/out")
    for line in (
        "old.txt: Read-only file system",
        "touch: new: Read-only file system",
        "x: cannot create 'fresh': Read-only file system",
        "bash: line 1: fresh: Read-only file system",
    ):
        assert [d.kind for d in denials(where, line + "\n")] == ["filesystem_write"], line


def test_a_read_that_modes_refuse_to_root_is_not_called_a_write() -> None:
    view = host(mine=("/",), modes=())
    where = setting("cat", "/w/out/old.txt", landlock=True, host_root=True, view=view)
    (found,) = denials(where, "cat: /w/out/old.txt: Permission denied\n")
    assert (found.kind, found.remedy) == ("filesystem_read", None)
    assert "capability" in found.message
    user = setting("cat", "/w/out/old.txt", landlock=True, view=host(unread=("/w/out/old.txt",)))
    assert denials(user, "cat: /w/out/old.txt: Permission denied\n") == []


@pytest.mark.parametrize(
    ("argv", "kind", "remedy"),
    [
        (("sh",), "filesystem_read", None),
        (("sh", "-c", "echo >> /h/u/notes.txt"), "filesystem_write", "fs_write_allow"),
        (("sh", "-c", "/h/u/notes.txt"), "filesystem_read", "fs_read_allow"),
    ],
)
def test_a_shell_does_not_tell_what_it_opened_a_hidden_file_for(
    argv: tuple[str, ...], kind: str, remedy: str | None
) -> None:
    (found,) = denials(setting(*argv), "bash: /h/u/notes.txt: No such file or directory\n")
    assert (found.kind, remedy) == (kind, next(iter(found.remedy or ()), None))
    assert ("read it, run it or write it" in found.message) == (remedy is None)


@pytest.mark.parametrize(
    "line",
    [
        "cat: src: Permission denied",
        "head: cannot open 'src' for reading: Permission denied",
        "PermissionError: [Errno 13] Permission denied: 'src'",
    ],
)
def test_a_file_of_another_user_in_the_workspace_is_not_called_written(line: str) -> None:
    view = replace(host(mine=(), modes=()), is_dir=lambda path: False)
    (found,) = denials(setting("cat", "src", view=view), f"{line}\n")
    assert (found.kind, found.target, found.remedy) == ("filesystem_read", "/w/ws/src", None)
    assert "belongs to ada; this user could not read it outside either" in found.message


def test_a_workspace_of_another_user_is_named_where_it_cannot_be_written() -> None:
    line = "touch: cannot touch 'new': Permission denied\n"
    (found,) = denials(setting("touch", "new", view=host(mine=(), modes=())), line)
    assert (found.target, found.remedy) == ("/w/ws/new", None)
    assert "belongs to ada; this user could not write it outside either" in found.message
    assert denials(setting("touch", "new", view=host(modes=())), line) == [], "by a group"
    own = replace(host(mine=(), modes=()), owner=lambda path: "bob")
    assert denials(setting("touch", "new", view=own), line) == [], "its own permission bits"


@pytest.mark.parametrize(
    "line",
    [
        "mount: /w/out: permission denied.",
        "umount: /w/out: must be superuser to unmount.",
        "mount: /w/out: Operation not permitted",
    ],
)
def test_mount_is_a_system_call_that_no_manifest_allows(line: str) -> None:
    where = setting(landlock=True, filter_loaded=True, host_root=True, view=host(mine=("/",)))
    found = denials(where, line + "\n")
    assert {(d.kind, d.target, d.remedy) for d in found} <= {("syscall", "mount", None)}
    assert found or "superuser" in line


def test_ping_is_not_helped_by_an_allowed_host() -> None:
    facts = RunEvidence(exit_code=2, notified=(ConnectAttempt("1.1.1.1", 1025),))
    for found in (
        denials(setting("ping", "-c1", "1.1.1.1"), "", facts),
        denials(setting("ping", "example.org"), "ping: example.org: Name or service not known\n"),
        denials(
            setting("ping", "example.org"), "", RunEvidence(exit_code=2, lookups=("example.org",))
        ),
    ):
        assert [(d.kind, d.remedy) for d in found] == [("network", None)]
        assert "ICMP" in found[0].message
    (other,) = denials(setting("curl", "1.1.1.1"), "", facts)
    assert other.remedy is not None


TARGETS = [
    ("failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is "
     "correct: dial unix /var/run/docker.sock: connect: no such file or directory",
     "/run/docker.sock"),
    ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon "
     "running?", "/run/docker.sock"),
    ("E: Could not open lock file /w/out/lock-frontend - open (30: Read-only file system)",
     "/w/out/lock-frontend"),
    ("E: List directory /w/out/partial is missing. - Acquire (30: Read-only file system)",
     "/w/out/partial"),
    ("E: Unable to acquire the dpkg frontend lock (/w/out/lock), Read-only file system",
     "/w/out/lock"),
    ("W: Problem unlinking the file /w/out/pkgcache.bin - RemoveCaches (30: Read-only file "
     "system)", "/w/out/pkgcache.bin"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "target"), TARGETS)
def test_targets_of_docker_and_apt_are_whole(line: str, target: str) -> None:
    (found,) = denials(setting(), line + "\n")
    assert found.target == target


def test_messages_are_sentences() -> None:
    (found,) = denials(setting(), "cannot read '/w/out/x': Read-only file system\n")
    assert "(read)" not in found.message
    (kept,) = denials(setting(), "bash: line 1: .git/hooks/pre-commit: Read-only file system\n")
    assert "No manifest" not in kept.message


@pytest.mark.requires("catalogs")
@pytest.mark.parametrize(("language", "line"), LOCALE)
def test_other_languages_are_claims_as_well(language: str, line: str) -> None:
    words = load_translations((language,))
    scanner = StreamScanner(setting(), words)
    scanner.feed("stderr", line.encode() + b"\n")
    assert [(d.target, d.confidence) for d in scanner.finish(FAILED)] == [("/w/out/x", "medium")]


def test_a_write_into_a_folder_that_the_private_tmp_hides_is_told() -> None:
    for line in (
        "bash: line 1: /tmp/of-host/new: No such file or directory",
        "touch: cannot touch '/tmp/of-host/new': No such file or directory",
    ):
        (found,) = denials(setting(view=host(mine=("/tmp",))), line + "\n")
        assert (found.kind, found.target) == ("filesystem_write", "/tmp/of-host/new")
        assert found.remedy == {"fs_write_allow": ["/tmp/of-host"]}
    assert denials(setting(), "touch: cannot touch '/tmp/none/x': No such file or directory") == []


pieces = st.one_of(
    st.sampled_from([*PLANTED, REAL, "\n", "'", "‘", ": ", "\x1b[31m", "\u202e", "/w/out/"]),
    st.text(max_size=12),
)
texts = st.lists(pieces, max_size=20).map("".join)
commands = st.sampled_from(
    [("cat", "log"), ("git", "log"), ("sh", "-c", "x 2>&1"), ("curl", "https://example.org"),
     ("touch", "/w/out/x"), ("ping", "1.1.1.1")]
)  # fmt: skip


@given(stdout=texts, stderr=texts, argv=commands, pty=st.booleans())
def test_nothing_that_is_printed_at_exit_0_yields_a_remedy(
    stdout: str, stderr: str, argv: tuple[str, ...], pty: bool
) -> None:
    where = setting(*argv, landlock=True, filter_loaded=True, host_root=True, pty=pty,
                    limits=Limits(memory_bytes=1, processes=1, cpu_s=1, file_bytes=1),
                    view=host(mine=("/",)))  # fmt: skip
    scanner = StreamScanner(where)
    live = scanner.feed("stdout", stdout.encode("utf-8", "replace"))
    live += scanner.feed("stderr", stderr.encode("utf-8", "replace"))
    found = scanner.finish(OK)
    assert [d for d in [*live, *found] if d.remedy is not None] == []
    assert {d.confidence for d in [*live, *found] if d.claimed} <= {"low"}


@given(stdout=texts, stderr=texts, argv=commands, code=st.sampled_from([0, 1, 6]))
def test_words_are_never_high_and_messages_never_hold_control_characters(
    stdout: str, stderr: str, argv: tuple[str, ...], code: int
) -> None:
    scanner = StreamScanner(setting(*argv, landlock=True, view=host(mine=("/",))))
    live = scanner.feed("stderr", stderr.encode("utf-8", "replace"))
    live += scanner.feed("stdout", stdout.encode("utf-8", "replace"))
    for found in (*live, *scanner.finish(RunEvidence(exit_code=code))):
        assert found.confidence != "high"
        assert found.message.isprintable()
        assert (found.target or "").isprintable()
        assert str(found.remedy).isprintable()


SENTENCE = "x is fine; to allow it add: --read /h/u/.ssh"


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (f"touch: cannot touch '/w/out/{SENTENCE[:20]}': Read-only file system\n", FAILED),
        ("", RunEvidence(exit_code=1, gate_events=(GateRefusal(SENTENCE, None, "not allowed"),))),
        ("", RunEvidence(exit_code=1, gate_events=(GateRefusal(SENTENCE, 443, "not allowed"),))),
        ("", RunEvidence(exit_code=1, protected=((f"/w/ws/{SENTENCE}", f"/kept/{SENTENCE}"),))),
        ("", RunEvidence(exit_code=1, explained=True, refused=(
            RefusedAccess(f"/w/out/{SENTENCE}", "create", errno.EROFS),))),
    ],
)  # fmt: skip
def test_a_name_that_is_a_sentence_is_in_quotes(line: str, facts: RunEvidence) -> None:
    """On a screen it would look like a remedy of ours."""
    for found in denials(setting("make"), line, facts):
        pieces = found.message.split('"')
        assert len(pieces) % 2 == 1, found.message
        assert not [piece for piece in pieces[::2] if "is fine" in piece or "--read" in piece]
        assert [piece for piece in pieces[1::2] if "is fine" in piece], found.message
    (plain,) = denials(setting("make"), REAL, FAILED)
    assert plain.message.startswith("the command says: /w/out/x could not")


@given(st.text(max_size=400))
def test_a_name_in_a_message_has_an_end(name: str) -> None:
    shown = named(name)
    assert shown == name or (shown[0], shown[-1]) == ('"', '"')
    inner = shown[1:-1].replace('\\"', "") if shown != name else shown
    assert '"' not in inner
    assert " " not in shown or shown != name
    assert shown.isprintable()
    assert len(shown) <= max(len(name), 2 * 201 + 2)


def test_names_with_escape_sequences_are_shown_and_never_proposed() -> None:
    """The control of the property above: such a name is found at all."""
    line = "touch: cannot touch '/w/out/\x1b]0;\u202ex': Read-only file system"
    (found,) = denials(setting(), line)
    assert found.target == "/w/out/\\x1b]0;\\u202ex"
    assert found.remedy is None or "\x1b" not in str(found.remedy)


def test_the_last_message_is_not_displaced_by_what_was_printed_before() -> None:
    planted = "".join(
        f"touch: cannot touch '/w/out/{n}': Read-only file system\n" for n in range(99)
    )
    last = "touch: cannot touch '/w/out/real': Read-only file system\n"
    targets = [d.target for d in denials(setting("make"), planted + last)]
    assert targets[-1] == "/w/out/real"
    assert len(targets) < 40


def test_what_this_user_could_not_read_outside_either_is_not_put_down_to_the_sandbox() -> None:
    hidden = setting("ls", "/h/u/lib", view=host(unread=("/h/u/lib",)))
    assert denials(hidden, "") == []
    (found,) = denials(hidden, "ls: cannot access '/h/u/lib': No such file or directory\n")
    assert found.remedy is None
    assert "outside either" in found.message
    assert [d.target for d in denials(setting("ls", "/h/u/lib"), "")] == ["/h/u/lib"]


def test_a_socket_that_the_host_does_not_have_is_not_called_a_write() -> None:
    line = "Cannot connect to the Docker daemon at unix:///w/out/docker.sock. Is it running?\n"
    assert denials(setting(), line) == []


def test_landlock_alone_refuses_a_write_that_the_permission_bits_would_refuse_too() -> None:
    """Both answer EACCES. With mounts it is EROFS that tells of the sandbox."""
    line = "touch: cannot touch '/usr/x': Permission denied\n"
    (found,) = denials(setting("make", landlock=True, mounts=False), line)
    assert (found.kind, found.target, found.remedy) == ("filesystem_write", "/usr/x", None)
    assert found.message.endswith("; this user could not write it outside either")
    assert denials(setting("make", landlock=True), line) == []


def test_landlock_alone_answers_nothing_but_eacces() -> None:
    where = setting(landlock=True, mounts=False, view=host(mine=("/",)))
    for words in ("Read-only file system", "No such file or directory", "Device or resource busy"):
        for path in ("/w/out/old.txt", "/h/u/notes.txt", f"{WS}/.git/config"):
            assert denials(where, f"bash: line 1: {path}: {words}\n") == []
    for line in ("cat: /h/u/notes.txt", "find: '/h'", "ls: cannot open directory '/h/u'"):
        (found,) = denials(where, f"{line}: Permission denied\n")
        assert found.kind == "filesystem_read", line
