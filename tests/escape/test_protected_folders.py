"""A protected folder that a command makes stays until the command ends, and is emptied meanwhile.

Who writes several files into it is not disturbed; no file is active in it for longer than a moment.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from support.attacks import Box, Victim, freely, python
from support.git_attacks import HOW, attack, git, make_repository
from support.runs import Ran

pytestmark = [pytest.mark.isolation, pytest.mark.requires("git")]

# Until the daemon has moved the file.
WAIT = """
    import time
    def until_gone(path):
        deadline = time.monotonic() + 30
        while os.path.lexists(path) and time.monotonic() < deadline:
            time.sleep(0.001)
        return not os.path.lexists(path)
"""


def kept(repository: Path) -> dict[str, Path]:
    """What lies in the kept folder, by the name that it appeared as."""
    entries = repository.glob(".sandboxd-kept/*/*-*")
    return {path.name.partition("-")[2].replace("%2E", "."): path for path in entries}


def files_in(folder: Path) -> dict[str, str]:
    found = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_text()
        for path in found
    }


def is_reported(ran: Ran) -> bool:
    return any(denial["kind"] == "protected_path" for denial in ran.denials)


@pytest.mark.parametrize("how", HOW)
def test_a_script_that_goes_on_writing_is_not_disturbed(
    box: Box, workspace: Path, how: str
) -> None:
    """It writes the next file when the one before has been moved aside."""
    program = python(WAIT, """
        os.makedirs(".vscode/inner")
        os.chmod(".vscode", 0o750)
        for name in ("a", "inner/b", "c", "inner/d"):
            with open(f".vscode/{name}", "w") as file:
                file.write(name)
            os.rename(f".vscode/{name}", f".vscode/{name}.json")
            os.symlink("a.json", f".vscode/{name}.link")
            os.lstat(f".vscode/{name}.link")
            if not until_gone(f".vscode/{name}.json"):
                blocked("it stays")
        worked()
    """)  # fmt: skip
    repository = make_repository(workspace)
    ran = attack(box, how, repository, program)
    assert ran.exit_code == 42, ran.story
    assert is_reported(ran), ran.story
    assert not (repository / ".vscode").exists()
    (folder,) = kept(repository).values()
    names = ("a", "inner/b", "c", "inner/d")
    links = {f"{name}.link": "a.json" for name in names}
    assert files_in(folder) == {f"{name}.json": name for name in names} | links
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    assert folder.stat().st_uid == repository.stat().st_uid
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    "command",
    [
        ("checkout", "-q", "other"),
        ("merge", "-q", "other"),
        ("rebase", "-q", "main", "other"),
        ("cherry-pick", "other~1", "other"),
        ("stash", "pop", "-q", "--index"),
        ("stash", "pop", "-q"),
    ],
    ids=" ".join,
)
def test_git_that_writes_slowly_is_not_disturbed(
    box: Box, workspace: Path, command: tuple[str, ...]
) -> None:
    """A filter holds git up before each file until the ones before were moved aside."""
    repository = make_repository(workspace)
    (repository / ".gitattributes").write_text(".vscode/** filter=slow\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "-q", "-m", "attributes")
    wanted = {"a.json": "a\n", "b/c.json": "c\n", "d.json": "d\n", "link": "a.json"}

    def write() -> None:
        (repository / ".vscode/b").mkdir(parents=True)
        for name, text in wanted.items():
            if name != "link":
                (repository / ".vscode" / name).write_text(text)
        (repository / ".vscode/link").symlink_to("a.json")
        git(repository, "add", "-A")

    git(repository, "checkout", "-q", "-b", "other")
    write()
    git(repository, "commit", "-q", "-m", "editor")
    (repository / "more").write_text("more\n")
    git(repository, "add", "more")
    git(repository, "commit", "-q", "-m", "more")
    git(repository, "checkout", "-q", "main")
    (repository / "last").write_text("last\n")
    git(repository, "add", "last")
    git(repository, "commit", "-q", "-m", "last")
    if command[0] == "stash":
        write()
        git(repository, "stash")
    assert not (repository / ".vscode").exists()
    slow = 'i=0; while [ $i -lt 500 ] && [ -n "$(find .vscode -type f 2>/dev/null)" ]; do sleep 0.02; i=$((i+1)); done; cat'  # noqa: E501
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    ran = box.run(
        "git", *who, "-c", f"filter.slow.smudge={slow}", *command,
        preset="workspace-write", workspace=str(repository),
    )  # fmt: skip
    assert ran.exited(0), ran.story
    assert is_reported(ran), ran.story
    assert not (repository / ".vscode").exists()
    (folder,) = kept(repository).values()
    assert files_in(folder) == wanted
    folder.rename(repository / ".vscode")
    left = git(repository, "status", "--porcelain").splitlines()
    assert all(line.startswith("A  .vscode/") for line in left), left
    assert bool(left) == (command[0] == "stash")


def test_a_file_that_is_made_again_and_again_ends_the_command(box: Box, workspace: Path) -> None:
    """A process in the background makes the file again whenever it was moved, or for a moment."""
    program = python("""
        os.mkdir(".vscode")
        for _ in range(int(args[0])):
            open(".vscode/tasks.json", "w").write("changed")
            if args[1] == "remove":
                os.unlink(".vscode/tasks.json")
        worked()
    """)
    repository = make_repository(workspace)
    assert freely(program, 10, "remove", cwd=repository).worked
    (repository / ".vscode").rmdir()
    ran = attack(box, "cold", repository, program, 100_000_000, "remove")
    assert ran.exit_code != 42, ran.story
    assert is_reported(ran), ran.story
    assert not (repository / ".vscode").exists()


@pytest.mark.parametrize("how", HOW)
def test_a_kept_file_that_is_linked_back_is_moved_again(
    box: Box, workspace: Path, how: str
) -> None:
    """To rename a file over a second name of itself does nothing."""
    program = python(WAIT, """
        import glob
        os.mkdir(".vscode")
        open(".vscode/tasks.json", "w").write("changed")
        until_gone(".vscode/tasks.json")
        (moved,) = glob.glob(".sandboxd-kept/*/*/tasks.json")
        os.link(moved, ".vscode/tasks.json")
        worked() if until_gone(".vscode/tasks.json") else blocked("it stays")
    """)  # fmt: skip
    repository = make_repository(workspace)
    ran = attack(box, how, repository, program)
    assert ran.exit_code == 42, ran.story
    assert not (repository / ".vscode").exists()


@pytest.mark.parametrize("place", [".vscode", ".vscode/inner", "kept", "kept/inner"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(
    box: Box, workspace: Path, tmp_path: Path, place: str
) -> None:
    """Exchange a folder that is being emptied, or that takes the files, for a link out."""
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = Victim(outside / "tasks.json")
    program = python(WAIT, """
        import glob
        os.makedirs(".vscode/inner")
        open(".vscode/inner/first", "w").write("x")
        if not until_gone(".vscode/inner/first"):
            blocked("it stays")
        (kept,) = glob.glob(".sandboxd-kept/*/*vscode")
        place = args[0].replace("kept", kept)
        os.rename(place, "aside")
        os.symlink(args[1], place)
        for name in ("tasks.json", "inner/tasks.json"):
            try:  # the folder can be taken as a whole
                os.makedirs(".vscode/inner", exist_ok=True)
                open(f".vscode/{name}", "w").write("changed") if "kept" in args[0] else None
            except OSError:
                pass
            until_gone(f".vscode/{name}")
        worked()
    """)  # fmt: skip
    repository = make_repository(workspace)
    ran = attack(box, "cold", repository, program, place, outside)
    assert ran.exit_code == 42, ran.story
    assert victim.untouched
    assert os.listdir(outside) == ["tasks.json"]
    assert not os.path.lexists(repository / ".vscode")


@pytest.mark.parametrize("shape", ["deep", "wide"])
def test_a_folder_that_is_too_large_to_be_emptied_does_not_stay(
    box: Box, workspace: Path, shape: str
) -> None:
    program = python(WAIT, """
        os.mkdir(".vscode")
        if args[0] == "deep":
            os.makedirs("x/" + "y/" * 40)
            os.rename("x", ".vscode/x")
        else:
            for number in range(3000):
                os.mkdir(f".vscode/{number}")
        worked() if until_gone(".vscode") else blocked("it stays")
    """)  # fmt: skip
    repository = make_repository(workspace)
    ran = attack(box, "cold", repository, program, shape)
    # The one that is too wide may be taken while it is made.
    assert ran.exit_code in ((42, 43) if shape == "wide" else (42,)), ran.story
    assert is_reported(ran)
    assert not (repository / ".vscode").exists()


def test_nothing_stays_after_a_cancel(box: Box, workspace: Path) -> None:
    program = python("""
        import time
        os.mkdir(".vscode")
        for number in range(4000):
            open(f".vscode/{number % 40}", "w").write("x")
            time.sleep(0.05)
            if number == 10:
                print("up", flush=True)
    """)
    repository = make_repository(workspace)
    params = {
        "argv": list(program), "preset": "workspace-write", "workspace": str(repository),
        "backend": box.backend, "stream": True, "execution_id": "writes",
    }  # fmt: skip
    with box.daemon.connect(timeout_s=60) as client:
        asked = client.start("execute", params)
        client.notification("execution/output")
        client.call("execution/cancel", {"execution_id": "writes"})
        assert client.answer(asked)["result"]["outcome"] == "cancelled"
    assert not (repository / ".vscode").exists()
    (folder,) = kept(repository).values()
    assert files_in(folder)["0"] == "x"


@pytest.mark.parametrize("beside", ["a command", "a persistent sandbox"])
def test_commands_beside_it_neither_take_the_folder_nor_lose_it(
    box: Box, workspace: Path, beside: str
) -> None:
    """One command makes the folder. Another one begins before or after that, and writes there too.

    For the one that begins later the folder is no existing one, on which it would have a mount.
    """
    program = python(WAIT, """
        def say(word):
            print(word, flush=True)
            sys.stdin.readline()
        say("up")
        os.makedirs(".vscode", exist_ok=True)
        for part in ("1", "2"):
            with open(f".vscode/{args[0]}{part}", "w") as file:
                file.write(args[0])
            if not until_gone(f".vscode/{args[0]}{part}"):
                blocked("it stays")
            say(part)
        worked()
    """)  # fmt: skip
    repository = make_repository(workspace)
    place = {"preset": "workspace-write", "workspace": str(repository)}
    with box.daemon.connect() as connection:

        def start(name: str) -> int:
            asked = {"argv": [*program, name], "stdin_open": True, "stream": True,
                     "capture": True, "execution_id": name, **place}  # fmt: skip
            number = connection.start("execute", asked)
            wait(name, "up")
            return number

        def wait(name: str, word: str) -> None:
            connection.wait_until(lambda: f"{word}\n" in connection.output(name))

        def go(name: str, word: str = "") -> None:
            connection.call("execution/write", {"execution_id": name, "data": "\n"})
            if word:
                wait(name, word)

        made = None
        if beside == "a persistent sandbox":
            made = connection.call("sandbox/create", place)["sandbox"]
        numbers = {name: start(name) for name in ("a", "b")}
        go("a", "1")
        numbers["c"] = start("c")
        go("b", "1")
        go("c", "1")
        go("a", "2")
        go("a")
        results = {"a": connection.result(numbers["a"])}
        assert (repository / ".vscode").is_dir()
        for name in ("b", "c"):
            go(name, "2")
            go(name)
            results[name] = connection.result(numbers[name])
        if made is not None:
            connection.call("sandbox/destroy", {"sandbox": made})
    outcomes = {name: (one["outcome"], one["exit_code"]) for name, one in results.items()}
    assert outcomes == dict.fromkeys("abc", ("exited", 42)), results
    assert not (repository / ".vscode").exists()
    (folder,) = kept(repository).values()
    assert files_in(folder) == {f"{name}{part}": name for name in "abc" for part in "12"}
