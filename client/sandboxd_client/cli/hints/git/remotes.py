"""Remotes of a git command that are folders of this machine: what it needs to reach them.

Only the user's words and the repository's own settings name them: both are read-only for commands.
"""

from __future__ import annotations

import os
from itertools import pairwise

from sandboxd_client.cli.denial_lines import allowing_flags
from sandboxd_client.cli.hints.git.files import git_dirs, read
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.workspace import account_home, here, resolve, start_folder, workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from sandboxd_client.cli.parse import Options

    Settings = list[tuple[str, str, str]]

_READERS = ("fetch", "pull", "ls-remote")
_VALUED = ("-o", "--push-option", "--receive-pack", "--upload-pack", "--exec", "--repo", "-j",
           "--jobs", "--depth", "--deepen", "-s", "--strategy", "-X", "--refmap")  # fmt: skip
_HOMES = ("/home", "/root", "/Users")


def remote_hint(
    options: Options, words: list[str], denials: Sequence[dict[str, Any]]
) -> str | None:
    """`words`: from the subcommand on, of a git command that failed."""
    if words[0] != "push" and words[0] not in _READERS:
        return None
    targets = [str(denial.get("target")) for denial in denials]
    inside = workspace(options.one("--workspace")) or here()
    for folder in remote_folders(words, started_in(options)):
        if f"{folder}/".startswith(f"{inside}/"):
            continue
        about = any(f"{target}/".startswith(f"{folder}/") for target in targets)
        if words[0] == "push" and (about or not _may_be_written(options, folder)):
            return f"git push writes into the remote, a folder: add --write {quote(folder)}"
        flag = f"--read {quote(folder)}"
        proposed = [flag for denial in denials for flag in allowing_flags(denial.get("remedy"))]
        if words[0] != "push" and about and flag not in proposed:
            return f"the sandbox does not show the remote, a folder: add {flag}"
    return None


def started_in(options: Options) -> str:
    """Where git looks for its repository."""
    argv, folder = options.operands, options.one("--cwd")
    named = workspace(options.one("--workspace")) or here()
    place = start_folder(named) if folder is None else resolve(folder)
    if len(argv) == 3 and argv[1] == "-c":
        argv = argv[2].split()
        while argv[:1] == ["cd"] and argv[2:3] == ["&&"]:
            place, argv = os.path.join(place, os.path.expanduser(argv[1])), argv[3:]
    for flag, value in pairwise(argv):
        if flag == "-C":
            place = os.path.join(place, os.path.expanduser(value))
        elif not flag.startswith("-") and flag.rpartition("/")[2] != "git":
            break
    return os.path.normpath(place)


def _may_be_written(options: Options, folder: str) -> bool:
    """Whether that may be so: what a manifest or an existing sandbox allows is not looked at."""
    if options.has("--manifest") or options.has("--sandbox"):
        return True
    allowed = [*map(resolve, options.all("--write")), workspace(options.one("--workspace"))]
    real = os.path.realpath(folder)
    return any(f"{real}/".startswith(f"{os.path.realpath(one)}/") for one in allowed if one)


def remote_folders(words: list[str], start: str) -> list[str]:
    """The folders that this git command reaches; of a push those that can be proposed."""
    found = folders_of_remotes(words, start)
    return [one for one in found if words[0] != "push" or _can_be_proposed(one)]


def folders_of_remotes(words: list[str], start: str) -> list[str]:
    """All of them, whoever may use them."""
    root, git_dir, common = git_dirs(start)
    settings = _settings(read(os.path.join(common, "config")).decode(errors="replace"))
    found = []
    for url in _urls(words, settings, git_dir):
        place = url.removeprefix("file://")
        if "://" in place or ":" in place.partition("/")[0]:
            continue
        places = [os.path.normpath(os.path.join(base, place)) for base in (root, start)]
        folder = next(filter(os.path.isdir, places), None)
        if folder is not None:
            found.append(folder)
    return found


def _urls(words: list[str], settings: Settings, git_dir: str) -> list[str]:
    name, fields = _named(words[1:]), ("pushurl", "url")[words[0] != "push" :]
    remotes = dict.fromkeys(section for section, key, _ in settings if key == "url")
    if name is not None and f"remote {name}" not in remotes:
        return [os.path.expanduser(name)]
    chosen = [f"remote {name}"] if name else [_default(words, settings, git_dir), *remotes][:1]
    if words[0] != "push" and name is None and "--all" in words:
        chosen = list(remotes)
    for field in fields:
        found = [value for section, key, value in settings if section in chosen and key == field]
        if found:
            return found
    return []


def _named(words: list[str]) -> str | None:
    """The repository among the words of a subcommand."""
    index = 0
    while index < len(words):
        if not words[index].startswith("-"):
            return words[index]
        index += 2 if words[index] in _VALUED else 1
    return None


def _default(words: list[str], settings: Settings, git_dir: str) -> str:
    head = read(os.path.join(git_dir, "HEAD")).decode(errors="replace").strip()
    branch = f"branch {head.removeprefix('ref: refs/heads/')}"
    wanted = [(branch, "remote")]
    if words[0] == "push":
        wanted = [(branch, "pushremote"), ("remote", "pushdefault"), *wanted]
    for one in wanted:
        named = [value for section, key, value in settings if (section, key) == one]
        if named:
            return f"remote {named[-1]}"
    return "remote origin"


def _settings(text: str) -> Settings:
    """Section with its subsection, key and value, in order."""
    return list(_each_setting(text))


def _each_setting(text: str) -> Iterator[tuple[str, str, str]]:
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            name, _, more = line.strip("[]").partition(" ")
            section = " ".join(filter(None, (name.lower(), more.strip().strip('"'))))
        elif "=" in line:
            key, _, value = line.partition("=")
            yield section, key.strip().lower(), value.strip().strip('"')


def _can_be_proposed(folder: str) -> bool:
    """A repository of the user's own, or one beside the homes; nothing hidden in a home folder,
    where secrets and start-up files are kept in repositories, too."""
    real = os.path.realpath(folder)
    names = (os.path.join(real, ".git"), os.path.join(real, "objects"))
    if not any(map(os.path.exists, names)) or not os.access(real, os.W_OK):
        return False
    home = account_home()
    if home and f"{real}/".startswith(f"{home}/"):
        return not any(part.startswith(".") for part in real[len(home) :].split("/"))
    return not any(f"{real}/".startswith(f"{one}/") for one in _HOMES)
