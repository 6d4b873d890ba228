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
_STDERR = 2
_UNREACHED = {"curl": 7, "wget": 4, "nc": 1, "ncat": 1}  # exit codes for a refused connection
_LOCAL = ("localhost", "127.0.0.1", "0.0.0.0")
_OFFLINE = {"-o", "--offline", "-qo", "-oq"}


def advise(options: Options, result: dict[str, Any]) -> list[str]:
    """The lines to print after a command."""
    argv, code = options.operands, outcome.exit_code(result)
    found = _in_plan_mode(options, result) or _git(options, result, code)
    if code:
        found = found or _unasked(options, result) or _ssh(options, result, code)
        found = found or _group(options, result) or _descriptor(argv)
        found = found or (hint(argv) if code != NOT_FOUND else None)
        found = found or _own_localhost(options, result, code)
        found = found or _unfound(options, result, code) or _foreign_folder(options, result)
        found = found or _wider_workspace(options, result)
    elif not options.has("--sandbox"):
        found = found or background(argv) or _installed(options)
    if not found:
        return []
    from sandboxd_client.cli.invocation import fitting

    return [f"hint: {fitting(found, options)}"]


def refuse_half_work(options: Options) -> None:
    """Before the command: `git worktree remove` would delete the files, and fail at the rest."""
    words, folder = _git_words(options)
    if words[:2] != ["worktree", "remove"] or not folder:
        return
    import os

    pointer = os.path.join(folder, ".git")
    if os.path.isfile(pointer) or os.path.isdir(os.path.join(pointer, "worktrees")):
        from sandboxd_client.cli.parse import UsageError
        from sandboxd_client.cli.plain_text import quoted

        raise UsageError(
            "git worktree remove was not run: what git knows of worktrees is read-only inside, and "
            "it would delete files before it fails",
            f"outside of the sandbox: {' '.join(map(quoted, _words(options.operands)))}",
        )


def note_missing(options: Options) -> None:
    """Before the command: what git would take for deleted, and what it has, for the hint after."""
    words, folder = _git_words(options)
    if words:
        from sandboxd_client.cli.git_hints import taken_for_deleted

        options.missing = taken_for_deleted(words, folder)
    if words[:2] == ["worktree", "add"]:
        from sandboxd_client.cli.git_worktrees import known

        options.worktrees = known(folder)


def _in_plan_mode(options: Options, result: dict[str, Any]) -> str | None:
    from sandboxd_client.cli.plan_words import after_run

    return after_run(options, result)


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
    foreign = _foreign_repository(options, words, folder, code) if code else None
    if foreign:
        return foreign  # it says who is to do what
    if words[:2] == ["worktree", "add"]:
        from sandboxd_client.cli.git_worktrees import add_hint

        found = add_hint(words, code, folder, options.worktrees)
    else:
        found = _git_hint(options, result, code, words, folder)
    if not found:
        return None
    from sandboxd_client.cli.git_user import outside_as
    from sandboxd_client.cli.plain_text import one_line

    if " outside" in found:
        found += outside_as(folder)
    return one_line(found)  # it names files, whose names are anything


def _git_hint(
    options: Options, result: dict[str, Any], code: int, words: list[str], folder: str
) -> str | None:
    from sandboxd_client.cli.git_hints import SWITCHES, git_hint, recorded_deletion
    from sandboxd_client.cli.place import shown_folders

    denials = result.get("denials") or []
    typed = " ".join((*options.all("--env"), *options.operands))
    found = _remote(options, words, denials) if code else None
    before = _words(options.operands)[: -len(words)]
    found = found or git_hint(words, code, denials, folder, typed, before)
    if found is None and options.missing:
        from sandboxd_client.cli.git_deletions import deleted_by

        found = recorded_deletion(deleted_by(options, words[0], code, folder))
    if found is None and not code and denials:
        from sandboxd_client.cli.git_deletions import miscounted

        found = miscounted(words, denials, options.printed)
    if found is None and code and not denials and words[0] in SWITCHES:
        from sandboxd_client.cli.git_in_the_way import left_in_the_way

        found = left_in_the_way(options, words, folder)
    if found is None and code and not any(denial.get("remedy") for denial in denials):
        from sandboxd_client.cli.git_places import half_shown, hidden_git_dir
        from sandboxd_client.cli.git_remotes import started_in
        from sandboxd_client.cli.git_user import FATAL
        from sandboxd_client.cli.root_hints import user_inside

        minimal = options.one("--base") == "minimal" or options.has("--manifest")
        shown = [*shown_folders(options), "/usr"]
        found = half_shown(words, shown, user_inside(folder), minimal=minimal)
        if found is None and code == FATAL and not options.has("--sandbox"):
            found = hidden_git_dir(started_in(options), shown, minimal=minimal)
    if found is None and not code and not options.has("--sandbox"):
        from sandboxd_client.cli.git_user import lost_settings, unseen_hooks

        found = lost_settings(words, folder) or unseen_hooks(words, folder, shown_folders(options))
    return found


def _foreign_repository(options: Options, words: list[str], folder: str, code: int) -> str | None:
    from sandboxd_client.cli.git_owners import foreign_repository, repository_above
    from sandboxd_client.cli.git_user import FATAL
    from sandboxd_client.cli.plain_text import one_line

    found = repository_above(options) if code == FATAL else None
    found = found or foreign_repository(options, words, folder)
    return one_line(found) if found else None


def _remote(options: Options, words: list[str], denials: list[dict[str, Any]]) -> str | None:
    from sandboxd_client.cli.git_remotes import remote_hint

    return remote_hint(options, words, denials)


def _ssh(options: Options, result: dict[str, Any], code: int) -> str | None:
    """ssh also needs its keys; and a lookup shows a name without a port, so that what is proposed
    for git's remotes does not allow port 22."""
    denials = result.get("denials") or []
    hosts = [str(d.get("target")) for d in denials if d.get("kind") == "network"]
    if not hosts and code in _SSH_FAILED:
        hosts = [host.partition(":")[0] for host in options.hosts or options.all("--net")]
    words, folder = _git_words(options)
    if words:
        from sandboxd_client.cli.git_places import ssh_ends

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


def _descriptor(argv: list[str]) -> str | None:
    """`diff <(a) <(b)`: the shell outside puts names of its descriptors there."""
    for word in argv:
        for folder in ("/dev/fd/", "/proc/self/fd/"):
            number = word.rpartition(folder)[2] if folder in word else ""
            if number.isdecimal() and int(number) > _STDERR:
                return (
                    f"{folder}{number} is a descriptor of your shell, and only stdin, stdout and "
                    "stderr are passed: let a shell inside make it, sandboxctl run -- bash -c "
                    "'diff <(…) <(…)', or give it files"
                )
    return None


def _own_localhost(options: Options, result: dict[str, Any], code: int) -> str | None:
    """Nothing listens where the command connects to: the server may run in another sandbox."""
    words = _words(options.operands)
    program = words[0].rpartition("/")[2] if words else ""
    unknown = any(map(options.has, ("--sandbox", "--manifest"))) or "all" in options.all("--net")
    if unknown or _UNREACHED.get(program) != code:
        return None
    if any(denial.get("kind") == "network" for denial in result.get("denials") or []):
        return None
    ends = [word.rpartition("://")[2].partition("/")[0].strip("'\"") for word in words[1:]]
    if not any(end.partition(":")[0] in _LOCAL or end.startswith("[::1]") for end in ends):
        return None
    return (
        "each sandbox has a localhost of its own, and nothing listens there in this one. A server "
        "and its clients share a sandbox: sandboxctl sandbox create --name web; sandboxctl sandbox "
        f"run --detach web -- SERVER; sandboxctl sandbox run web -- {program} …. From outside: "
        "sandboxctl sandbox forward"
    )


def _group(options: Options, result: dict[str, Any]) -> str | None:
    if not any(denial.get("kind") == "network" for denial in result.get("denials") or []):
        return None
    from sandboxd_client.cli.group_hint import group_hint

    return group_hint(options, _words(options.operands), result)


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


def _wider_workspace(options: Options, result: dict[str, Any]) -> str | None:
    from sandboxd_client.cli.wider_workspace import after_run

    return after_run(options, result)


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
    if {"install", "uninstall"} & set(words) and program.rstrip(".0123456789") == "pip":
        return _pyenv(words[0])
    if program in _CHROMIUM:
        return _chromium(program, words)
    if program in _MAVEN and _OFFLINE & set(words) and not any("repo.local" in w for w in words):
        return _maven_offline()
    if program == "npm" and {"-g", "--global"} & set(words):
        return _npm_global(words)
    if program == "go" and words[1:2] == ["env"] and {"-w", "-u"} & set(words):
        return _go_env(words)
    from sandboxd_client.cli.root_hints import root_hint

    return root_hint(program, words)


def _npm_global(words: list[str]) -> str | None:
    if any(word.startswith("--prefix") for word in words):
        return None
    return (
        "npm's folder for global packages is read-only inside: install into the project without "
        "-g and run it with npx NAME, or give npm --prefix ./tools with -g and run tools/bin/NAME"
    )


def _go_env(words: list[str]) -> str:
    from sandboxd_client.cli.plain_text import quoted

    given = [f"-e {quoted(word)}" for word in words if word[:1] != "-" and "=" in word]
    return (
        "go keeps these settings in your home folder, which is read-only inside: give them to a "
        f"command, sandboxctl run {' '.join(given) or '-e NAME=VALUE'} -- go …"
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
