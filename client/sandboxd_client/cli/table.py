"""Every subcommand and flag, once: the parser, `--help` and shell completion read this table."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Completes = Literal["", "file", "dir", "execution", "signal"]


class Flag:
    """`value`: how its value is called in the help; empty for a switch. `many`: may be repeated."""

    __slots__ = ("choices", "completes", "help", "many", "name", "value")

    def __init__(
        self,
        name: str,
        value: str,
        help: str,
        *,
        many: bool = False,
        choices: tuple[str, ...] = (),
        completes: Completes = "",
    ) -> None:
        self.name = name
        self.value = value
        self.help = help
        self.many = many
        self.choices = choices
        self.completes = completes


class Command:
    """`operand`: what comes after the flags. `greedy`: everything from the first operand on."""

    __slots__ = ("choices", "completes", "flags", "greedy", "name", "operand", "summary")

    def __init__(
        self,
        name: str,
        summary: str,
        flags: tuple[Flag, ...],
        *,
        operand: str = "",
        greedy: bool = False,
        choices: tuple[str, ...] = (),
        completes: Completes = "",
    ) -> None:
        self.name = name
        self.summary = summary
        self.flags = flags
        self.operand = operand
        self.greedy = greedy
        self.choices = choices
        self.completes = completes


PRESETS = ("read-only", "workspace-write", "danger-full-access", "external-sandbox")
BACKENDS = (
    "bubblewrap", "landlock", "docker", "opensandbox", "sandbox-exec", "appcontainer", "none",
)  # fmt: skip
SHELLS = ("bash", "zsh", "fish")

_SOCKET = Flag("--socket", "PATH", "the daemon's socket (default: $SANDBOXD_SOCKET, else your own)",
               completes="file")  # fmt: skip
_NO_START = Flag("--no-autostart", "", "fail when no daemon listens; do not start one")
_JSON = Flag("--json", "", "print one JSON object")
_QUIET = Flag("--quiet", "", "say nothing beyond the command's own output")

_POLICY = (
    Flag("--preset", "NAME", "the starting point (default: workspace-write)", choices=PRESETS),
    Flag("--workspace", "DIR", "the folder that is writable (default: the git root, else here)",
         completes="dir"),
    Flag("--manifest", "FILE", "a TOML file whose [sandbox] table says what is allowed",
         completes="file"),
    Flag("--read", "PATH", "allow reading PATH", many=True, completes="file"),
    Flag("--write", "PATH", "allow reading and writing PATH", many=True, completes="file"),
    Flag("--deny", "PATH", "hide PATH, even inside an allowed one", many=True, completes="file"),
    Flag("--net", "HOST", "deny, inherit, or the hosts that may be reached (comma or repeated)",
         many=True, choices=("deny", "inherit")),
    Flag("--timeout", "TIME", "stop the command after 30s, 5m, …; none: never (default)"),
    Flag("--memory", "SIZE", "at most this much memory: 256M, 2G"),
    Flag("--cpu", "TIME", "at most this much CPU time: 10s, 2m"),
    Flag("--processes", "N", "at most N processes at once"),
    Flag("--env", "K[=V]", "a variable for the command; without =V the caller's value", many=True),
    Flag("--base", "KIND", "which system files are visible", choices=("minimal", "host")),
    Flag("--syscalls", "KIND", "the system call filter", choices=("baseline", "strict", "inherit")),
    Flag("--backend", "NAME", "use this backend or refuse", choices=BACKENDS),
    Flag("--cwd", "DIR", "where the command starts", completes="dir"),
)  # fmt: skip

RUN = Command(
    "run", "run a command in a sandbox; it behaves like the command itself",
    (*_POLICY,
     Flag("--pty", "", "give the command a terminal (default: when you have one)"),
     Flag("--no-pty", "", "give it pipes"),
     Flag("--json", "", "print one JSON object with the result and the captured output"),
     _QUIET, _SOCKET, _NO_START),
    operand="[--] COMMAND [ARG…]", greedy=True,
)  # fmt: skip

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        RUN,
        Command("check", "show what `run` would enforce, and how; run nothing",
                (*_POLICY, _JSON, _QUIET, _SOCKET, _NO_START)),
        Command("status", "show the daemon, its backend and what runs",
                (_JSON, _SOCKET, _NO_START)),
        Command("doctor", "why a backend does not work here, and the exact fix",
                (_JSON, _SOCKET, _NO_START)),
        Command("ps", "list the detached executions", (_JSON, _SOCKET)),
        Command("kill", "end an execution and everything that it started",
                (Flag("--signal", "SIG", "send this signal instead of ending the whole tree",
                      completes="signal"), _JSON, _SOCKET),
                operand="ID…", completes="execution"),
        Command("shutdown", "end every command, then the daemon", (_JSON, _SOCKET)),
        Command("image", "build the base image of the docker backend; no registry is needed",
                (Flag("--tag", "NAME", "what it is called (default: sandboxd/base:local)"),
                 Flag("--with", "PROGRAM", "put a program of this machine into it", many=True),
                 Flag("--bare", "", "busybox only, without Python"),
                 Flag("--host", "URL", "the engine (default: $DOCKER_HOST, else the usual socket)"),
                 _JSON),
                operand="build", choices=("build",)),
        Command("completion", "print the completion script of a shell", (),
                operand="bash|zsh|fish", choices=SHELLS),
    )
}  # fmt: skip
