"""Settings that the daemon was started with, and a caller's variables that do not reach it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sandboxd.config.loading import load
from sandboxd.config.staleness import ConfigFile


@pytest.fixture
def with_backend(ctl, start_daemon):
    """sandboxctl with a daemon whose settings name a backend that does not work here."""
    host = "unix:///nonexistent/engine.sock"
    ctl.socket_path = start_daemon(
        config=f'[docker]\nhost = "{host}"\n', env={"SANDBOXD_BACKEND": "docker"}
    ).socket
    return ctl


def test_doctor_says_that_the_named_backend_is_the_one_that_fails(with_backend):
    done = with_backend("doctor")
    text = " ".join(done.stdout.decode().split())
    assert done.returncode == 1
    assert "FAIL every command is refused: the setting backend" in text
    assert "names docker, which does not work" in text
    assert "or leave the setting out and restart" in text
    assert "works, not used" in text
    assert "backend opensandbox" not in text
    assert "any one of the fixes" not in text
    shown = " ".join(with_backend("status").stdout.decode().split())
    assert "docker does not work: every command is refused" in shown
    assert "no sandbox works here" not in shown


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_variables_that_only_the_daemon_has_are_said(with_backend, command):
    def said(**variables):
        return " ".join(with_backend(command, **variables).stdout.decode().split())

    assert "the daemon was started with SANDBOXD_BACKEND=docker, which you do not set" in said()
    assert "which you do not set" not in said(SANDBOXD_BACKEND="docker")


def test_doctor_says_why_a_backend_that_works_is_used(ctl, start_daemon):
    ctl.socket_path = start_daemon(config='backend = "landlock"\n').socket
    text = " ".join(ctl("doctor").stdout.decode().split())
    assert "commands run with landlock, which the setting backend" in text


def test_an_engine_that_is_missing_is_answered_by_what_to_do(with_backend):
    hint = with_backend("run", "--", "true").stderr.decode()
    assert "hint:" in hint
    assert "for the local sandbox set SANDBOXD_BACKEND=auto, then sandboxctl restart" in hint


def test_a_backend_of_the_config_file_is_answered_by_its_line(ctl, start_daemon, folder):
    config = f'backend = "docker"\n[docker]\nhost = "unix://{folder}/none.sock"\n'
    ctl.socket_path = start_daemon(config=config).socket
    hint = ctl("run", "--", "true").stderr.decode()
    assert 'for the local sandbox set backend = "auto" in the config, then sandboxctl re' in hint
    assert "SANDBOXD_BACKEND" not in hint


def test_a_typed_backend_is_left_out_again(inside, folder, start_daemon):
    inside.socket_path = start_daemon(
        config=f'[docker]\nhost = "unix://{folder}/none.sock"\n'
    ).socket
    done = inside("run", "--backend", "docker", "--", "true")
    assert done.returncode == 125
    assert b"for the local sandbox leave --backend out" in done.stderr
    assert b"SANDBOXD_BACKEND" not in done.stderr


@pytest.mark.parametrize("command", [("run", "--", "true"), ("status",), ("doctor",), ("check",)])
def test_variables_that_the_daemon_was_not_started_with_are_said(inside, command):
    def said(**variables):
        done = inside(*command, **variables)
        return " ".join((done.stdout + done.stderr).decode().split())

    assert "no effect" not in said(SANDBOXD_BACKEND="auto")
    other = said(SANDBOXD_BACKEND="landlock", SANDBOXD_CONFIG="/x.toml")
    assert "SANDBOXD_BACKEND=landlock" in other
    assert "SANDBOXD_CONFIG=/x.toml" in other
    assert "has no effect on the daemon that runs" in other
    assert "`sandboxctl restart`" in other
    none = said(SANDBOXD_BACKEND="none", SANDBOXD_ALLOW_NO_SANDBOX="1")
    assert none.count("have no effect: they are not handed to a daemon") == 1
    assert "has no effect on the daemon" not in none


def test_a_key_is_not_shown(start_daemon):
    with start_daemon(env={"SANDBOXD_OPENSANDBOX_API_KEY": "swordfish"}).connect() as connection:
        answer = connection.call("initialize", {})
    assert "swordfish" not in str(answer)


def test_quiet_says_nothing_about_variables(inside):
    assert inside("run", "--quiet", "--", "true", SANDBOXD_BACKEND="landlock").stderr == b""


def test_an_edit_right_after_the_start_is_said_and_only_once(ctl, start_daemon):
    daemon = start_daemon(config="[ceiling]\nmax_timeout_secs = 3600\n")
    ctl.socket_path = daemon.socket
    assert ctl("run", "--", "true").stderr == b""
    config = daemon.home / ".config" / "sandboxd" / "config.toml"
    config.write_text(config.read_text() + "# edited\n")
    done = ctl("run", "--", "true")
    assert (done.returncode, done.stderr.count(b"changed after the daemon had read it")) == (0, 1)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [("backend = auto\n", "is not TOML"), ('backend = "dokcer"\n', "dokcer"), ("pol = 1\n", "pol")],
)
def test_a_mistake_in_an_edited_config_is_named(ctl, start_daemon, text, mistake):
    daemon = start_daemon(config="")
    ctl.socket_path = daemon.socket
    config = daemon.home / ".config" / "sandboxd" / "config.toml"
    config.write_text(text)
    for words in (("run", "--", "true"), ("status",), ("doctor",)):
        done = ctl(*words)
        said = " ".join((done.stdout + done.stderr).decode().split())
        assert done.returncode == 0
        before, _, after = said.partition(
            "changed after the daemon had read it, and no daemon would"
        )
        assert mistake in after.partition("; correct that, then `sandboxctl restart`")[0], said
        assert "restart" not in before
    config.write_text("# right\n")
    assert b"read it; `sandboxctl restart` makes it" in ctl("run", "--", "true").stderr


def test_an_edit_while_the_daemon_starts_counts_as_one_after_it(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("")
    file = ConfigFile(str(path))
    load(str(path), {}, {}, required=True)
    path.write_text('backend = "landlock"\n')
    assert "changed after" in file.warnings()[0]


def test_a_config_of_the_same_content_has_not_changed(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text("# one\n")
    file = ConfigFile(str(path))
    os.utime(path, ns=(1, 1))
    assert file.warnings() == []
    path.write_text("# two\n")
    os.utime(path, ns=(2, 2))
    assert "changed after" in file.warnings()[0]
    assert "changed after" in file.warnings()[0]
    (tmp_path / "new").write_text("# one\n")
    (tmp_path / "new").replace(path)
    assert file.warnings() == []
    path.unlink()
    assert "changed after" in file.warnings()[0]


def test_status_promises_no_daemon_that_would_not_start(ctl, folder):
    config = folder / "config.toml"
    own = ctl.env(SANDBOXD_CONFIG=str(config), XDG_RUNTIME_DIR=str(folder))

    def status():
        done = subprocess.run([sys.executable, "-m", "sandboxd_client.cli", "status"],
                              capture_output=True, env=own, timeout=60)  # fmt: skip
        assert done.returncode == 125
        return " ".join(done.stdout.decode().split())

    config.write_text('backend = "x"\n')
    assert f"a new daemon would not start: {config}: backend: there is no backend 'x'" in status()
    config.write_text("")
    assert "it starts by itself with the next command" in status()


def test_status_and_doctor_say_where_the_log_is(ctl, folder):
    ctl.socket_path, ctl.extra = str(folder / "run" / "d.sock"), []
    try:
        assert ctl("run", "--", "true").returncode == 0
        shown = ctl("status").stdout.decode()
        log = folder / "run" / "d.log"
        assert f"log        {log}\n" in shown
        assert f"log: {log}" in " ".join(ctl("doctor").stdout.decode().split())
    finally:
        ctl("shutdown", "--force")


@pytest.mark.parametrize("words", [("config show",), ("config show", "--json"), ("config check",)])
def test_settings_that_cannot_be_written_end_like_those_of_other_commands(ctl, words):
    read, write = os.pipe()
    os.close(read)
    with open("/dev/full", "wb") as full, os.fdopen(write, "wb") as left:
        failed = ctl.start(*words, stdout=full)
        assert b"could not be written: No space left on device" in failed.communicate(timeout=60)[1]
        assert failed.returncode == 1
        closed = ctl.start(*words, stdout=left)
        assert closed.communicate(timeout=60)[1] == b""
        assert closed.returncode == 141
