"""A remedy is the narrowest change that would help; None where none would, or none may."""

from __future__ import annotations

from typing import Any

import pytest
from denials.settings import denials, host, setting

from sandboxd.denials.context import HostFile
from sandboxd_proto.manifest import manifest_from

EROFS = ": Read-only file system\n"

CASES: list[tuple[str, dict[str, Any] | None]] = [
    ("bash: line 1: /w/out/old.txt" + EROFS, {"fs_write_allow": ["/w/out/old.txt"]}),
    ("touch: cannot touch '/w/out/new'" + EROFS, {"fs_write_allow": ["/w/out"]}),
    ("rm: cannot remove '/w/out/old.txt'" + EROFS, {"fs_write_allow": ["/w/out"]}),
    ("sed: couldn't open temporary file /w/out/sedX" + EROFS, {"fs_write_allow": ["/w/out"]}),
    ("mkdir: cannot create directory ‘/w/out/d’" + EROFS, {"fs_write_allow": ["/w/out"]}),
    ("cat: /h/u/notes.txt: No such file or directory\n", {"fs_read_allow": ["/h/u/notes.txt"]}),
    # The host's own permissions would refuse it again.
    ("touch: cannot touch '/usr/lib/new'" + EROFS, None),
    # The nearest folder that exists is the whole home: too much for one file.
    ("touch: cannot touch '/h/u/new'" + EROFS, None),
    # Protected, masked, the kernel's.
    ("bash: line 1: .git/hooks/pre-commit" + EROFS, None),
    ("cat: /h/u/.ssh/id: No such file or directory\n", None),
    ("curl: (6) Could not resolve host: example.org\n",
     {"network": {"kind": "allow_hosts", "hosts": ["example.org"]}}),
    ("ssh: connect to host example.org port 22: Network is unreachable\n",
     {"network": {"kind": "allow_hosts", "hosts": ["example.org:22"]}}),
]  # fmt: skip


def test_what_is_put_into_a_hidden_folder_needs_that_folder() -> None:
    missing = ": No such file or directory\n"
    view = host(mine=("/",), more={"/run/a/b/c.txt": HostFile("")})
    for argv, text in (
        (("cp", "-r", ".", "/run/a/b/"), "cp: cannot create directory '/run/a/b/'"),
        (("mv", "q", "/run/a/b/"), "mv: cannot move 'q' to '/run/a/b/'"),
        (("tar", "xf", "a.tar", "-C", "/run/a/b"), "tar: /run/a/b: Cannot open"),
    ):
        (found,) = denials(setting(*argv, view=view), text + missing)
        remedy = {"fs_write_allow": ["/run/a/b"]}
        assert (found.kind, found.remedy) == ("filesystem_write", remedy), text
    packed = setting("tar", "cf", "a.tar", "-C", "/run/a/b", ".", view=view)
    (read,) = denials(packed, "tar: /run/a/b: Cannot open" + missing)
    assert read.kind == "filesystem_read"


@pytest.mark.parametrize("spelled", ["~/d/tool", "$HOME/d/tool", '"${HOME}/d/tool"'])
def test_what_a_shell_calls_home_is_named_by_the_caller(spelled: str) -> None:
    """A file that is no plain data is not proposed for the command's words alone."""
    view = host(more={"/h/u/d/tool": HostFile("", program=True)})
    text = "sh: 1: cannot create /h/u/d/tool: Directory nonexistent\n"
    (asked,) = denials(setting("sh", "-c", f"echo x > {spelled}", view=view), text)
    assert asked.remedy == {"fs_write_allow": ["/h/u/d/tool"]}
    for script in ("./build", "echo a~/d/tool", "echo '~root/d/tool'"):
        (said,) = denials(setting("sh", "-c", script, view=view), text)
        assert said.remedy is None, script


@pytest.mark.parametrize(("text", "remedy"), CASES)
def test_the_remedy_is_the_narrowest_that_helps(text: str, remedy: dict[str, Any] | None) -> None:
    (found,) = denials(setting(), text)
    assert found.remedy == remedy


@pytest.mark.parametrize("text", [text for text, remedy in CASES if remedy])
def test_every_remedy_is_a_manifest(text: str) -> None:
    (found,) = denials(setting(), text)
    manifest_from(found.remedy)


def test_pip_without_a_host_is_answered_with_the_group_of_its_hosts() -> None:
    text = "WARNING: Retrying: [Errno -3] Temporary failure in name resolution: /simple/x/\n"
    (found,) = denials(setting("python3", "-m", "pip", "install", "x"), text)
    assert (found.confidence, found.claimed) == ("medium", True)
    assert found.remedy is None
    assert "--net group:python" in found.message


def test_a_file_that_is_granted_alone_comes_with_a_warning() -> None:
    (found,) = denials(setting(), "bash: line 1: /w/out/old.txt" + EROFS)
    assert "renaming" in found.message
