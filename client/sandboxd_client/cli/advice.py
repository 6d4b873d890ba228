"""Hints for well-known commands that fail in a sandbox, or do only a part of their work there."""

from __future__ import annotations

from sandboxd_client.cli import outcome
from sandboxd_client.cli.screen import NOT_FOUND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandboxd_client.cli.parse import Options

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_ENGINES = ("docker", "podman", "docker-compose", "nerdctl")
_SSH = ("ssh", "scp", "sftp")
_SSH_FAILED = (255, 128)  # its own exit code, and git's
_SYSTEM_PACKAGES = ("apt", "apt-get", "aptitude", "dpkg", "dnf", "yum", "zypper", "pacman", "apk",
                    "snap", "flatpak")  # fmt: skip
_MAVEN = ("mvn", "mvnw")
_OFFLINE = {"-o", "--offline", "-qo", "-oq"}


def advise(options: Options, result: dict[str, Any]) -> list[str]:
    """The lines to print after a command."""
    argv, code = options.operands, outcome.exit_code(result)
    found = _git(options, result, code)
    if code:
        found = found or _unasked(options, result) or _ssh(options, result, code)
        found = found or (hint(argv) if code != NOT_FOUND else None)
        found = found or _unfound(options, result, code) or _foreign_folder(options, result)
    elif not options.has("--sandbox"):
        found = found or background(argv) or _installed(options)
    return [f"hint: {found}"] if found else []


def note_missing(options: Options) -> None:
    """Before the command: what git would take for deleted, for the hint after it."""
    words, folder = _git_words(options)
    if words:
        from sandboxd_client.cli.git_hints import taken_for_deleted

        options.missing = taken_for_deleted(words, folder)


def _git_words(options: Options) -> tuple[list[str], str]:
    """The subcommand with its words, and the workspace; nothing for another program."""
    words = _words(options.operands)
    if not words or words[0].rpartition("/")[2] != "git":
        return [], ""
    from sandboxd_client.cli.git_hints import words_after_git
    from sandboxd_client.cli.place import here, workspace

    return words_after_git(words), workspace(options.one("--workspace")) or here()


def _git(options: Options, result: dict[str, Any], code: int) -> str | None:
    words, folder = _git_words(options)
    if not words:
        return None
    from sandboxd_client.cli.git_hints import SWITCHES, git_hint, half_shown, recorded_deletion

    denials = result.get("denials") or []
    found = git_hint(words, code, denials, folder) or recorded_deletion(options.missing)
    if found is None and code and not denials and words[0] in SWITCHES:
        from sandboxd_client.cli.git_in_the_way import left_in_the_way

        found = left_in_the_way(options, words, folder)
    if found is None and code and not any(denial.get("remedy") for denial in denials):
        from sandboxd_client.cli.place import shown_folders

        found = half_shown(words, [*shown_folders(options), "/usr"])
    if not found:
        return None
    from sandboxd_client.cli.plain_text import one_line

    return one_line(found)  # it names files, whose names are anything


def _ssh(options: Options, result: dict[str, Any], code: int) -> str | None:
    """ssh also needs its keys; and a lookup shows a name without a port, so that what is proposed
    for git's remotes does not allow port 22."""
    denials = result.get("denials") or []
    hosts = [str(d.get("target")) for d in denials if d.get("kind") == "network"]
    if not hosts and code in _SSH_FAILED:
        hosts = [host.partition(":")[0] for host in options.hosts or options.all("--net")]
    words, folder = _git_words(options)
    if words:
        from sandboxd_client.cli.git_hints import ssh_ends

        hosts = ssh_ends(words, hosts, folder)
    elif options.operands[0].rpartition("/")[2] not in _SSH:
        return None
    if not hosts or options.has("--ssh-agent"):
        return None
    from sandboxd_client.cli.denial_lines import allowing
    from sandboxd_client.cli.plain_text import quoted

    host, _, port = hosts[0].partition(":")
    flags = [flag for denial in denials for flag in allowing(denial.get("remedy"))]
    if not denials or any(flag.startswith(f"--net {quoted(host)}:") for flag in flags):
        return "for the keys of your ssh agent, and your known hosts, add --ssh-agent"
    end = quoted(f"{host}:{port or 22}")
    return f"ssh needs its port and keys: in place of that add --net {end} --ssh-agent"


def _unfound(options: Options, result: dict[str, Any], code: int) -> str | None:
    """A script that a shell did not find: what is hidden may be its interpreter."""
    words = _words(options.operands)
    if code != NOT_FOUND or words is options.operands or "/" not in words[0]:
        return None
    if result.get("denials"):
        return None
    import os

    from sandboxd_client.cli.hidden_program import where_it_lies
    from sandboxd_client.cli.place import shown_folders

    program = os.path.expanduser(words[0])
    return where_it_lies(program, shown_folders(options)) if os.path.isfile(program) else None


def _unasked(options: Options, result: dict[str, Any]) -> str | None:
    """--ask alone decides nothing where the mode runs everything without a question."""
    if not options.has("--ask") or options.has("--mode") or result.get("approval"):
        return None
    return (
        "nothing had to be approved: --mode auto_edit asks about what reaches out of the "
        "workspace, --mode default about every change"
    )


def _words(argv: list[str]) -> list[str]:
    """Of the program, looking through `sh -c LINE`, there behind `cd DIR &&` and variables."""
    if len(argv) != 3 or argv[0].rpartition("/")[2] not in ("sh", "bash") or argv[1] != "-c":
        return argv
    words = argv[2].split()
    while words[:1] == ["cd"] and "&&" in words:
        words = words[words.index("&&") + 1 :]
    while words and words[0].partition("=")[0].isidentifier() and "=" in words[0]:
        words = words[1:]
    return words


def _installed(options: Options) -> str | None:
    words = _words(options.operands)
    if "install" not in words:
        return None
    from sandboxd_client.cli.installed_programs import installed

    return installed(options, words)


def _foreign_folder(options: Options, result: dict[str, Any]) -> str | None:
    from sandboxd_client.cli.root_hints import foreign_folder

    return foreign_folder(options, result)


def hint(argv: list[str]) -> str | None:
    """For the program of `argv`, looking through `sh -c LINE` for its first word."""
    words = _words(argv)
    program = words[0].rpartition("/")[2] if words else ""
    if program in _ENGINES:
        return (
            f"{program} needs the engine's socket, and who can use that is root on this machine: "
            "no sandbox shows it; run it outside"
        )
    if program in _SYSTEM_PACKAGES:
        return "packages of the system are installed outside of the sandbox"
    if {"install", "uninstall"} & set(words) and (program.startswith("pip") or "pip" in words):
        return _pyenv(program)
    if program in _CHROMIUM:
        return _chromium(program, words)
    if program in _MAVEN and _OFFLINE & set(words) and not any("repo.local" in w for w in words):
        return (
            "what ~/.m2 holds is not shown, each workspace has its own repository: add "
            "--read ~/.m2/repository to sandboxctl, and to Maven "
            '-Dmaven.repo.local="$HOME/.m2/repository"'
        )
    from sandboxd_client.cli.root_hints import root_hint

    return root_hint(program, words)


def _pyenv(program: str) -> str | None:
    """Its pip fails after its work, because the shims cannot be written."""
    from shutil import which

    if not (which(program) or "").endswith(f"/shims/{program}"):
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


def background(argv: list[str]) -> str | None:
    """For a line of shell that leaves a job behind: it ends with the command."""
    if len(argv) < 3 or argv[0].rpartition("/")[2] not in ("sh", "bash") or argv[1] != "-c":
        return None
    line = argv[2]
    for other in ("&&", ">&", "&>", "<&", "|&"):
        line = line.replace(other, "")
    if "&" not in line or "wait" in line.split() or "'" in line or '"' in line:
        return None
    return (
        "what it left in the background ended with it. A server that stays, and is reached from "
        "outside:\n"
        "    sandboxctl sandbox create --name web\n"
        "    sandboxctl sandbox run --detach web -- COMMAND\n"
        "    sandboxctl sandbox forward --tcp web PORT"
    )
