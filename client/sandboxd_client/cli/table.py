"""Every subcommand and flag, once: the parser, `--help` and shell completion read this table."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Completes = Literal["", "file", "dir", "execution", "sandbox", "signal"]


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
    """`operand`: what comes after the flags. `greedy`: everything from the first operand on.

    A name of two words is an action of a group: `sandbox create`.
    """

    __slots__ = (
        "choices", "completes", "flags", "greedy", "name", "operand", "optional", "summary",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        summary: str,
        flags: tuple[Flag, ...],
        *,
        operand: str = "",
        optional: bool = False,
        greedy: bool = False,
        choices: tuple[str, ...] = (),
        completes: Completes = "",
    ) -> None:
        self.name = name
        self.summary = summary
        self.flags = flags
        self.operand = operand
        self.optional = optional
        self.greedy = greedy
        self.choices = choices
        self.completes = completes


PRESETS = ("read-only", "workspace-write", "danger-full-access", "external-sandbox")
BACKENDS = (
    "bubblewrap", "landlock", "docker", "opensandbox", "sandbox-exec", "appcontainer", "none",
)  # fmt: skip
SHELLS = ("bash", "zsh", "fish")
# Which subcommand lists what an ID can be, for completion.
LISTED = {"execution": "ps", "sandbox": "sandbox list"}

_SOCKET = Flag("--socket", "PATH", "the daemon's socket (default: $SANDBOXD_SOCKET, else your own)",
               completes="file")  # fmt: skip
_NO_START = Flag("--no-autostart", "", "fail when no daemon listens; do not start one")
_JSON = Flag("--json", "", "print one JSON object")
_QUIET = Flag("--quiet", "", "say nothing beyond the command's own output")

_SANDBOX = Flag("--sandbox", "ID", "run it in this sandbox, under the policy that it was made with",
                completes="sandbox")  # fmt: skip
_PTY = (
    Flag("--pty", "", "give the command a terminal (default: when you have one)"),
    Flag("--no-pty", "", "give it pipes"),
)
_CWD = Flag("--cwd", "DIR", "where the command starts", completes="dir")

# What a sandbox is made from: not to be said of a command in one that exists.
POLICY = (
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
    Flag("--ssh-agent", "", "allow the use of your ssh agent ($SSH_AUTH_SOCK)"),
    Flag("--base", "KIND", "which system files are visible", choices=("minimal", "host")),
    Flag("--syscalls", "KIND", "the system call filter", choices=("baseline", "strict", "inherit")),
    Flag("--backend", "NAME", "use this backend or refuse", choices=BACKENDS),
)  # fmt: skip
_POLICY = (*POLICY, _CWD)

RUN = Command(
    "run", "run a command in a sandbox; it behaves like the command itself",
    (*_POLICY, _SANDBOX, *_PTY,
     Flag("--json", "", "print one JSON object with the result and the captured output"),
     _QUIET, _SOCKET, _NO_START),
    operand="[--] COMMAND [ARG…]", greedy=True,
)  # fmt: skip

SANDBOX_RUN = Command(
    "sandbox run", "run a command in a sandbox that exists",
    (_CWD, *_PTY, Flag("--json", "", "print one JSON object with the result and the output"),
     _QUIET, _SOCKET, _NO_START),
    operand="ID [--] COMMAND [ARG…]", greedy=True, completes="sandbox",
)  # fmt: skip

EXPLAIN = Command(
    "explain", "run a command once, and say what it needs that it may not have",
    (*_POLICY,
     Flag("--write-manifest", "FILE", "write a manifest for `run --manifest` that would do",
          completes="file"),
     *_PTY, Flag("--json", "", "print one JSON object with the result and the explanation"),
     _QUIET, _SOCKET, _NO_START),
    operand="[--] COMMAND [ARG…]", greedy=True,
)  # fmt: skip

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        RUN,
        EXPLAIN,
        Command("shell", "an interactive shell in a sandbox; what it started ends with it",
                (*_POLICY, _SANDBOX, *_PTY, _QUIET, _SOCKET, _NO_START),
                operand="[COMMAND [ARG…]]", optional=True, greedy=True),
        Command("sandbox create", "make a sandbox for many commands, and print its ID",
                (*POLICY,
                 Flag("--idle", "TIME", "end it when nothing ran in it for so long (default: 30m)"),
                 _JSON, _SOCKET, _NO_START)),
        Command("sandbox list", "list the sandboxes that were made", (_JSON, _SOCKET)),
        Command("sandbox destroy", "end a sandbox and everything in it", (_JSON, _SOCKET),
                operand="ID…", completes="sandbox"),
        SANDBOX_RUN,
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
