"""`base`: what a command sees of the machine without being allowed anything."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from support.subject import Subject

BASES = ["minimal", "host"]


@pytest.mark.asks("base")
@pytest.mark.parametrize("base", BASES)
def test_programs_run(subject: Subject, base: str) -> None:
    script = "ls /usr/bin > /dev/null && cat /etc/passwd > /dev/null && python3 -c 'print(1)'"
    ran = subject.shell(script, manifest={"base": base})
    assert ran.stdout == "1\n", ran.story


# What was made is removed at once: without a sandbox, root makes it on the host.
PLANT = """
import os
for folder in ("/", "/usr", "/usr/bin", "/etc", "/var", "/opt"):
    path = os.path.join(folder, "sandboxd-conformance")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.unlink(path)
        print(folder)
    except OSError:
        pass
"""


@pytest.mark.holds("base")
@pytest.mark.parametrize("base", BASES)
def test_the_system_is_not_written(subject: Subject, base: str) -> None:
    """Neither the host's files nor ones that would vanish with the sandbox."""
    ran = subject.python(PLANT, manifest={"base": base})
    if subject.works_on_copies:  # its own image, which others do not see, and says so
        assert ran.enforcement["base"] == "best_effort"
        subject.shell("echo x >/etc/sandboxd-planted", manifest={"base": base})
        assert not subject.shell("cat /etc/sandboxd-planted", manifest={"base": base}).exited(0)
        assert not os.path.exists("/etc/sandboxd-planted")
        return
    assert ran.stdout == "", ran.story


@pytest.mark.holds("base")
@pytest.mark.parametrize("base", BASES)
def test_the_hosts_tmp_is_not_the_commands(subject: Subject, base: str, tmp_path: Path) -> None:
    mark = Path(f"/tmp/sandboxd-conformance-{os.getpid()}")
    mark.write_text("of the host")
    try:
        script = 'cat "$1"; echo x > "$1.left"; true'
        ran = subject.shell(script, str(mark), manifest={"base": base})
        assert "of the host" not in ran.stdout
        assert not os.path.lexists(f"{mark}.left")
    finally:
        mark.unlink()
        Path(f"{mark}.left").unlink(missing_ok=True)


@pytest.mark.asks("base")
@pytest.mark.parametrize("base", BASES)
def test_temporary_files_can_be_made(subject: Subject, base: str) -> None:
    ran = subject.shell('f=$(mktemp) && echo x > "$f" && cat "$f"', manifest={"base": base})
    assert ran.stdout == "x\n", ran.story


@pytest.mark.holds("base", fully=True)
def test_what_one_command_keeps_in_tmp_is_gone_for_the_next(subject: Subject) -> None:
    manifest = {"base": "minimal"}
    assert subject.shell("echo x > /tmp/kept && cat /tmp/kept", manifest=manifest).stdout == "x\n"
    assert not subject.shell("cat /tmp/kept", manifest=manifest).exited(0)


@pytest.mark.holds("base", fully=True)
@pytest.mark.parametrize("base", BASES)
def test_processes_of_the_host_are_not_visible(subject: Subject, base: str) -> None:
    code = "import os; print(len([n for n in os.listdir('/proc') if n.isdigit()]))"
    ran = subject.python(code, manifest={"base": base})
    assert int(ran.stdout) < 10


@pytest.mark.holds("base")
@pytest.mark.parametrize("base", BASES)
def test_the_home_folder_is_not_visible(subject: Subject, base: str) -> None:
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    secret = home / f".sandboxd-conformance-{os.getpid()}"
    secret.write_text("secret")
    try:
        ran = subject.shell('cat "$1" 2>/dev/null', str(secret), manifest={"base": base})
        assert ran.stdout == ""
    finally:
        secret.unlink()


def test_the_user_has_a_name(subject: Subject) -> None:
    """Programs ask the account database who they are."""
    code = "import os, pwd; print(pwd.getpwuid(os.getuid()).pw_name)"
    ran = subject.python(code)
    assert ran.exited(0), ran.story


@pytest.mark.parametrize("device", ["null", "zero", "urandom"])
def test_ordinary_devices_work(subject: Subject, device: str) -> None:
    script = f"head -c 8 /dev/{device} | wc -c; echo x > /dev/null"
    expected = "0" if device == "null" else "8"
    assert subject.shell(script).stdout.strip() == expected
