"""A remedy is the narrowest change that would help; None where none would, or none may."""

from __future__ import annotations

from typing import Any

import pytest
from denials.settings import WS, denials, host, setting
from msgspec.structs import replace

from sandboxd.denials.context import HostFile, HostView, Setting
from sandboxd.denials.text.outputs import outputs
from sandboxd.denials.withheld import withheld
from sandboxd.policy.mounts.mount_plan import Mount, MountKind, MountPlan
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


MISSING = ": No such file or directory\n"
# Messages that do not say whether the file was read or written: the program and its words do.
OUTPUTS: list[tuple[str, str, str]] = [
    ("tee /h/u/d/new", "tee: /h/u/d/new" + MISSING, "/h/u/d"),
    ("tee -a /h/u/d/old", "tee: /h/u/d/old" + MISSING, "/h/u/d/old"),
    ("tar cf /h/u/d/x.tar a", "tar: /h/u/d/x.tar: Cannot open" + MISSING, "/h/u/d"),
    ("tar -c -v -f /h/u/d/x.tar a", "tar: /h/u/d/x.tar: Cannot open" + MISSING, "/h/u/d"),
    ("dd if=a of=/h/u/d/new", "dd: failed to open '/h/u/d/new'" + MISSING, "/h/u/d"),
    ("dd if=a of=/h/u/d/old", "dd: failed to open '/h/u/d/old'" + MISSING, "/h/u/d/old"),
    ("sort -o /h/u/d/new a", "sort: open failed: /h/u/d/new" + MISSING, "/h/u/d"),
    ("sort --output=/h/u/d/old a", "sort: open failed: /h/u/d/old" + MISSING, "/h/u/d/old"),
    ("curl -so /h/u/d/new file:///etc/hosts", "", "/h/u/d"),
    ("wget -qO /h/u/d/new http://localhost/", "/h/u/d/new" + MISSING, "/h/u/d"),
    ("zip /h/u/d/old a", "zip error: Could not create output file (/h/u/d/old)\n", "/h/u/d"),
    ("sed -i s/a/b/ /h/u/d/old", "sed: can't read /h/u/d/old" + MISSING, "/h/u/d"),
    ("sed -n -Ei.bak s/a/b/ /h/u/d/old", "sed: can't read /h/u/d/old" + MISSING, "/h/u/d"),
    ("perl -pi -e s/a/b/ /h/u/d/old", "Can't open /h/u/d/old" + MISSING, "/h/u/d"),
    ("gzip /h/u/d/old", "gzip: /h/u/d/old" + MISSING, "/h/u/d"),
    ("chmod +x /h/u/d/old", "chmod: cannot access '/h/u/d/old'" + MISSING, "/h/u/d/old"),
    ("mv /h/u/d/old .", "mv: cannot stat '/h/u/d/old'" + MISSING, "/h/u/d"),
    ("javac -d /h/u/d A.java", "error while writing A: could not create parents\n", "/h/u/d"),
    ("javac -d /h/u/d A.java", "error\n", "/h/u/d"),
]  # fmt: skip
INPUTS = [
    ("tar xf /h/u/d/old", "tar: /h/u/d/old: Cannot open" + MISSING),
    ("sed s/a/b/ /h/u/d/old", "sed: can't read /h/u/d/old" + MISSING),
    ("gzip -c /h/u/d/old", "gzip: /h/u/d/old" + MISSING),
    ("dd if=/h/u/d/old of=b", "dd: failed to open '/h/u/d/old'" + MISSING),
    ("sort -o b /h/u/d/old", "sort: cannot read: /h/u/d/old" + MISSING),
    ("java -jar /h/u/d/old", "Error: Unable to access jarfile /h/u/d/old\n"),
]


def _folder_of_mine() -> HostView:
    return host(more={"/h/u/d/old": HostFile("")})


@pytest.mark.parametrize(("line", "text", "needed"), OUTPUTS)
def test_what_a_program_writes_needs_to_be_writable(line: str, text: str, needed: str) -> None:
    (found,) = denials(setting(*line.split(), view=_folder_of_mine()), text)
    assert (found.kind, found.remedy) == ("filesystem_write", {"fs_write_allow": [needed]})


@pytest.mark.parametrize(("line", "text"), INPUTS)
def test_what_it_reads_needs_to_be_readable(line: str, text: str) -> None:
    (found,) = denials(setting(*line.split(), view=_folder_of_mine()), text)
    assert found.remedy == {"fs_read_allow": ["/h/u/d/old"]}


def test_what_is_missing_everywhere_and_only_read_has_no_remedy() -> None:
    text = "Error: Unable to access jarfile /h/u/d/new.jar\n"
    assert denials(setting("java", "-jar", "/h/u/d/new.jar", view=_folder_of_mine()), text) == []
    assert (
        denials(setting("tool", "/h/u/d/new", view=_folder_of_mine()), "cannot open /h/u/d/new\n")
        == []
    )


@pytest.mark.parametrize("text", [
    "Error: Cannot find module 'other'\n",
    "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'other' imported from /w/ws/[eval]\n",
])  # fmt: skip
def test_a_package_that_a_link_leads_to_is_shown_as_a_folder(text: str) -> None:
    files = {"/h/u/other/index.js": HostFile(""), f"{WS}/node_modules/other": HostFile("", "link")}
    linked = {f"{WS}/node_modules/other": "/h/u/other"}
    view = host(more=files)
    view = replace(view, canonical=lambda path: linked.get(path, path))
    (found,) = denials(setting("node", "app.js", view=view), text)
    assert (found.target, found.remedy) == ("/h/u/other", {"fs_read_allow": ["/h/u/other"]})
    assert denials(setting("node", "app.js", view=host()), text) == []


def test_packages_in_a_folder_above_are_shown_together() -> None:
    view = host(more={"/h/u/node_modules/other/index.js": HostFile("")})
    where = replace(setting("node", "app.js", view=view), cwd="/h/u/app")
    (found,) = denials(where, "Error: Cannot find module 'other'\n")
    folder = "/h/u/node_modules"
    assert (found.target, found.remedy) == (folder, {"fs_read_allow": [folder]})
    assert denials(where, "Error: Cannot find module 'none'\n") == []


def test_a_package_is_shown_with_its_manifest_and_a_virtual_environment_as_a_whole() -> None:
    view = host(more={"/h/u/pkg/package.json": HostFile("")})
    text = "ENOENT: no such file or directory, open '/h/u/pkg/package.json'\n"
    (found,) = denials(setting("npm", "install", "/h/u/pkg", view=view), text)
    assert found.remedy == {"fs_read_allow": ["/h/u/pkg"]}
    files = {f"/h/u/v/{name}": HostFile("") for name in ("pyvenv.cfg", "bin/python", "bin/tool")}
    text = "bash: ./tool: /h/u/v/bin/python: bad interpreter: No such file or directory\n"
    (found,) = denials(setting("bash", "-c", "./tool", view=host(more=files)), text)
    assert found.remedy == {"fs_read_allow": ["/h/u/v"]}


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
        assert "and it may be a program or a program's settings" in said.message


IN_NAMED_FOLDER = [
    ("cp a /w/d", "cp: cannot create regular file '/w/d/a': Read-only file system"),
    ("mkdir -p /w/d/e/f", "mkdir: cannot create directory ‘/w/d/e’: Read-only file system"),
    ("sed -i s/a/b/ /w/d/t", "sed: couldn't open temporary file /w/d/sedX1: Read-only file system"),
    ("curl -so /w/d/new file:///etc/hosts", ""),
    ("python3 -m venv /w/d/e", "Error: [Errno 30] Read-only file system: '/w/d/e'"),
    ("python3 -c os.makedirs('/w/d/e/f')", "OSError: [Errno 30] Read-only file system: '/w/d/e'"),
    ("python3 -c Path('/w/d/e/f').mkdir()", "OSError: [Errno 30] Read-only file system: '/w/d/e'"),
]


@pytest.mark.parametrize(("line", "text"), IN_NAMED_FOLDER)
def test_a_folder_that_the_command_line_writes_in_is_proposed_whatever_it_holds(
    line: str, text: str
) -> None:
    view = host(more={"/w/d/t": HostFile("", program=True)})
    (found,) = denials(setting(*line.split(), view=view), text + "\n")
    assert found.remedy == {"fs_write_allow": ["/w/d"]}
    if text:
        (printed,) = denials(setting("make", view=view), text + "\n")
        assert printed.remedy is None


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


@pytest.mark.parametrize(
    "program", ["sort", "gcc", "tar", "dd", "sed", "tee", "curl", "zip", "jar"]
)
@pytest.mark.parametrize("words", [[], [""], ["-"], ["--"], ["-o"], ["--output"], ["of="], ["cf"]])
def test_unfinished_command_lines_name_no_fault(program: str, words: list[str]) -> None:
    assert all(one.path for one in outputs(program, words))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        # The file is not masked; what would have to be writable for it holds what is.
        ("touch: cannot touch '/w/new': Read-only file system",
         "/w would have to be writable, and it holds /w/ws/.env, which is masked"),
        ("touch: cannot touch '/h/u/x': Read-only file system",
         "all of /h/u would have to be writable"),
        ("touch: cannot touch '/etc/x': Read-only file system",
         "all of /etc would have to be writable"),
        ("ls: cannot access '/h/u/lib': No such file or directory",
         "it is another user's home, or lies in one"),
    ],
)  # fmt: skip
def test_the_message_says_what_stands_in_the_way(text: str, why: str) -> None:
    view = host(mine=("/",), strangers="/h/u/lib")
    (found,) = denials(setting(view=view), f"{text}\n")
    assert found.remedy is None
    assert found.message.partition(". No change is proposed: ")[2] == why


def test_what_lies_around_the_workspace_and_a_mask_in_a_strangers_home_are_called_so() -> None:
    text = "touch: cannot touch '/w/new': Read-only file system\n"
    where = setting(view=host(mine=("/",)))
    (found,) = denials(replace(where, plan=replace(where.plan, workspace=WS)), text)
    around = "/w would have to be writable, and that would open a folder around the workspace"
    assert found.message.endswith(f". No change is proposed: {around}")
    # The home holds a mask, which is not why it is kept; what is masked stays so with any flag.
    strange = setting(view=host(strangers="/h/u"))
    assert withheld(strange, "/h/u", "read") == "it is another user's home, or lies in one"
    assert withheld(strange, "/h/u/.ssh/id", "read") == "it is masked"


def granted(path: str, **more: Any) -> Setting:
    """/w/ws is writable, and so is `path` itself."""
    where = setting(view=host(mine=("/w",), more={path: HostFile("")}), **more)
    return replace(where, layout=MountPlan([*where.layout.places, Mount(path, MountKind.WRITE)]))


@pytest.mark.parametrize("path", [f"{WS}/.git/HEAD", f"{WS}/README.md"])
def test_a_granted_file_that_is_a_mount_is_written_in_place_only(path: str) -> None:
    busy = f"mv: cannot move 'x' to '{path}': Device or resource busy\n"
    (found,) = denials(granted(path), busy)
    assert "it is in fs_write_allow itself, and such a file can only be written" in found.message
    assert found.remedy is None
    assert "proposed" not in found.message, "its folder is writable already"


@pytest.mark.parametrize(
    ("reason", "landlock"), [("Read-only file system", False), ("Permission denied", True)]
)
def test_a_granted_file_in_a_read_only_folder_needs_the_folder_to_be_replaced(
    reason: str, landlock: bool
) -> None:
    where = granted("/w/out/old.txt", landlock=landlock)
    (found,) = denials(where, f"rm: cannot remove '/w/out/old.txt': {reason}\n")
    assert "could not be replaced, renamed or removed (remove): it is in fs_write" in found.message
    assert found.remedy == {"fs_write_allow": ["/w/out"]}
    assert not denials(where, f"bash: line 1: /w/out/old.txt: {reason}\n"), "it can be written"


def test_in_plan_mode_nothing_is_proposed_that_it_would_refuse() -> None:
    for text, remedy in CASES:
        for found in denials(setting(plan_flags=("se-1", "user")), text):
            assert found.remedy is None, text
            if remedy is not None:
                assert found.message.endswith("plan mode is on (se-1, user)")
    where = setting(plan_flags=("se-1",))
    where = replace(where, plan=replace(where.plan, preset="read-only", workspace=WS))
    where = replace(where, layout=MountPlan([Mount("/", MountKind.SYSTEM)]))
    (found,) = denials(where, "touch: cannot touch 'z'" + EROFS)
    assert found.message.endswith(
        "makes nothing writable. No change is proposed: plan mode is on (se-1)"
    )
