"""Hints for well-known programs that need something which no sandbox has, or keep it elsewhere."""

from __future__ import annotations

import re

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_ENGINES = ("docker", "podman", "docker-compose", "nerdctl")
_SYSTEM_PACKAGES = ("apt", "apt-get", "aptitude", "dpkg", "dnf", "yum", "zypper", "pacman", "apk",
                    "snap", "flatpak")  # fmt: skip
_MAVEN = ("mvn", "mvnw")
_OFFLINE = {"-o", "--offline", "-qo", "-oq"}
# What such programs print when a sandbox is the reason, and not their own words or files.
_REFUSED = re.compile(
    rb"not permitted|not allowed|denied|refused|read-only|writable|EACCES|EPERM|EROFS"
    rb"|connect|socket|daemon|system bus|not been booted|sandbox|namespace"
    rb"|invalid argument|effective uid|set[ug]id|set groups|no new priv|privilege|superuser"
    rb"|(?:be|as|only|not|you) root|password|authenti| lock\b|user data directory",
    re.IGNORECASE,
)


def program_words(argv: list[str]) -> list[str]:
    """Of the program, looking through `sh -c LINE`, there behind `cd DIR &&` and variables."""
    if len(argv) != 3 or argv[0].rpartition("/")[2] not in ("sh", "bash") or argv[1] != "-c":
        return argv
    words = argv[2].split()
    while words[:1] == ["cd"] and "&&" in words:
        words = words[words.index("&&") + 1 :]
    while words and words[0].partition("=")[0].isidentifier() and "=" in words[0]:
        words = words[1:]
    return words


def tool_hint(argv: list[str], errors: bytes | None = None) -> str | None:
    """For the program of `argv`, looking through `sh -c LINE` for its first word. `errors`: the end
    of its stderr, if that is known: a wrong word or a missing file is no reason for a hint."""
    words = program_words(argv)
    program = words[0].rpartition("/")[2] if words else ""
    if program in _MAVEN and _OFFLINE & set(words) and not any("repo.local" in w for w in words):
        return _maven_offline()
    if errors is not None and not _REFUSED.search(errors):
        return None
    if program in _ENGINES:
        return (
            f"{program} needs the engine's socket, and who can use that is root on this machine: "
            "no sandbox shows it; run it outside"
        )
    if program in _SYSTEM_PACKAGES:
        return "packages of the system are installed outside of the sandbox"
    if {"install", "uninstall"} & set(words) and program.rstrip(".0123456789") == "pip":
        return _pyenv(words[0])
    if program in _CHROMIUM:
        return _chromium(program, words)
    if program == "npm" and {"-g", "--global"} & set(words):
        return _npm_global(words)
    if _sets_go(words):
        return _go_env(words, "read-only inside")
    from sandboxd_client.cli.hints.root import root_hint

    return root_hint(program, words)


def _npm_global(words: list[str]) -> str | None:
    if any(word.startswith("--prefix") for word in words):
        return None
    return (
        "npm's folder for global packages is read-only inside: install into the project without "
        "-g, and run it with npx NAME"
    )


def _sets_go(words: list[str]) -> bool:
    program = words[0].rpartition("/")[2] if words else ""
    return program == "go" and words[1:2] == ["env"] and bool({"-w", "-u"} & set(words))


def lost_go_settings(words: list[str], shown: list[str]) -> str | None:
    """After one that succeeded: where the home folder lies in /tmp, the sandbox has another."""
    import os

    home = os.path.realpath(os.path.expanduser("~"))
    if not _sets_go(words) or any(f"{home}/.config/go/env".startswith(f"{one}/") for one in shown):
        return None
    return _go_env(words, "a private one inside, so they are gone")


def _go_env(words: list[str], which: str) -> str:
    from sandboxd_client.cli.plain_text import quote

    given = [f"-e {quote(word)}" for word in words if word[:1] != "-" and "=" in word]
    return (
        f"go keeps these settings in your home folder, which is {which}: give them to a command, "
        f"sandboxctl run {' '.join(given) or '-e NAME=VALUE'} -- go …"
    )


def _maven_offline() -> str:
    import os

    if os.path.isdir(os.path.expanduser("~/.m2/repository")):
        return (
            "what ~/.m2 holds is not shown, each workspace has its own repository: add "
            "--read ~/.m2/repository to sandboxctl, and to Maven "
            '-Dmaven.repo.local="$HOME/.m2/repository"'
        )
    return (
        "each workspace has a Maven repository of its own, which is empty at first: run this once "
        "without -o, with --net and the host of the repository that Maven is configured for"
    )


def _pyenv(typed: str) -> str | None:
    """The pip among pyenv's shims fails after its work, because the shims cannot be written. One of
    a virtual environment, and `python -m pip`, do not."""
    from shutil import which

    folder, _, program = (typed if "/" in typed else which(typed) or "").rpartition("/")
    if folder.rpartition("/")[2] != "shims":
        return None
    return (
        f"pyenv's {program} ends by writing pyenv's shims, which are read-only inside, and fails "
        "even after it has installed: use a virtual environment (python3 -m venv .venv)"
    )


def _chromium(program: str, words: list[str]) -> str | None:
    wanted = ("--no-sandbox", "--user-data-dir=/tmp/profile")
    missing = [one for one in wanted if not any(w.startswith(one.partition("=")[0]) for w in words)]
    if not missing:
        return None
    return (
        f"{program} cannot make its own sandbox in this one, nor write its profile in your home "
        f"folder: give it {' '.join(missing)}"
    )
