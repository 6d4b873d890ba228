"""Remedies that are never given, whatever the evidence: by words, by the kernel, by explain."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from denials.settings import WS, denials, host, setting
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sandboxd.config.config import Ceiling
from sandboxd.denials import (
    ConnectAttempt,
    ExplainRequest,
    HostView,
    RunEvidence,
    Setting,
    StreamScanner,
)
from sandboxd.denials.contents import MOST_AT_ONCE, MOST_ENTRIES, HostLooks
from sandboxd.denials.context import HostFile
from sandboxd.denials.host import _homes, host_view
from sandboxd.denials.remedies import Remedy
from sandboxd.denials.withheld import refusal, withheld
from sandboxd.denials.withheld_hosts import network_refusal
from sandboxd.platform.current import files, system
from sandboxd.policy.data import protected_names, secrets
from sandboxd.policy.plan import Access, Limits, NetworkRule, RunAs
from sandboxd.traffic import GateRefusal
from sandboxd.types import RefusedAccess

HOME = "/h/u"
NEVER = [
    f"{HOME}/.ssh/id",  # a mask of the plan
    f"{HOME}/.ssh",
    f"{WS}/.env",
    f"{WS}/.git/hooks/pre-commit",  # protected
    f"{WS}/.git",
    WS,  # holds what is protected
    f"{HOME}/.aws/credentials",  # a secret that the plan does not show
    "/etc/shadow",
    "/run/docker.sock",
    f"{HOME}/.bashrc",
    f"{HOME}/.config/systemd/user/x.service",
    "/w/other/.envrc",
    "/w/other/.vscode/tasks.json",
    "/w/other/.git/hooks/post-commit",
    "/strangers/notes",
    "/home/other/.netrc",
    "/w/hidden/inner",  # of the config
    "/w/\u202ename",
    "/w/\x1bname",
    "/w/\ufffdname",
]


def where(**more: object) -> Setting:
    return setting(view=host(mine=("/",)), withheld=("/w/hidden",), **more)  # type: ignore[arg-type]


def permitted(there: Setting, remedy: Remedy, *, claimed: bool = False) -> Remedy | None:
    return None if refusal(there, remedy, claimed=claimed) else remedy


@pytest.mark.parametrize("path", NEVER)
@pytest.mark.parametrize("field", ["fs_read_allow", "fs_write_allow"])
def test_no_remedy_names_it(path: str, field: str) -> None:
    assert permitted(where(), {field: [path]}) is None
    assert permitted(where(), {field: ["/w/out", path]}) is None


def test_an_ordinary_path_can_be_named() -> None:
    """The control: what is nothing special is proposed."""
    for path in ("/w/out", "/w/out/old.txt", f"{HOME}/notes.txt", "/tmp/of-host", "/var/tmp/x"):
        for field in ("fs_read_allow", "fs_write_allow"):
            assert permitted(where(), {field: [path]}) == {field: [path]}


@pytest.mark.parametrize(
    "path", ["/etc/cron.d/x", "/etc/profile.d/x.sh", "/usr/local/bin/ls", "/var/lib/apt/lists"]
)
def test_what_the_whole_machine_runs_is_not_made_writable(path: str) -> None:
    assert permitted(where(), {"fs_write_allow": [path]}) is None
    assert permitted(where(), {"fs_read_allow": [path]}) is not None


def test_what_the_policy_refuses_is_not_proposed() -> None:
    there = replace(where(), own_code=("/w/venv",))
    for path in ("/srv", "/mnt", "/w/venv/lib/x", "/boot/x"):
        assert permitted(there, {"fs_write_allow": [path]}) is None
    for path in ("/srv/data", "/w/venvs"):
        assert permitted(there, {"fs_write_allow": [path]}) is not None


def test_programs_in_a_home_folder_can_be_read_and_not_written() -> None:
    tool = f"{HOME}/.cargo/bin/tool"
    assert permitted(where(), {"fs_read_allow": [tool]}) is not None
    assert permitted(where(), {"fs_write_allow": [tool]}) is None


def test_a_link_to_a_secret_is_one() -> None:
    leads = replace(host(), canonical=lambda path: path.replace("/w/out/data", f"{HOME}/.ssh", 1))
    assert withheld(setting(view=leads), "/w/out/data", "read") is not None
    assert withheld(setting(view=leads), "/w/out/data/id", "read") is not None
    assert withheld(setting(), "/w/out/data", "read") is None


FILE, FOLDER = HostFile("x"), HostFile("x", "folder")
DEEP = {
    "/w/far/a/b/c/repo/.git/config": FILE,
    "/w/bare/one/HEAD": FILE,  # a git dir by another name
    "/w/bare/one/objects/x": FILE,
    "/w/linked/name/HEAD": FILE,  # of a worktree
    "/w/linked/name/commondir": FILE,
    "/w/copies/old/.ssh/id_x": FILE,
    "/w/copies2/.NetRC": FILE,
    "/w/tools/x/mise/config.toml": FILE,
    "/w/tools2/x/.hg/store": FILE,
    "/w/tools3/deep/.vscode/x": FILE,
    "/w/tools4/x/bin/hermit": FILE,
    "/w/plain/a/b/c.txt": FILE,
}


@pytest.mark.parametrize(
    ("path", "accesses"),
    [
        ("/w/far", "w"), ("/w/far/a/b", "w"), ("/w/far/a/b/c/repo", "w"),
        ("/w/bare", "w"), ("/w/bare/one", "w"), ("/w/bare/one/objects", "w"),
        ("/w/linked", "w"), ("/w/linked/name", "w"),
        ("/w/copies", "rw"), ("/w/copies/old/.ssh/id_x", "rw"), ("/w/copies2", "rw"),
        ("/w/copies2/.NetRC", "rw"), ("/w/tools", "w"), ("/w/tools/x/mise", "rw"),
        ("/w/tools/x/mise/config.toml", "rw"), ("/w/tools2", "w"), ("/w/tools2/x/.hg", "rw"),
        ("/w/tools2/x/.hg/store", "rw"), ("/w/tools3", "w"),
        ("/w/tools4", "w"), ("/w/tools4/x/bin/hermit", "rw"),
    ],
)  # fmt: skip
def test_copies_repositories_and_settings_are_found_at_any_depth(path: str, accesses: str) -> None:
    there = setting(view=host(mine=("/",), more=DEEP))
    assert (withheld(there, path, "write") is not None) == ("w" in accesses)
    assert (withheld(there, path, "read") is not None) == ("r" in accesses)
    assert withheld(there, "/w/plain", "write", claimed=True) is None


PRINTED = {
    "/w/a/.cache/x": FILE,
    "/w/b/k.txt": HostFile("", private=True),
    "/w/c/run.txt": HostFile("", program=True),
    "/w/i/Makefile": FILE,
    "/w/j/site.py": FILE,
    "/w/k/bin/x.txt": FILE,
    "/w/d/agent": HostFile("agent", "other"),
    "/w/h/.x/agent": HostFile("agent", "other"),
    "/w/e/page.txt": HostFile("", own=False),
    "/w/f/server.pem": FILE,
    "/w/g/.git/HEAD": FILE,
    "/w/g/src/x.c": FILE,
}


@pytest.mark.parametrize(
    ("path", "accesses"),
    [
        ("/w/a", "rw"), ("/w/a/.cache/x", "rw"), ("/w/b", "rw"), ("/w/b/k.txt", "rw"),
        ("/w/c", "w"), ("/w/c/run.txt", "w"), ("/w/d", "rw"), ("/w/d/agent", "rw"), ("/w/e", "w"),
        ("/w/e/page.txt", "w"), ("/w/f", "rw"), ("/w/f/server.pem", "rw"), ("/w/g/src", "w"),
        ("/w/g/src/x.c", "w"), ("/w/i", "w"), ("/w/i/Makefile", "w"), ("/w/j", "w"),
        ("/w/j/site.py", "w"), ("/w/k", "w"), ("/w/k/bin", "w"),
    ],
)  # fmt: skip
def test_only_ordinary_files_are_proposed_by_the_command_s_word(path: str, accesses: str) -> None:
    there = setting(view=host(mine=("/",), more=PRINTED))
    access: Access
    for access in ("read", "write"):
        assert (withheld(there, path, access, claimed=True) is not None) == (access[0] in accesses)
        assert withheld(there, path, access) is None  # where the kernel told it
    assert withheld(there, "/w/out", "write", claimed=True) is None
    assert withheld(there, "/w/h/.x/agent", "read") is not None  # whatever the evidence


def test_a_path_of_the_caller_s_own_command_line_is_more_than_a_word() -> None:
    view = host(mine=("/",), more=PRINTED)
    line = "touch: cannot touch '/w/c/run.txt': Read-only file system\n"
    (asked,) = denials(setting("touch", "/w/c/run.txt", view=view), line)
    assert asked.remedy == {"fs_write_allow": ["/w/c/run.txt"]}
    (printed,) = denials(setting("make", view=view), line)
    assert printed.remedy is None
    assert "No change is proposed" in printed.message


def test_what_a_link_of_the_home_leads_to_is_a_start_up_file() -> None:
    link = HostFile(".bashrc", "link")
    view = host(mine=("/",), more={f"{HOME}/.bashrc": link, f"{HOME}/dots/bashrc": FILE})
    view = replace(view, canonical=lambda p: p.replace(f"{HOME}/.bashrc", f"{HOME}/dots/bashrc"))
    for path in (f"{HOME}/dots/bashrc", f"{HOME}/dots"):
        assert withheld(setting(view=view), path, "write") is not None
    assert (
        withheld(setting(view=host(more={f"{HOME}/dots/x": FILE})), f"{HOME}/dots", "write") is None
    )


def test_a_folder_that_holds_too_much_is_not_made_writable() -> None:
    many = {f"/w/many/{number}": FILE for number in range(MOST_AT_ONCE + 1)}
    there = setting(view=host(mine=("/",), more=many))
    assert withheld(there, "/w/many", "write") is not None
    assert withheld(there, "/w/many", "read") is None
    assert withheld(there, "/w/many", "read", claimed=True) is not None
    few = dict(list(many.items())[:-1])
    assert withheld(setting(view=host(mine=("/",), more=few)), "/w/many", "write") is None


def test_the_looks_for_one_answer_are_bounded() -> None:
    asked: list[int] = []

    def entries(path: str, most: int) -> list[HostFile] | None:
        asked.append(most)
        return [HostFile(str(number)) for number in range(min(most, 100))]

    view = replace(
        host(mine=("/",)), file=lambda path: FOLDER, is_dir=lambda path: True, entries=entries
    )
    looks = HostLooks(view)
    for number in range(MOST_ENTRIES):
        looks.at(f"/w/folder{number}")
    assert sum(min(most, 100) for most in asked) <= MOST_ENTRIES


SECRET = [f"{HOME}/{path}" for group in secrets.HOME for path in group.paths]
STARTUP = [f"{HOME}/{name}" for name in protected_names.HOME]
SYSTEM = [path for group in secrets.SYSTEM for path in group.paths]
ENDINGS = ["", "/x", "/a/b", "/.hidden"]
FORBIDDEN = st.one_of(
    st.builds(str.__add__, st.sampled_from([*SECRET, *SYSTEM]), st.sampled_from(ENDINGS)),
    st.builds(str.__add__, st.sampled_from(STARTUP), st.sampled_from(ENDINGS)),
    st.builds(str.__add__, st.just("/strangers/u"), st.sampled_from(ENDINGS)),
    st.sampled_from(NEVER),
)
ERRNOS = st.sampled_from([errno.EROFS, errno.EACCES, errno.ENOENT, errno.EBUSY, 0])


def everything_exists() -> HostView:
    return replace(host(mine=("/",)), exists=lambda path: True)


@given(
    paths=st.lists(FORBIDDEN, min_size=1, max_size=4), code=st.sampled_from([0, 1]), number=ERRNOS
)
def test_neither_words_nor_the_kernel_make_such_a_path_a_remedy(
    paths: list[str], code: int, number: int
) -> None:
    there = replace(where(landlock=True), host=everything_exists())
    scanner = StreamScanner(there)
    for path in paths:
        for text in ("cat: {}: No such file or directory", "touch: cannot touch '{}': Read-only "
                     "file system", "bash: line 1: {}: Permission denied"):  # fmt: skip
            scanner.feed("stderr", (text.format(path) + "\n").encode())
    told = tuple(RefusedAccess(path, "create", number) for path in paths)
    facts = RunEvidence(exit_code=code, explained=True, refused=told)
    found = scanner.finish(facts)
    explained = scanner.explain(facts, found, ExplainRequest({}))
    programs = {
        p for p in STARTUP if protected_names.HOME[p[len(HOME) + 1 :]].startswith("on peop")
    }
    for remedy in (*(d.remedy or {} for d in found), explained.missing):
        written = set(remedy.get("fs_write_allow", ()))
        read = set(remedy.get("fs_read_allow", ()))
        assert not written & set(paths)
        assert not [p for p in read & set(paths) if not p.startswith(tuple(programs))]
        for entry in written | read:
            assert not [path for path in paths if path.startswith(entry + "/")], remedy


@given(
    paths=st.lists(FORBIDDEN, min_size=1, max_size=4),
    number=st.sampled_from([errno.EROFS, errno.EACCES]),
    depth=st.integers(0, 3),
)
def test_no_folder_is_proposed_for_such_a_path_to_be_made_in_it(
    paths: list[str], number: int, depth: int
) -> None:
    """Only the folders above it exist, or only those further up."""
    above = {"/".join(path.split("/")[: -1 - depth]) for path in paths} | {"/", HOME, "/w/new"}
    there = {one for path in above for one in _and_above(path)}
    view = host(mine=("/",), more={path: HostFile("", "folder") for path in there if path != "/"})
    view = replace(view, exists=there.__contains__, is_dir=there.__contains__)
    where_ = replace(where(landlock=True), host=view)
    scanner = StreamScanner(where_)
    for path in (*paths, "/w/new/data.txt"):
        scanner.feed("stderr", f"touch: cannot touch '{path}': Read-only file system\n".encode())
        scanner.feed("stderr", f"mkdir: cannot create '{path}': Permission denied\n".encode())
    told = tuple(RefusedAccess(path, "create", number) for path in (*paths, "/w/new/data.txt"))
    for facts in (
        RunEvidence(exit_code=1), RunEvidence(exit_code=1, explained=True, refused=told)
    ):  # fmt: skip
        found = scanner.finish(facts)
        proposed = [*(d.remedy or {} for d in found)]
        if facts.explained:
            proposed.append(scanner.explain(facts, found, ExplainRequest({})).missing)
        entries = {path for remedy in proposed for path in remedy.get("fs_write_allow", ())}
        # The control: an ordinary file in a folder beside them.
        assert entries == {"/w/new"}, (entries, paths)


def _and_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/", *("/".join(parts[:count]) for count in range(2, len(parts) + 1))]


@pytest.mark.parametrize("name", [".envrc", ".vscode", ".git/hooks/post-commit", ".claude/x.json"])
def test_no_folder_is_proposed_for_a_start_up_file_of_a_project(name: str) -> None:
    line = "touch: cannot touch '/w/out/{}': Read-only file system\n"
    assert [d.remedy for d in denials(where(), line.format(name))] in ([None], [])
    told = (RefusedAccess(f"/w/out/{name}", "create", errno.EROFS),)
    facts = RunEvidence(exit_code=1, explained=True, refused=told)
    scanner = StreamScanner(where())
    found = scanner.finish(facts)
    assert [d.remedy for d in found] == [None]
    assert scanner.explain(facts, found, ExplainRequest({})).missing == {}
    (control,) = denials(where(), line.format("new.txt"))
    assert control.remedy == {"fs_write_allow": ["/w/out"]}


def test_no_folder_is_proposed_that_start_up_files_can_be_made_in() -> None:
    """The control: the same folders can be read, and those of one program be written."""
    more = {f"{HOME}/{name}": HostFile("", "folder") for name in (".config/app", ".local/state")}
    there = replace(where(), host=host(mine=("/",), more=more))
    for name in (".config", ".local"):
        assert permitted(there, {"fs_write_allow": [f"{HOME}/{name}"]}) is None
        assert permitted(there, {"fs_read_allow": [f"{HOME}/{name}"]}) is not None
    for name in (".config/app", ".local/state"):
        assert permitted(there, {"fs_write_allow": [f"{HOME}/{name}"]}) is not None


def test_a_home_behind_a_link_is_one_where_it_really_is() -> None:
    view = host(mine=("/",), more={"/data/u/out": HostFile("", "folder")})
    led = replace(view, canonical=lambda path: path.replace("/h/u", "/data/u", 1))
    names = (".bashrc", "bin/tool", ".config", ".aws/credentials", "snap/x")
    for name in names:
        assert permitted(where(), {"fs_write_allow": [f"{HOME}/{name}"]}) is None
        there = replace(where(), host=led)
        assert permitted(there, {"fs_write_allow": [f"/data/u/{name}"]}) is None, name
    plain = replace(where(), host=view)  # without the link it is any folder
    assert permitted(plain, {"fs_write_allow": ["/data/u/bin/tool"]}) is not None
    assert permitted(there, {"fs_write_allow": ["/data/u/out"]}) is not None


def test_a_file_with_another_name_is_not_proposed_by_the_command_s_word() -> None:
    """It may be a hard link to a secret: only the path of a secret is known."""
    more = {"/w/out/notes.txt": HostFile("", linked=True), "/w/out/data.txt": HostFile("")}
    there = replace(where(), host=host(mine=("/",), more=more))
    access: Access
    for access in ("read", "write"):
        assert withheld(there, "/w/out/notes.txt", access, claimed=True) is not None
        assert withheld(there, "/w/out/notes.txt", access) is None
        assert withheld(there, "/w/out/data.txt", access, claimed=True) is None


def test_the_host_knows_which_files_have_another_name(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.write_text("x")
    look, path = host_view().file, files.internal(str(one))
    alone = look(path)
    os.link(one, tmp_path / "other")
    both = look(path)
    assert alone is not None
    assert both is not None
    assert (alone.linked, both.linked) == (False, True)


@pytest.mark.posix
def test_what_the_ceiling_refuses_is_not_proposed() -> None:
    ceiling = Ceiling(
        roots=["/w"], network=["deny", "allow_hosts"], hosts=["*.example.org"],
        max_memory_bytes=1500, max_timeout_secs=40,
    )  # fmt: skip
    there = where(ceiling=ceiling, limits=Limits(memory_bytes=1000))
    allowed = [
        {"fs_write_allow": ["/w/out"]}, {"fs_read_allow": ["/opt/tools/bin/cargo"]},
        {"network": {"kind": "allow_hosts", "hosts": ["a.example.org"]}},
        {"max_memory_bytes": 1500}, {"timeout": {"secs": 40}}, {"max_cpu_secs": 9},
    ]  # fmt: skip
    refused = [
        {"fs_write_allow": ["/tmp/of-host"]}, {"fs_write_allow": ["/opt/tools/x"]},
        {"network": "inherit"}, {"network": {"kind": "allow_hosts", "hosts": ["b.test"]}},
        {"max_memory_bytes": 2000}, {"timeout": {"secs": 60}}, {"tmp_bytes": 2000},
    ]  # fmt: skip
    for remedy in allowed:
        assert permitted(there, remedy) == remedy
        assert permitted(where(), remedy) == remedy
    for remedy in refused:
        assert permitted(there, remedy) is None
        assert permitted(where(), remedy) == remedy
    facts = RunEvidence(exit_code=137, limit_hit="memory")
    for had, proposed in ((300, 1200), (1000, 1500), (1500, None)):
        there = where(ceiling=ceiling, limits=Limits(memory_bytes=had))
        (found,) = denials(there, "", facts)
        assert found.remedy == (proposed and {"max_memory_bytes": proposed})


def test_a_weaker_filter_is_not_proposed_by_the_command_s_word() -> None:
    remedy = {"syscall_policy": "inherit"}
    assert permitted(where(), remedy, claimed=True) is None
    assert permitted(where(), remedy) == remedy


def test_what_hands_out_the_machine_s_credentials_is_not_proposed() -> None:
    services = (
        "169.254.169.254",
        "169.254.170.2",
        "[fd00:ec2::254]:80",
        "fe80::1",
        "instance-data",
        # The same in other spellings: mapped, 6to4, NAT64, compatible, ISATAP.
        "[::ffff:169.254.169.254]:80",
        "2002:a9fe:a9fe::",
        "64:ff9b::a9fe:a9fe",
        "::169.254.169.254",
        "2606:2800::5efe:a9fe:a9fe",
        "::ffff:168.63.129.16",
    )
    for host_name in (*services, "metadata.google.internal", "*.google.internal"):
        remedy = {"network": {"kind": "allow_hosts", "hosts": ["a.example.org", host_name]}}
        assert permitted(where(), remedy) is None, host_name
        given = where(network=NetworkRule("allow_hosts", (host_name,)))
        assert permitted(given, remedy) == remedy  # the caller has named it
    for host_name in ("10.0.0.5", "internal.example.org", "1.1.1.1"):
        assert permitted(where(), {"network": {"kind": "allow_hosts", "hosts": [host_name]}})


@pytest.mark.parametrize("name", ["not a host", "*.example.org", "*.com", "a.example.org:1-99"])
def test_a_name_that_is_no_host_is_not_proposed(name: str) -> None:
    for event in (GateRefusal(name, 443, "not allowed"), GateRefusal(name, None, "", "lookup")):
        (found,) = denials(setting(), "", RunEvidence(exit_code=0, gate_events=(event,)))
        assert found.remedy is None
    known = setting(network=NetworkRule("allow_hosts", ("*.example.org",)))
    event = GateRefusal("a.example.net", 443, "not allowed")
    (found,) = denials(known, "", RunEvidence(exit_code=0, gate_events=(event,)))
    hosts = ["*.example.org", "a.example.net"]  # the control: what the caller named stays
    assert found.remedy == {"network": {"kind": "allow_hosts", "hosts": hosts}}


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0"])
def test_this_machine_in_another_spelling_is_the_sandbox_s_own_loopback(address: str) -> None:
    facts = RunEvidence(exit_code=1, attempts_told=True, notified=(ConnectAttempt(address, 8080),))
    assert denials(setting("make"), "", facts) == []
    (found,) = denials(setting("make", view=host(ports=[8080])), "", facts)
    hosts = ["localhost:8080"]  # a service of the host
    assert found.remedy == {"network": {"kind": "allow_hosts", "hosts": hosts}}


def test_a_file_of_the_host_s_tmp_that_the_config_masks_is_not_proposed() -> None:
    text = "cat: /tmp/of-host: No such file or directory\n"
    (shown,) = denials(where(), text)
    assert shown.remedy == {"fs_read_allow": ["/tmp/of-host"]}
    (masked,) = denials(replace(where(), withheld=("/tmp/of-host",)), text)
    assert masked.remedy is None


@pytest.mark.posix
def test_the_host_knows_whose_home_a_path_is_in() -> None:
    view = host_view(RunAs(4_000_000, 4_000_000))
    assert view.foreign_home("/root/x")
    assert view.foreign_home("/home/somebody/x")
    assert not view.foreign_home("/var/lib/x")
    own = host_view()
    assert not own.home or not own.foreign_home(f"{own.home}/x")
    assert own.foreign_home("/home/nobody-of-this-name/x")


@pytest.mark.posix
def test_a_home_of_another_user_is_one_where_it_really_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, link = tmp_path.resolve() / "real", tmp_path.resolve() / "link"
    real.mkdir()
    link.symlink_to(real)
    view = host_view(RunAs(4_000_000, 4_000_000))
    assert not view.foreign_home(f"{real}/x")
    monkeypatch.setattr("sandboxd.denials.host._homes", _homes.__wrapped__)  # not from its cache
    monkeypatch.setattr(system, "people", lambda cannot_look: [(4_000_001, str(link))])
    assert view.foreign_home(f"{link}/x")
    assert view.foreign_home(f"{real}/x")
    assert not view.foreign_home(f"{tmp_path.resolve()}/x")


@pytest.mark.posix
def test_mode_bits_are_read_as_for_a_user_without_capabilities(tmp_path: Path) -> None:
    file = tmp_path / "closed"
    file.write_text("x")
    file.chmod(0o000)
    assert host_view().barrier(str(file), "read", "/") == str(file)
    assert host_view().permits(str(file), "read") == (os.geteuid() == 0)
    file.chmod(0o400)
    assert host_view().barrier(str(file), "read", "/") is None
    new = str(tmp_path / "new" / "file")
    assert host_view().barrier(new, "write", "/") is None
    tmp_path.chmod(0o600)
    # As root: as for a user without capabilities.
    assert host_view().barrier(str(file), "read", "/") == str(tmp_path)
    assert host_view().barrier(str(file), "read", str(file)) is None
    tmp_path.chmod(0o500)
    assert host_view().barrier(new, "write", "/") == str(tmp_path)


def test_another_name_of_what_is_kept_from_commands_is_not_proposed() -> None:
    """Whatever the evidence. The control has a second name, too, of something else."""
    secret, hook, mine = (1, 7), (1, 8), (1, 9)
    more = {
        f"{HOME}/.aws/credentials": HostFile("", linked=True, inode=secret),
        f"{WS}/.git/hooks/pre-commit": HostFile("", linked=True, inode=hook),
        "/w/out/notes.txt": HostFile("", linked=True, inode=secret),
        "/w/out/data.txt": HostFile("", linked=True, inode=mine),
        "/w/held/deep/script.txt": HostFile("", linked=True, inode=hook),
    }
    there = replace(where(), host=host(mine=("/",), more=more))
    for field in ("fs_read_allow", "fs_write_allow"):
        for path in ("/w/out/notes.txt", "/w/out", "/w/held/deep", "/w/held/deep/script.txt"):
            assert permitted(there, {field: [path]}) is None, path
        remedy = {field: ["/w/out/data.txt"]}
        assert permitted(there, remedy) == remedy
    for name, proposed in (("data.txt", True), ("notes.txt", False)):
        refused = RefusedAccess(f"/w/out/{name}", "write", errno.EROFS)
        found = denials(there, "", RunEvidence(exit_code=1, refused=(refused,)))
        assert [one.remedy is not None for one in found] == [proposed], found


@pytest.mark.posix
def test_the_host_knows_the_names_of_one_file(tmp_path: Path) -> None:
    secret, link = tmp_path / ".netrc", tmp_path / "out" / "notes.txt"
    link.parent.mkdir()
    secret.write_text("x")
    os.link(secret, link)
    (tmp_path / "out" / "other.txt").write_text("x")
    looks = HostLooks(host_view())
    assert looks.has_name_among(str(link), [str(tmp_path / "absent"), str(secret)])
    assert looks.has_name_among(str(link.parent), [str(secret)])
    assert not looks.has_name_among(str(tmp_path / "out" / "other.txt"), [str(secret)])
    assert not looks.has_name_among(str(link), [str(tmp_path / "absent")])


def test_a_host_is_withheld_for_one_named_reason() -> None:
    closed = where(ceiling=Ceiling(network=["deny"]))
    proposed = {"kind": "allow_hosts", "hosts": ["example.org"]}
    assert "daemon's config does not permit it" in str(network_refusal(closed, proposed))
    assert "no host that" not in str(network_refusal(closed, proposed))
    unnameable = {"kind": "allow_hosts", "hosts": ["a b/"]}
    assert network_refusal(where(), unnameable) == "it is no host that a manifest can name"
    assert network_refusal(where(), proposed) is None
