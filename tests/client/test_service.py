"""`sandboxctl service`: what is written and run, twice and undone, for each service manager."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest

from sandboxd_client.service import launchd, logon_task, systemd
from sandboxd_client.service.apply import ServiceInstaller
from sandboxd_proto.errors import SandboxdError

ROOT = Path(__file__).parents[2]
WINDOWS = {"LOCALAPPDATA": r"C:\Users\me\AppData\Local", "USERDOMAIN": "PC", "USERNAME": "me"}


class Manager:
    """A service manager that knows only whether the service was started."""

    def __init__(self, *, fails: str = "") -> None:
        self.active = False
        self.ran: list[str] = []
        self._fails = fails

    def __call__(self, command: Sequence[str]) -> tuple[int, str]:
        line = " ".join(command)
        if any(word in line for word in ("is-active", "print", "/Query")):
            return (0 if self.active else 3), ""
        if "show-environment" not in line:
            self.ran.append(line)
        if self._fails and self._fails in line:
            return 1, "it refused"
        if any(word in line for word in ("enable --now", "bootstrap", "/Create")):
            self.active = True
        if any(word in line for word in ("disable", "bootout", "/Delete")):
            self.active = False
        return 0, ""


def plans(home: Path) -> dict[str, object]:
    environ = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    windows = {**WINDOWS, "LOCALAPPDATA": str(home)}
    program = [str(home / "bin dir" / "sandboxd")]
    return {
        "systemd": systemd.plan(program, environ),
        "launchd": launchd.plan(program, {**environ, "SANDBOXD_SOCKET": "/tmp/s/s.sock"}, 501),
        "task": logon_task.plan(program, windows),
    }


@pytest.mark.parametrize("name", ["systemd", "launchd", "task"])
def test_installing_twice_is_installing_once(name: str, tmp_path: Path) -> None:
    plan, manager = plans(tmp_path)[name], Manager()
    first = ServiceInstaller(plan, manager)  # type: ignore[arg-type]
    first.install()
    assert first.done
    assert manager.active
    ran = list(manager.ran)
    again = ServiceInstaller(plan, manager)  # type: ignore[arg-type]
    again.install()
    assert (again.done, manager.ran) == ([], ran)
    status = again.status()
    assert (status["installed"], status["up_to_date"], status["active"]) == (True, True, True)


@pytest.mark.parametrize("name", ["systemd", "launchd", "task"])
def test_uninstalling_leaves_nothing_and_can_be_repeated(name: str, tmp_path: Path) -> None:
    plan, manager = plans(tmp_path)[name], Manager()
    ServiceInstaller(plan, manager).install()  # type: ignore[arg-type]
    ServiceInstaller(plan, manager).uninstall()  # type: ignore[arg-type]
    assert not manager.active
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    again = ServiceInstaller(plan, manager)  # type: ignore[arg-type]
    again.uninstall()
    assert again.done == []


@pytest.mark.parametrize("name", ["systemd", "launchd", "task"])
def test_a_dry_run_says_every_step_and_does_none(name: str, tmp_path: Path) -> None:
    plan, manager = plans(tmp_path)[name], Manager()
    dry = ServiceInstaller(plan, manager, dry_run=True)  # type: ignore[arg-type]
    dry.install()
    assert manager.ran == []
    assert not list(tmp_path.rglob("*"))
    real = ServiceInstaller(plan, manager)  # type: ignore[arg-type]
    real.install()
    assert dry.done == real.done
    gone = ServiceInstaller(plan, manager, dry_run=True)  # type: ignore[arg-type]
    gone.uninstall()
    assert any(line.startswith("remove ") for line in gone.done)
    assert manager.active


def test_a_changed_file_is_written_and_the_service_started_anew(tmp_path: Path) -> None:
    plan, manager = systemd.plan(["/a/sandboxd"], {"XDG_CONFIG_HOME": str(tmp_path)}), Manager()
    ServiceInstaller(plan, manager).install()
    manager.ran.clear()
    moved = systemd.plan(["/b/sandboxd"], {"XDG_CONFIG_HOME": str(tmp_path)})
    ServiceInstaller(moved, manager).install()
    assert [line.split()[2] for line in manager.ran] == ["disable", "daemon-reload", "enable"]
    assert "ExecStart=/b/sandboxd\n" in Path(moved.files[0].path).read_text()


def test_a_refusal_of_the_manager_is_an_error_with_its_words(tmp_path: Path) -> None:
    plan = systemd.plan(["/a/sandboxd"], {"XDG_CONFIG_HOME": str(tmp_path)})
    with pytest.raises(SandboxdError, match="it refused"):
        ServiceInstaller(plan, Manager(fails="enable")).install()


def test_the_property_list_hands_the_socket_over() -> None:
    socket = "/Users/m e/Library/s.sock"
    raw = launchd.property_list(["/Users/m e/.local/bin/sandboxd"], socket, "/Users/m e")
    parsed = plistlib.loads(raw)
    assert parsed["ProgramArguments"] == ["/Users/m e/.local/bin/sandboxd"]
    listener = parsed["Sockets"]["Listener"]
    assert listener == {"SockFamily": "Unix", "SockPathName": socket, "SockPathMode": 384}
    assert parsed["Umask"] == 63
    assert parsed["StandardErrorPath"] == "/Users/m e/Library/Logs/sandboxd.log"
    assert "/opt/homebrew/bin" in parsed["EnvironmentVariables"]["PATH"]


def test_a_socket_path_that_macos_cannot_hold_is_refused() -> None:
    long = "/Users/" + "x" * 100 + "/s.sock"
    with pytest.raises(ValueError, match="103"):
        launchd.plan(["/s"], {"HOME": "/Users/me", "SANDBOXD_SOCKET": long}, 501)


def test_the_task_runs_as_its_user_when_they_log_on() -> None:
    program = [r"C:\Program Files\Python & Co\sandboxd.exe", "--config", r"C:\a b\c.toml"]
    plan = logon_task.plan(program, WINDOWS)
    text = plan.files[0].content.decode("utf-16")
    tree = ET.fromstring(text.partition("?>")[2])
    space = {"t": "http://schemas.microsoft.com/windows/2004/02/mit/task"}
    assert tree.findtext(".//t:Exec/t:Command", None, space) == program[0]
    assert tree.findtext(".//t:Arguments", None, space) == r'--config "C:\a b\c.toml"'
    assert tree.findtext(".//t:LogonTrigger/t:UserId", None, space) == r"PC\me"
    assert tree.findtext(".//t:RunLevel", None, space) == "LeastPrivilege"
    assert plan.files[0].path == r"C:\Users\me\AppData\Local\sandboxd\logon-task.xml"


@pytest.mark.parametrize(
    ("word", "expected"),
    [("/usr/bin/sandboxd", "/usr/bin/sandboxd"), ("/a b/s", '"/a b/s"'), ("/100%/s", "/100%%/s"),
     ("/$x/s", "/$$x/s"), ('/"/s', '"/\\"/s"'), ("/a\\b", '"/a\\\\b"'), ("", '""')],
)  # fmt: skip
def test_a_word_of_a_unit(word: str, expected: str) -> None:
    assert systemd.quoted(word) == expected


def test_a_line_break_cannot_become_part_of_a_unit() -> None:
    with pytest.raises(ValueError, match="unit"):
        systemd.quoted("/a\nExecStartPre=/bad")


def test_the_files_in_the_repository_are_the_ones_that_are_written() -> None:
    service = systemd.SERVICE.format(program="%h/.local/bin/sandboxd")
    assert (ROOT / "systemd/sandboxd.service").read_text() == service
    assert (ROOT / "systemd/sandboxd.socket").read_text() == systemd.SOCKET
    shown = plistlib.loads((ROOT / "launchd/dev.sandboxd.sandboxd.plist").read_bytes())
    made = launchd.property_list(
        shown["ProgramArguments"], shown["Sockets"]["Listener"]["SockPathName"], "/Users/me"
    )
    assert plistlib.loads(made) == shown


@pytest.mark.requires("systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Its own checker, with the program that is installed here."""
    program = tmp_path / "with space" / "sandboxd"
    program.parent.mkdir()
    shutil.copy("/bin/true", program)
    plan = systemd.plan([str(program)], {"XDG_CONFIG_HOME": str(tmp_path)})
    ServiceInstaller(plan, Manager()).install()
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    command = ["systemd-analyze", "--user", "verify", *(file.path for file in plan.files)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if "sandboxd" in line]
    assert (done.returncode, told) == (0, []), done.stderr
    # The control: it does tell a unit that is wrong.
    Path(plan.files[0].path).write_text(plan.files[0].content.decode().replace("notify", "notfy"))
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert "notfy" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")
def test_the_program_keeps_its_name_through_upgrades(tmp_path: Path) -> None:
    """pipx and uv link ~/.local/bin/sandboxctl into an environment: the link is what is written."""
    environment, links = tmp_path / "venvs" / "sandboxd" / "bin", tmp_path / "bin"
    for folder in (environment, links):
        folder.mkdir(parents=True)
    real = Path(sys.executable).parent
    for name in ("sandboxd", "sandboxctl"):
        (environment / name).write_text(f'#!/bin/sh\nexec {real / name} "$@"\n')
        (environment / name).chmod(0o755)
        (links / name).symlink_to(environment / name)
    code = (
        "import sys; sys.argv[0] = sys.argv.pop(1)\n"
        "from sandboxd_client.cli import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(links / "sandboxctl"), "service", "install", "--dry-run",
         "--json"],
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    from sandboxd_client.cli import service

    old, sys.argv[0] = sys.argv[0], str(links / "sandboxctl")
    try:
        assert service.program() == [str(links / "sandboxd")]
    finally:
        sys.argv[0] = old
    assert not (tmp_path / "config").exists()


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_manager_that_cannot_be_reached_is_said_before_anything_is_written(
    dry_run: bool, tmp_path: Path
) -> None:
    plan, manager = plans(tmp_path)["systemd"], Manager(fails="show-environment")
    service = ServiceInstaller(plan, manager, dry_run=dry_run)  # type: ignore[arg-type]
    if dry_run:
        service.install()
        assert "this would fail now: systemd of this user cannot be reached" in service.done[0]
    else:
        with pytest.raises(SandboxdError, match="cannot be reached"):
            service.install()
    assert not list(tmp_path.iterdir())
