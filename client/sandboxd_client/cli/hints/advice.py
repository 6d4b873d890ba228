"""Hints for well-known commands that fail in a sandbox, or do only a part of their work there."""

from __future__ import annotations

from functools import partial

from sandboxd_client.cli import outcome
from sandboxd_client.cli.hints.invocation import adapt_hint, misplaced_flag
from sandboxd_client.cli.hints.root import printed_hint
from sandboxd_client.cli.hints.tools import program_words, tool_hint
from sandboxd_client.cli.screen import NOT_FOUND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sandboxd_client.cli.parse import Options

_SSH = ("ssh", "scp", "sftp")
_GIT_FAILED = 128
_SSH_FAILED = (255, _GIT_FAILED)  # its own exit code, and git's
_STDERR = 2
_UNREACHED = {"curl": 7, "wget": 4, "nc": 1, "ncat": 1}  # exit codes for a refused connection
_LOCAL = ("localhost", "127.0.0.1", "0.0.0.0")


def advise(options: Options, result: dict[str, Any]) -> list[str]:
    """The lines to print after a command."""
    argv, code = options.operands, outcome.exit_code(result)
    found = _in_plan_mode(options, result) or _git(options, result, code)
    found = found or _server(options, result)
    if code:
        found = misplaced_flag(options, result) or found
        found = found or _unasked(options, result) or _ssh(options, result, code)
        found = found or _removed_repository(options, result)
        found = found or _group(options, result) or _descriptor(argv)
        found = found or _certificates(options, code) or _environment_outside(options, result)
        found = found or (tool_hint(argv, options.errors) if code != NOT_FOUND else None)
        found = found or _own_localhost(options, result, code)
        found = found or _unfound(options, result, code) or _foreign_folder(options, result)
        found = found or _wider_workspace(options, result) or _empty_by_deny(options, result)
        found = found or printed_hint(options.errors)
    elif not options.has("--sandbox"):
        found = found or _installed(options) or _lost_settings(options)
    if not found:
        return []
    return [f"hint: {adapt_hint(found, options)}"]


def refuse_half_work(options: Options) -> None:
    """Before the command: `git worktree remove` would delete the files, and fail at the rest."""
    words, folder = _git_words(options)
    if (
        words[:2] != ["worktree", "remove"]
        or not folder
        or not _is_git(program_words(options.operands))
    ):
        return  # or it is one of several commands
    import os

    pointer = os.path.join(folder, ".git")
    if os.path.isfile(pointer) or os.path.isdir(os.path.join(pointer, "worktrees")):
        from sandboxd_client.cli.parse import UsageError
        from sandboxd_client.cli.plain_text import quote

        raise UsageError(
            "git worktree remove was not run: what git knows of worktrees is read-only inside, and "
            "it would delete files before it fails",
            f"outside of the sandbox: {' '.join(map(quote, program_words(options.operands)))}",
        )


def note_missing(options: Options) -> None:
    """Before the command: what git would take for deleted, and what it has, for the hint after."""
    words, folder = _git_words(options)
    if words:
        from time import time

        from sandboxd_client.cli.hints.git.hints import taken_for_deleted

        options.began = time()
        options.missing = taken_for_deleted(words, folder)
    if words[:2] == ["worktree", "add"]:
        from sandboxd_client.cli.hints.git.worktrees import known

        options.worktrees = known(folder)


def _empty_by_deny(options: Options, result: dict[str, Any]) -> str | None:
    """A parser that fails on an empty file says nothing of it; its message may show the name."""
    import os

    from sandboxd_client.cli.workspace import resolve

    errors = options.errors or b""
    if result.get("denials"):
        return None
    for path in options.all("--deny"):
        name = os.path.basename(path)
        if name and os.fsencode(name) in errors and os.path.isfile(resolve(path)):
            from sandboxd_client.cli.plain_text import quote

            return f"--deny hides {quote(path)}: commands see it empty"
    return None


def _server(options: Options, result: dict[str, Any]) -> str | None:
    from sandboxd_client.cli.hints.servers import server_hint

    return server_hint(options, result)


def _in_plan_mode(options: Options, result: dict[str, Any]) -> str | None:
    from sandboxd_client.cli.plan_words import after_run

    return after_run(options, result)


def _git_command(options: Options, code: int = 0, *, is_denied: bool = True) -> list[str]:
    """The words from `git` on; of a line of shell, the last git command in it. If another command
    follows that one, an exit `code` that is not git's own says nothing about it."""
    words = program_words(options.operands)
    if _is_git(words) and words is options.operands:
        return words
    if not any("git" in word for word in options.operands[1:]):
        return []
    from sandboxd_client.cli.hints.shell_lines import line_of, simple_commands

    line = line_of(options.operands)
    commands = simple_commands(line) if line is not None else []
    found = [*filter(_is_git, commands)]
    if found and code not in (0, _GIT_FAILED) and not is_denied and found[-1] is not commands[-1]:
        return []
    if found:
        return found[-1]
    return words if _is_git(words) else []


def _is_git(words: list[str]) -> bool:
    return bool(words) and words[0].rpartition("/")[2] == "git"


def _git_words(options: Options, code: int = 0, *, is_denied: bool = True) -> tuple[list[str], str]:
    """The subcommand with its words, and the workspace; nothing for another program."""
    command = _git_command(options, code, is_denied=is_denied)
    if not command:
        return [], ""
    from sandboxd_client.cli.hints.git.hints import words_after_git
    from sandboxd_client.cli.workspace import here, workspace

    return words_after_git(command), workspace(options.one("--workspace")) or here()


def _git(options: Options, result: dict[str, Any], code: int) -> str | None:
    words, folder = _git_words(options, code, is_denied=bool(result.get("denials")))
    if not words:
        return None
    foreign = _foreign_repository(options, words, folder, code) if code else None
    if foreign:
        return foreign  # it says who is to do what
    if words[:2] == ["worktree", "add"]:
        from sandboxd_client.cli.hints.git.worktrees import add_hint

        found = add_hint(words, code, folder, options.worktrees)
    else:
        found = _git_hint(options, result, code, words, folder)
    if not found:
        return None
    from sandboxd_client.cli.hints.git.user_settings import outside_as
    from sandboxd_client.cli.plain_text import one_line

    if " outside" in found:
        found += outside_as(folder)
    return one_line(found)  # it names files, whose names are anything


def _git_hint(
    options: Options, result: dict[str, Any], code: int, words: list[str], folder: str
) -> str | None:
    from sandboxd_client.cli.hints.git.hints import SWITCHES, git_hint, recorded_deletion
    from sandboxd_client.cli.workspace import shown_folders

    denials = result.get("denials") or []
    typed = " ".join((*options.all("--env"), *options.operands))
    found = _remote(options, words, denials) if code else None
    before = _git_command(options)[: -len(words)]
    undo = partial(_undo_steps, options, words, folder)
    found = found or git_hint(words, code, denials, folder, typed, before, options.errors, undo)
    if found is None and options.missing:
        from sandboxd_client.cli.hints.git.deletions import deleted_by

        found = recorded_deletion(deleted_by(options, words[0], code, folder))
    if found is None and not code and denials:
        from sandboxd_client.cli.hints.git.deletions import miscounted

        found = miscounted(words, denials, options.printed)
    if found is None and code and not denials and words[0] in SWITCHES and "-C" not in before:
        from sandboxd_client.cli.hints.git.blocking_files import left_in_the_way

        found = left_in_the_way(options, words, folder)
    if found is None and code and not any(denial.get("remedy") for denial in denials):
        from sandboxd_client.cli.hints.git.remotes import started_in
        from sandboxd_client.cli.hints.git.sources import half_shown, hard_links, hidden_git_dir
        from sandboxd_client.cli.hints.git.user_settings import FATAL
        from sandboxd_client.cli.hints.root import user_inside

        minimal = options.one("--base") == "minimal" or options.has("--manifest")
        shown = [*shown_folders(options), "/usr"]
        found = half_shown(words, shown, user_inside(folder), minimal=minimal)
        found = found or hard_links(words, options.errors)
        if found is None and code == FATAL and not options.has("--sandbox"):
            found = hidden_git_dir(started_in(options), shown, minimal=minimal)
    if found is None and not code and not options.has("--sandbox"):
        from sandboxd_client.cli.hints.git.user_settings import lost_settings, unseen_hooks

        found = lost_settings(words, folder) or unseen_hooks(words, folder, shown_folders(options))
    return found


def _undo_steps(options: Options, words: list[str], folder: str, left: Sequence[str]) -> str | None:
    """Not of a line of shell, in which other commands may have changed files."""
    if not _is_git(options.operands):
        return None
    from sandboxd_client.cli.hints.git.half_done import undo_steps

    return undo_steps(options, words, left, folder)


def _foreign_repository(options: Options, words: list[str], folder: str, code: int) -> str | None:
    from sandboxd_client.cli.hints.git.owners import foreign_repository, repository_above
    from sandboxd_client.cli.hints.git.user_settings import FATAL
    from sandboxd_client.cli.plain_text import one_line

    found = repository_above(options, words[0]) if code == FATAL else None
    found = found or foreign_repository(options, words, folder)
    return one_line(found) if found else None


def _remote(options: Options, words: list[str], denials: list[dict[str, Any]]) -> str | None:
    from sandboxd_client.cli.hints.git.remotes import remote_hint

    return remote_hint(options, words, denials)


def _ssh(options: Options, result: dict[str, Any], code: int) -> str | None:
    """ssh also needs its keys; and a lookup shows a name without a port, so that what is proposed
    for git's remotes does not allow port 22."""
    denials = result.get("denials") or []
    hosts = [str(d.get("target")) for d in denials if d.get("kind") == "network"]
    if not hosts and code in _SSH_FAILED:
        hosts = [_host_and_port(host)[0] for host in options.hosts or options.all("--net")]
    words, folder = _git_words(options)
    if words:
        from sandboxd_client.cli.hints.git.sources import ssh_ends

        hosts = ssh_ends(words, hosts, folder)
    elif options.operands[0].rpartition("/")[2] not in _SSH:
        return None
    if not hosts or options.has("--ssh-agent"):
        return None
    from sandboxd_client.cli.denial_lines import allowing_flags
    from sandboxd_client.cli.plain_text import quote

    host, port = _host_and_port(hosts[0])
    entry = f"[{host}]" if ":" in host else host
    flags = [flag for denial in denials for flag in allowing_flags(denial.get("remedy"))]
    if not denials or any(f"--net {entry}:" in flag.replace("'", "") for flag in flags):
        return "for the keys of your ssh agent, and your known hosts, add --ssh-agent"
    end = quote(f"{entry}:{port or 22}")
    return f"ssh needs its port and keys: in place of that add --net {end} --ssh-agent"


def _host_and_port(end: str) -> tuple[str, str]:
    """An IPv6 address has a port only behind brackets."""
    if not end.startswith("[") and end.count(":") > 1:
        return end, ""
    host, _, port = end.removeprefix("[").partition("]:" if end.startswith("[") else ":")
    return host.removesuffix("]"), port


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
    words = program_words(options.operands)
    program = words[0].rpartition("/")[2] if words else ""
    nets = options.all("--net")
    unknown = any(map(options.has, ("--sandbox", "--manifest"))) or "all" in nets
    # It is allowed, and leads to the host's own.
    unknown = unknown or any(net.partition(":")[0] in _LOCAL for net in nets)
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
    from sandboxd_client.cli.hints.host_group import group_hint

    return group_hint(options, program_words(options.operands), result)


def _unfound(options: Options, result: dict[str, Any], code: int) -> str | None:
    """A script that a shell did not find: what is hidden may be its interpreter."""
    words = program_words(options.operands)
    if code != NOT_FOUND or words is options.operands or "/" not in words[0]:
        return None
    if result.get("denials"):
        return None
    import os

    from sandboxd_client.cli.hints.hidden_program import where_it_lies
    from sandboxd_client.cli.workspace import shown_folders

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


def _removed_repository(options: Options, result: dict[str, Any]) -> str | None:
    words = program_words(options.operands)
    if words[:1] != ["rm"] or not any(w.rstrip("/").endswith(".git") for w in words):
        return None
    from sandboxd_client.cli.hints.git.deletions import removed_repository

    return removed_repository(result.get("denials") or [])


def _certificates(options: Options, code: int) -> str | None:
    from sandboxd_client.cli.hints.certificates import unpassed

    return unpassed(options, code)


def _environment_outside(options: Options, result: dict[str, Any]) -> str | None:
    words = program_words(options.operands)
    if not {"install", "uninstall"} & set(words) or options.has("--sandbox"):
        return None
    from sandboxd_client.cli.hints.virtual_environments import outside_of

    return outside_of(options, result.get("denials") or [])


def _lost_settings(options: Options) -> str | None:
    words = program_words(options.operands)
    if words[:1] != ["go"]:
        return None
    from sandboxd_client.cli.hints.tools import lost_go_settings
    from sandboxd_client.cli.workspace import shown_folders

    return lost_go_settings(words, shown_folders(options))


def _installed(options: Options) -> str | None:
    words = program_words(options.operands)
    if "install" not in words:
        return None
    from sandboxd_client.cli.hints.installed_programs import installed

    return installed(options, words)


def _foreign_folder(options: Options, result: dict[str, Any]) -> str | None:
    from sandboxd_client.cli.hints.root import foreign_folder

    return foreign_folder(options, result)


def _wider_workspace(options: Options, result: dict[str, Any]) -> str | None:
    from sandboxd_client.cli.hints.wider_workspace import after_run

    return after_run(options, result)
