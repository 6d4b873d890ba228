"""What people meet in an afternoon of ordinary work: wrong input, jobs, hints, tables."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from sandboxd_client import Client
from sandboxd_client.cli import grants, sessions
from sandboxd_client.cli.explanation_text import report
from sandboxd_client.cli.flags import RUN
from sandboxd_client.cli.hints.advice import advise
from sandboxd_client.cli.hints.git.hints import git_hint
from sandboxd_client.cli.hints.git.sources import half_shown
from sandboxd_client.cli.hints.git.user_settings import missing_identity
from sandboxd_client.cli.parse import parse
from sandboxd_proto import toml_mistakes


@pytest.fixture
def own(ctl, start_daemon):
    """sandboxctl with a daemon that no other test uses."""
    ctl.socket_path = start_daemon().socket
    return ctl


def test_attach_says_what_one_sees(own):
    own("run", "--detach", "--name", "job", "-c", "read x; echo $x; exit 3", "--pty")
    assert b"sandboxctl attach lets you type to it" in own("logs", "job").stderr
    assert b"what you type is its input" in own("attach", "job", input=b"hello\n").stderr
    own("run", "--detach", "--name", "deaf", "sleep", "600")
    assert b"it is still running; --follow goes on\n" in own("logs", "deaf").stderr
    with own.start("attach", "deaf") as attached:
        assert b"takes no input; Ctrl-C leaves it running" in attached.stderr.readline()
        attached.terminate()
        attached.communicate()
    assert own("kill", "deaf").returncode == 0
    ended = own("attach", "deaf").stderr
    assert b"it has ended; this is what it printed last:" in ended
    assert b"it was cancelled after" in ended


def test_shutdown_names_what_would_end_with_the_daemon(ctl, folder, screen):
    own = ctl
    own.socket_path, own.extra = str(folder / "run" / "d.sock"), []
    own("run", "--detach", "--name", "job", "sleep", "600")
    refused = own("shutdown")
    assert (refused.returncode, refused.stdout) == (125, b"")
    assert own("restart").returncode == 125
    assert b"1 command would end with the daemon" in refused.stderr
    assert (
        b"wait for commands, or end them (sandboxctl ps, kill); or give --force" in refused.stderr
    )
    assert b"job" in own("ps").stdout
    asked = screen(own.argv("shutdown"))
    asked.until(b"End it? [y/N]")
    asked.type(b"n\n")
    asked.until(b"it goes on")
    assert asked.end() == 125
    assert b"job" in own("ps").stdout
    done = own("shutdown", "--force")
    assert (done.returncode, b"1 command ended with the daemon" in done.stderr) == (0, True)


def test_a_session_with_its_agent_is_in_the_way_too(ctl, folder):
    own = ctl
    own.socket_path, own.extra = str(folder / "run" / "d.sock"), []
    inside = shlex.join(own.argv("run", "true"))
    agent = own.start("session open", "--", "sh", "-c", f"echo up; read x; {inside}; exit 7",
                      stdin=subprocess.PIPE)  # fmt: skip
    assert agent.stdout.readline() == b"up\n"
    for command in ("restart", "shutdown"):
        refused = own(command)
        assert refused.returncode == 125
        assert b"1 session would end with the daemon" in refused.stderr
        assert b"leave sessions (sandboxctl sessions); or give --force" in refused.stderr
    assert own("restart", "--force").returncode == 0
    _, said = agent.communicate(b"go\n", timeout=60)
    assert b"any more\n  hint:  the daemon was restarted, or the session was closed" in said
    assert said.endswith(b"the daemon was restarted, or the session was closed\n")
    assert agent.returncode == 7, "the agent's own code"
    assert own("shutdown").returncode == 0


def test_attach_completes_detached_commands_only(own):
    from sandboxd_client import Client
    from sandboxd_client.cli.ids import known

    with Client(own.socket_path) as client, client.stream(["sleep", "600"], timeout="none") as here:
        next(iter(here))
        own("run", "--detach", "--name", "job", "sleep", "600")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SANDBOXD_SOCKET", own.socket_path)
            assert known("detached") == {"job": "sleep 600"}
            assert len(known("execution")) == 2


@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_socket_that_is_none_is_said_and_nothing_is_left_there(ctl, folder, place):
    made = folder / "notes"
    made.mkdir() if place == "folder" else made.write_text("mine\n")
    before = sorted(os.listdir(folder))
    ctl.socket_path, ctl.extra = str(made), []
    for command in (["run", "--", "true"], ["status"], ["restart"]):
        done = ctl(*command)
        assert done.returncode == 125
        assert f"{made} is no socket, but a {place}".encode() in done.stderr
    assert sorted(os.listdir(folder)) == before


def test_a_daemon_at_the_socket_of_the_environment_is_not_started_in_silence(ctl, folder):
    path = str(folder / "mistyped" / "d.sock")
    argv = [word for word in ctl.argv("run", "--", "true") if word not in ("--socket", *ctl.extra)]
    argv.remove(ctl.socket_path)
    ctl.socket_path = path
    try:
        done = subprocess.run(
            argv, capture_output=True, cwd=ctl.workspace, env=ctl.env(SANDBOXD_SOCKET=path)
        )
        said = f"no daemon listened on {path} (SANDBOXD_SOCKET); started one there"
        assert (done.returncode, said.encode() in done.stderr) == (0, True)
    finally:
        ctl("shutdown", "--force")


def test_a_variable_has_no_blanks_in_its_name(ctl):
    done = ctl("run", "--env", "A B=1", "--", "true")
    assert done.returncode == 125
    assert b"the name of a variable has no blanks" in done.stderr


def test_the_read_only_preset_is_named_where_it_refuses(inside):
    done = inside("run", "--preset", "read-only", "--", "touch", "made")
    assert done.returncode == 1
    assert b"the preset read-only makes nothing writable" in done.stderr
    assert b"workspace-write" in done.stderr
    assert b"looked at" not in done.stderr
    assert b"--write" not in done.stderr


def test_the_ceiling_names_the_workspace(ctl, start_daemon, folder):
    (folder / "permitted").mkdir()
    ctl.socket_path = start_daemon(config=f'[ceiling]\nroots = ["{folder}/permitted"]\n').socket
    done = ctl("run", "--", "true")
    assert f"error: the workspace {ctl.workspace} is beyond".encode() in done.stderr
    assert b"fs_write_allow" not in done.stderr


def test_the_trail_shows_its_end_and_says_so(own):
    for _ in range(26):
        assert own("run", "--", "true").returncode == 0
    done = own("audit")
    assert len(done.stdout.splitlines()) == 50
    assert b"the last 50 of " in done.stderr
    assert len(own("audit", "--last", "3").stdout.splitlines()) == 3
    every = own("audit", "--last", "all")
    assert len(every.stdout.splitlines()) > 52
    assert every.stderr == b""
    assert own("audit", "--last", "few").returncode == 2


def test_what_was_moved_aside_elsewhere_is_found_there(inside, folder):
    other = folder / "other"
    (other / "repo/.git/objects").mkdir(parents=True)
    (other / "repo/.git/refs").mkdir()
    (other / "repo/.git/HEAD").write_text("ref: refs/heads/main\n")
    done = inside("run", "--write", str(other), "-c", f"echo x > {other}/repo/.envrc")
    assert f"sandboxctl kept list, diff, accept or drop (with -w {other})".encode() in done.stderr
    assert b".envrc" in inside("kept list", "-w", str(other)).stdout
    assert b"takes it for deleted" not in done.stderr, "git does not track that folder"


def test_sessions_are_a_table_of_eighty_columns():
    one = {"session": "se-" + "0" * 32, "parent": None, "plan": False, "mode": "auto_edit",
           "state": "open", "executions": 1, "approvals": 0, "usage": {"cost_usd": 0.5},
           "title": "fix", "name": None}  # fmt: skip
    below = {**one, "session": "se-" + "1" * 32, "parent": one["session"], "title": None}
    lines = sessions.tree([one, below])
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert lines[1].endswith("0.50 fix")
    assert lines[2].startswith("  se-1")


def test_grants_are_a_table():
    one = {"grant": "gr-07d6aa009aece9ce", "session": None, "workspace": "/srv/" + "deep/" * 9,
           "expires": "2027-02-15"}  # fmt: skip
    hosts = {"kind": "allow_hosts", "hosts": ["a.org"]}
    add = {"fs_write_allow": ["/o"], "network": hosts}
    shown = grants.table(
        [
            {**one, "add": None},
            {**one, "workspace": None, "session": "se-1", "expires": None, "add": add},
            {**one, "add": {"fs_read_allow": ["/x" * 60]}},
            {**one, "add": None, "reach": {"write": ["/srv/out"], "read": [], "network": hosts}},
        ],
        80,
    ).splitlines()
    assert max(map(len, shown)) == 80
    assert "".join(line.strip() for line in shown[4:6]) == "read " + "/x" * 60
    assert shown[-1].strip() == "any command with write /srv/out, net a.org"
    assert shown[1].endswith("any command")
    assert shown[2].split() == [
        "gr-07d6aa009aece9ce", "its", "end", "se-1", "write", "/o,", "net", "a.org",
    ]  # fmt: skip


def test_explain_does_not_contradict_a_success():
    need = {"status": "needed", "access": "read", "operation": "look", "target": "/data"}
    explanation = {"needs": [need], "missing": {"fs_read_allow": ["/data"]}}
    told = report(explanation, failed=False)
    assert told.startswith("sandboxctl: the command succeeded without what was refused\n")
    assert "needed" not in told
    assert "would need" not in told
    assert "needed" in report(explanation, failed=True)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("preset = workspace-write", "preset = 'workspace-write'"),
        ("allow_no_sandbox = True", "write allow_no_sandbox = true"),
        ('preset = "read-only', "the quote is not closed"),
        ("[ceiling\n", "[name]"),
        ("a = 1\na = 2", "twice"),
        ('roots = ["a" "b"]', "a comma between the items"),
        ("preset", "key = value"),
        ("roots = [", "] is missing"),
        ("roots = [~/src]", "; text is written in quotes"),
        ('path = "C:\\work"', "single quotes"),
    ],
)
def test_what_to_write_in_place_of_a_line_that_is_not_toml(text, hint):
    with pytest.raises(tomllib.TOMLDecodeError) as error:
        tomllib.loads(text)
    assert hint in toml_mistakes.advice(text, error.value)


def test_who_commits_is_asked_for_in_the_words_of_git(tmp_path, monkeypatch):
    monkeypatch.delenv("EMAIL", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "user.email" in (missing_identity(str(tmp_path)) or "")
    (tmp_path / ".gitconfig").write_text("[include]\n\tpath = ~/more\n")
    assert f"--read {tmp_path}/more" in (missing_identity(str(tmp_path)) or "")
    monkeypatch.setenv("EMAIL", "me@example.org")
    assert "--env EMAIL" in (missing_identity(str(tmp_path)) or "")
    (tmp_path / ".gitconfig").write_text("[user]\n\temail = me@example.org\n")
    assert missing_identity(str(tmp_path)) is None


def test_a_name_in_a_home_that_the_daemon_may_not_show_is_said_to_be_there(tmp_path, monkeypatch):
    home, workspace = tmp_path / "home", tmp_path / "project"
    (workspace / ".git").mkdir(parents=True)
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\temail = me@example.org\n")
    monkeypatch.setenv("HOME", str(home))
    if "email" in _content(Path("/etc/gitconfig")):
        return
    assert missing_identity(str(workspace), "git commit") is None
    told = missing_identity(str(workspace), "git commit", is_known=True) or ""
    assert f"the settings in {home}" in told
    assert "sandboxctl restart" in told


def test_another_failure_of_git_is_not_taken_for_a_missing_name(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "sandboxd_client.cli.hints.git.user_settings.texts_of_settings", lambda workspace: [""]
    )
    words = ["tag", "v1"]
    assert git_hint(words, 128, [], str(tmp_path), errors=b"fatal: tag 'v1' already exists") is None
    said = b'Run\n  git config --global user.email "you@example.com"\n'
    assert "name and address" in (git_hint(words, 128, [], str(tmp_path), errors=said) or "")


def test_a_name_that_was_given_is_not_called_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "sandboxd_client.cli.hints.git.user_settings.texts_of_settings", lambda workspace: [""]
    )
    for name in ("EMAIL", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    assert missing_identity(str(tmp_path), "git commit -m x")
    assert missing_identity(str(tmp_path), "git -c user.email=a@b commit") is None
    assert missing_identity(str(tmp_path), "GIT_AUTHOR_EMAIL=a@b git commit") is None
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "a@b")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "a@b")
    assert missing_identity(str(tmp_path), "git commit -m x") is None


def _content(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_repository_that_is_shown_in_part_is_explained(tmp_path):
    main = tmp_path / "main/.git/worktrees/wt"
    main.mkdir(parents=True)
    (main / "commondir").write_text("../..\n")
    (tmp_path / "wt").mkdir()
    (tmp_path / "wt/.git").write_text(f"gitdir: {main}\n")
    words, shown = ["clone", "-q", str(tmp_path / "wt"), "new"], [str(tmp_path / "wt")]
    assert f"add --read {tmp_path}/main/.git" in (half_shown(words, shown) or "")
    assert half_shown(words, [*shown, f"{tmp_path}/main"]) is None
    lent = tmp_path / "lent/.git/objects/info"
    lent.mkdir(parents=True)
    (lent / "alternates").write_text("/home/x/objects\n/home/x/objects\n/srv/objects\n")
    words = ["clone", str(tmp_path / "lent")]
    told = half_shown(words, [str(tmp_path)])
    assert told.endswith("does not show it: add --read /home/x/objects")  # once; /srv is shown
    assert half_shown(words, [str(tmp_path)], os.getuid()) is None  # another user's
    assert half_shown(words, [], minimal=True).endswith("--read /srv/objects")


def test_a_repository_that_is_not_shown_is_named_once(tmp_path):
    for name in ("objects", "refs"):
        (tmp_path / "r2.git" / name).mkdir(parents=True)
    (tmp_path / "r2.git/HEAD").write_text("ref: refs/heads/main\n")
    told = half_shown(["clone", str(tmp_path / "r2.git")], ["/elsewhere"], minimal=True)
    assert told == f"the sandbox does not show {tmp_path}/r2.git: add --read {tmp_path}/r2.git"


@pytest.mark.parametrize(
    ("mode", "hint"), [(0o644, b"chmod +x"), (0o755, b"a first line that names one")]
)
def test_a_script_that_cannot_be_executed_is_told_what_it_lacks(inside, mode, hint):
    script = inside.workspace / "tool"
    script.write_text("print(1)\n")
    script.chmod(mode)
    done = inside("run", "--", "./tool")
    assert (done.returncode, hint in done.stderr) == (126, True)


def test_a_restart_names_the_command_that_ends_a_sandbox(own):
    own("sandbox create", "--name", "kept")
    refused = own("restart").stderr
    assert b"1 sandbox would end with the daemon" in refused
    assert b"end sandboxes (sandboxctl sandbox list, sandbox destroy); or give --force" in refused
    assert b"wait" not in refused


def test_what_is_for_outside_gets_no_flags_that_do_not_help(inside, folder):
    (folder / "other").mkdir()
    done = inside("run", "--", "git", "remote", "add", "origin", str(folder / "other"))
    assert (
        b"hint: the remotes stay as they are; outside of the sandbox: git remote add" in done.stderr
    )
    assert b"--read" not in done.stderr
    readable = inside("run", "--", "ls", str(folder / "other"))  # the control
    assert b"--read" in readable.stderr


def test_owners_cannot_be_changed_and_the_hint_says_so(inside):
    done = inside("run", "-c", "touch made && chown 12345 made")
    assert done.returncode == 1
    alone = inside("run", "--", "chown", "12345", "made")
    assert b"hint: a sandbox has one user and one group" in alone.stderr


def test_where_an_installed_program_is(inside):
    script = "#!/bin/sh\nmkdir -p $GOPATH/bin $CARGO_HOME/bin $PIPX_HOME/logs $PIPX_BIN_DIR\n"
    script += "mkdir -p $UV_TOOL_DIR/x $UV_TOOL_BIN_DIR\n"
    for name in ("go", "cargo", "pipx", "uv"):
        (inside.workspace / name).write_text(script)
        (inside.workspace / name).chmod(0o755)
    for name, *words in (("go",), ("cargo",), ("pipx",), ("uv", "tool")):
        said = inside("run", "--", f"./{name}", *words, "install", "x").stderr.decode()
        folder = said.partition("what it installed is in ")[2].partition(":")[0]
        assert os.path.isdir(folder), said
    assert inside("run", "-e", "GOBIN=/tmp", "--", "./go", "install", ".").stderr == b""
    assert inside("run", "--", "./cargo", "install", "--root", ".", "x").stderr == b""
    assert inside("run", "--", "./go", "build", ".").stderr == b""


def test_a_sandbox_that_exists_is_made_anew_with_the_flag(inside, folder):
    (folder / "other").mkdir()
    inside("sandbox create", "--name", "kept")
    try:
        done = inside("sandbox run", "kept", "--", "touch", str(folder / "other" / "made"))
        assert done.returncode == 1
        said = done.stderr.decode()
        assert "make another sandbox, with the flags of this one and: sandboxctl" in said
        assert f"sandbox create --write {folder}/other" in said
        assert " add: --write" not in said
        flag = ("--write", str(folder / "other"))
        assert inside("sandbox create", "--name", "wider", *flag).returncode == 0
        made = str(folder / "other" / "made")
        assert inside("sandbox run", "wider", "--", "touch", made).returncode == 0
    finally:
        inside("sandbox destroy", "kept", "wider")


def test_variables_before_a_command_are_given_as_flags(inside):
    done = inside("run", "--", "FOO=1", "BAR=a b", "env", "X=2")
    assert done.returncode == 127
    assert b"variables are set with a flag: -e FOO=1 -e 'BAR=a b' env X=2\n" in done.stderr


def test_a_backend_is_known_by_what_the_config_may_call_it(inside):
    done = inside("check", "--backend", "bwrap")
    assert b"there is no backend" not in done.stderr
    assert b"there is no backend" in inside("check", "--backend", "bwarp").stderr


def test_plan_alone_says_whether_it_is_on(own):
    assert own("plan").stdout == b"plan mode is off\n"
    own("plan", "on")
    assert own("plan").stdout == b"plan mode is on for every session\n"
    assert json.loads(own("plan", "--json").stdout) == {"plan": True, "sessions": []}
    own("plan", "off")
    asked = " ".join(own.argv("plan"))
    done = own("session open", "--plan", "--", "sh", "-c", asked)
    assert done.stdout == b"plan mode is off, but not in every session\n"
    assert b"to end it there: sandboxctl plan off se-" in done.stderr


def test_the_count_of_what_a_session_ended_is_in_the_right_number(own):
    with Client(own.socket_path) as client:
        session = client.session_open(mode="force").session
        client.start(["sleep", "600"], preset="read-only")
        closed = own("session close", session).stdout.decode()
    assert closed == f"{session}: 1 command was ended\n"


@pytest.mark.parametrize(
    ("flags", "words", "code", "said"),
    [
        ([], ["curl", "127.0.0.1:8123"], 7, True),
        ([], ["sh", "-c", "curl -s http://localhost:8123/x"], 7, True),
        ([], ["curl", "http://localhost:8123/x"], 22, False),
        ([], ["curl", "http://example.org/"], 7, False),
        (["--net", "all"], ["curl", "127.0.0.1:8123"], 7, False),
        (["--net", "localhost:8123"], ["curl", "http://localhost:8123"], 7, False),
    ],
)
def test_a_server_in_another_sandbox_is_not_at_localhost(
    flags: list[str], words: list[str], code: int, said: bool
) -> None:
    options = parse(RUN, [*flags, "--", *words])
    found = advise(options, {"outcome": "exited", "exit_code": code, "denials": []})
    assert any("a localhost of its own" in line for line in found) == said


def test_a_descriptor_of_the_shell_outside_is_explained():
    failed = {"outcome": "exited", "exit_code": 2, "denials": []}
    (said,) = advise(parse(RUN, ["diff", "/dev/fd/63", "/dev/fd/62"]), failed)
    assert "/dev/fd/63 is a descriptor of your shell" in said
    assert advise(parse(RUN, ["diff", "/dev/fd/0", "a"]), failed) == []
    assert advise(parse(RUN, ["diff", "/dev/fd/63"]), {**failed, "exit_code": 0}) == []


def test_a_command_of_an_earlier_daemon_is_looked_for_in_the_audit_trail(own):
    unknown = own("logs", "gone")
    assert unknown.returncode == 125
    assert b"for ten minutes and as long as the daemon runs" in unknown.stderr
    assert b"sandboxctl audit" in unknown.stderr


def test_what_deny_hides_is_told_with_the_flag(inside, workspace):
    (workspace / "plain").write_text("x")
    (workspace / "dir").mkdir()
    done = inside("run", "--deny", "plain", "--", "cat", "plain")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == (
        f"sandboxctl: perhaps denied: {workspace}/plain is masked: --deny (fs_deny) hides it, "
        "also where its folder is allowed; commands see it empty\n"
    )
    done = inside("run", "--deny", "dir", "--", "touch", "dir/x")
    assert f"is masked: --deny (fs_deny) hides {workspace}/dir, also" in done.stderr.decode()


def test_a_parser_that_fails_on_what_deny_hides_is_explained(inside, workspace):
    (workspace / "c.json").write_text("{}")
    (workspace / "read.py").write_text('import json\njson.load(open("c.json"))\n')
    (workspace / "fail.py").write_text("raise SystemExit(1)\n")
    said = b"sandboxctl: hint: --deny hides c.json: commands see it empty\n"
    assert said in inside("run", "--deny", "c.json", "--", "python3", "read.py").stderr
    assert inside("run", "--deny", "c.json", "--", "python3", "fail.py").stderr == b""
    assert said not in inside("run", "--", "python3", "read.py").stderr


def test_a_command_whose_sandbox_is_destroyed_has_that_among_the_causes(inside):
    assert inside("sandbox create", "--name", "doomed").returncode == 0
    with inside.start("sandbox run", "doomed", "--", "sh", "-c", "echo up; sleep 600") as running:
        assert running.stdout.readline() == b"up\n"
        assert inside("sandbox destroy", "doomed").returncode == 0
        _, said = running.communicate(timeout=30)
    assert b"or with its sandbox (sandboxctl sandbox destroy)" in said


def test_a_manifest_that_protects_nothing_in_a_writable_repository_is_told(inside, tmp_path):
    line = b"--preset workspace-write keeps these read-only"
    (tmp_path / "repo/.git/hooks").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "bare/objects").mkdir(parents=True)
    (tmp_path / "bare/HEAD").touch()
    for writable, told in (
        (".", True), ("repo", True), ("repo/.git/hooks", True), ("bare", True), ("out", False),
    ):  # fmt: skip
        file = tmp_path / "m.toml"
        file.write_text(f'[sandbox]\nfs_write_allow = ["{writable}"]\n')
        asked = ("--manifest", str(file))
        assert (line in inside("run", *asked, "--", "true").stderr) == told, writable
        assert (line in inside("check", *asked).stderr) == told, writable
    asked = ("--manifest", str(file), "--write", str(tmp_path / "repo"))
    assert line in inside("run", *asked, "--", "true").stderr
    assert line not in inside("run", "-q", *asked, "--", "true").stderr
    preset = ("--preset", "workspace-write", "-w", str(tmp_path / "repo"))
    assert line not in inside("run", *asked, *preset, "--", "true").stderr
