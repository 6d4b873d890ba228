"""The flags of `run`, most of which other commands share: all that `sandboxctl run` reads."""

from __future__ import annotations

from sandboxd_proto import PRESET_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Completes = Literal[
        "", "file", "dir", "execution", "detached", "sandbox", "signal", "command", "kept"
    ]


class Flag:
    """`value`: how its value is called in the help; empty for a switch. `many`: may be repeated.
    `short`: one letter that stands for it."""

    __slots__ = ("choices", "completes", "help", "many", "name", "short", "value")

    def __init__(
        self, name: str, value: str, help: str, *, many: bool = False,
        choices: tuple[str, ...] = (), completes: Completes = "", short: str = "",
    ) -> None:  # fmt: skip
        self.name = name
        self.short = short
        self.value = value
        self.help = help
        self.many = many
        self.choices = choices
        self.completes = completes


class CommandSpec:
    """`operand`: what comes after the flags. `greedy`: everything from the first operand on.

    A name of two words is an action of a group: `sandbox create`. `examples`: lines for the help.
    """

    __slots__ = (
        "choices", "completes", "examples", "flags", "greedy", "name", "operand", "optional",
        "summary",
    )  # fmt: skip

    def __init__(
        self, name: str, summary: str, flags: tuple[Flag, ...], *, operand: str = "",
        optional: bool = False, greedy: bool = False, choices: tuple[str, ...] = (),
        completes: Completes = "", examples: tuple[tuple[str, str], ...] = (),
    ) -> None:  # fmt: skip
        self.name = name
        self.examples = examples
        self.summary = summary
        self.flags = flags
        self.operand = operand
        self.optional = optional
        self.greedy = greedy
        self.choices = choices
        self.completes = completes


TOOL_GROUPS = ("python", "node", "rust", "go")

SOCKET = Flag("--socket", "PATH", "the daemon's socket (default: $SANDBOXD_SOCKET, else your own)",
               completes="file")  # fmt: skip
NO_START = Flag("--no-autostart", "", "fail when no daemon listens; do not start one")
JSON = Flag("--json", "", "print one JSON object")
QUIET = Flag("--quiet", "", "say nothing beyond the command's own output", short="-q")

SANDBOX = Flag("--sandbox", "ID", "a sandbox by ID or name: run it there, under its policy",
                completes="sandbox")  # fmt: skip
PTY = (
    Flag(
        "--pty",
        "",
        "give the command a terminal (default: when your stdin and stdout are one); "
        "a stderr that is redirected stays apart",
    ),
    Flag("--no-pty", "", "give it pipes"),
)
CWD = Flag(
    "--cwd",
    "DIR",
    "where the command starts (default: here, if that lies in the workspace, else the workspace)",
    completes="dir",
)

MODES = ("default", "auto_edit", "force", "plan")
UNASKED = (
    "what runs without a question: nothing that can write (default), what writes only the "
    "workspace (auto_edit), everything (force); plan is --plan"
)
MODE = Flag(
    "--mode", "MODE",
    f"{UNASKED}. Without it the session's mode, else widest_mode of the config", choices=MODES,
)  # fmt: skip
PLAN = Flag("--plan", "", "plan mode: nothing that can write runs, whatever the command is")
SESSION = (
    MODE, Flag("--plan", "", f"{PLAN.help}; the preset is then read-only"),
    Flag("--session", "ID:TOKEN", "the session that it belongs to (default: $SANDBOXD_SESSION)"),
    Flag("--ask", "", "decide on this terminal what --mode asks about"),
)  # fmt: skip

# What a sandbox is made from: not to be said of a command in one that exists.
POLICY = (
    Flag("--preset", "NAME", "the starting point (default: workspace-write)", choices=PRESET_NAMES),
    Flag("--workspace", "DIR", "the folder that is writable (default: the git root, else here); "
         "the command starts in it, or in your folder where that lies in it",
         completes="dir", short="-w"),
    Flag("--manifest", "FILE", "a TOML file whose [sandbox] table says what is allowed, and "
         "nothing else: no network if it names none. Hooks, .git/config and the like are "
         "writable with their folder unless --preset workspace-write is given, too",
         completes="file"),
    Flag("--read", "PATH", "allow reading PATH", many=True, completes="file"),
    Flag("--write", "PATH", "allow reading and writing PATH", many=True, completes="file"),
    Flag("--deny", "PATH", "hide PATH, even inside an allowed one", many=True, completes="file"),
    Flag("--net", "HOST", "none, all, or hosts that may be reached, at ports 80 and 443 or as "
         "HOST:PORT; group:python, group:node, group:rust, group:go: those of these tools' own "
         "configuration (comma or repeated)",
         many=True, choices=("none", "all", *(f"group:{tool}" for tool in TOOL_GROUPS))),
    Flag("--timeout", "TIME", "stop the command after 30s, 5m, …; none: never (default)"),
    Flag("--memory", "SIZE", "at most this much memory: 256M, 2G"),
    Flag("--cpu", "TIME", "at most this much CPU time: 10s, 2m"),
    Flag("--processes", "N", "at most N processes at once; a command that needs more is ended"),
    Flag("--tmp-size", "SIZE", "the size of the private /tmp: 256M, 2G (default: 1G)"),
    Flag("--shm-size", "SIZE", "the size of the private /dev/shm (default: 256M)"),
    Flag("--env", "K[=V]", "a variable for the command; without =V your value", many=True,
         short="-e"),
    Flag("--env-all", "", "all your variables but those that look like secrets"),
    Flag("--env-pass", "NAMES", "your values of these variables; AWS_* for all of a beginning "
         "(comma or repeated)", many=True),
    Flag("--ssh-agent", "", "lend your ssh agent ($SSH_AUTH_SOCK), and show your known hosts"),
    Flag("--base", "KIND", "which system files are visible", choices=("minimal", "host")),
    Flag("--syscalls", "KIND", "the system call filter", choices=("baseline", "strict", "inherit")),
    Flag("--backend", "NAME", "use this backend or refuse"),
)  # fmt: skip
COMMAND_POLICY = (*POLICY, CWD)
# What a command in a sandbox that exists can be given: variables, and less than the sandbox has.
NARROWING = tuple(
    flag
    for flag in POLICY
    if flag.name.startswith("--env")
    or flag.name in ("--timeout", "--memory", "--cpu", "--processes")
)

NO_STDIN = Flag(
    "--no-stdin",
    "",
    "give it no input, as in a loop that reads its own from there; "
    "without it the command gets your stdin, and what you type meanwhile",
    short="-n",
)
SHELL_LINE = Flag("--command", "LINE", "a line of shell in place of COMMAND", short="-c")

DETACH = (
    Flag(
        "--detach",
        "",
        "print its ID and leave it running, without your stdin; see attach, logs, ps and kill",
    ),
    Flag("--name", "NAME", "its ID, for --detach"),
)

RUN = CommandSpec(
    "run", "run a command in a sandbox; it behaves like the command itself",
    (*COMMAND_POLICY, SANDBOX, *PTY, NO_STDIN, SHELL_LINE, *DETACH, *SESSION,
     Flag("--json", "", "print one JSON object with the result and the captured output, at most "
          "8 MiB of each stream"),
     QUIET, SOCKET, NO_START),
    operand="[--] COMMAND [ARG…]", greedy=True, optional=True,
    examples=(
        ("sandboxctl run make test", "the git repository here is writable, no network"),
        ("sandboxctl run -c 'make 2>&1 | tail'", "a line of shell"),
        ("sandboxctl run --net group:python pip install -r requirements.txt", "named hosts only"),
        ("sandboxctl run --net group:rust,example.org cargo build",
         "the hosts of a tool's own configuration, and one more"),
        ("sandboxctl run --preset read-only --read ~/data ./report.py", "nothing can be written"),
        ("sandboxctl run --timeout 10m --detach --name build make", "in the background"),
        ("sandboxctl help sandbox forward", "for a server that is to be reached from outside"),
    ),
)  # fmt: skip

SANDBOX_RUN = CommandSpec(
    "sandbox run", "run a command in a sandbox that exists",
    (CWD, *NARROWING, *PTY, NO_STDIN, SHELL_LINE, *DETACH, *SESSION,
     Flag("--json", "", "print one JSON object with the result and the output, at most 8 MiB of "
          "each stream"),
     QUIET, SOCKET, NO_START),
    operand="ID [--] COMMAND [ARG…]", greedy=True, completes="sandbox",
    examples=(
        ("sandboxctl sandbox run web -- make test", "in the sandbox that was named web"),
        ("sandboxctl sandbox run --detach web -- ./server", "it goes on in the background"),
    ),
)  # fmt: skip
