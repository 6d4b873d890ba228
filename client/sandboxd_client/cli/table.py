"""Every subcommand and flag, once: the parser, `--help` and shell completion read this table."""

from __future__ import annotations

from sandboxd_proto import PRESET_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Completes = Literal["", "file", "dir", "execution", "detached", "sandbox", "signal", "command"]


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
SHELLS = ("bash", "zsh", "fish")
GROUPS = {
    "sandbox": "make, list and end sandboxes for many commands",
    "session": "run an agent in a session, end a session",
    "config": "show and check the daemon's settings",
    "cache": "the package caches of workspaces",
    "kept": "protected files that were moved aside",
}

_SOCKET = Flag("--socket", "PATH", "the daemon's socket (default: $SANDBOXD_SOCKET, else your own)",
               completes="file")  # fmt: skip
_NO_START = Flag("--no-autostart", "", "fail when no daemon listens; do not start one")
_JSON = Flag("--json", "", "print one JSON object")
_QUIET = Flag("--quiet", "", "say nothing beyond the command's own output", short="-q")

_SANDBOX = Flag("--sandbox", "ID", "a sandbox by ID or name: run it there, under its policy",
                completes="sandbox")  # fmt: skip
_PTY = (
    Flag("--pty", "", "give the command a terminal (default: when you have one)"),
    Flag("--no-pty", "", "give it pipes"),
)
_CWD = Flag("--cwd", "DIR", "where the command starts", completes="dir")

_MODE = Flag("--mode", "MODE", "what runs without a question (default: as the config says)",
             choices=("default", "auto_edit", "force", "plan"))  # fmt: skip
_PLAN = Flag("--plan", "", "plan mode: only commands that read may run")
_SESSION = (
    _MODE, _PLAN,
    Flag("--session", "ID:TOKEN", "the session that it belongs to (default: $SANDBOXD_SESSION)"),
    Flag("--ask", "", "decide on this terminal what --mode asks about"),
)  # fmt: skip

# What a sandbox is made from: not to be said of a command in one that exists.
POLICY = (
    Flag("--preset", "NAME", "the starting point (default: workspace-write)", choices=PRESET_NAMES),
    Flag("--workspace", "DIR", "the folder that is writable (default: the git root, else here)",
         completes="dir", short="-w"),
    Flag("--manifest", "FILE", "a TOML file whose [sandbox] table says what is allowed",
         completes="file"),
    Flag("--read", "PATH", "allow reading PATH", many=True, completes="file"),
    Flag("--write", "PATH", "allow reading and writing PATH", many=True, completes="file"),
    Flag("--deny", "PATH", "hide PATH, even inside an allowed one", many=True, completes="file"),
    Flag("--net", "HOST", "none, all, or hosts that may be reached, at ports 80 and 443 or as "
         "HOST:PORT; group:python, node, rust, go: those of these tools' own configuration (comma "
         "or repeated)",
         many=True, choices=("none", "all", *(f"group:{tool}" for tool in TOOL_GROUPS))),
    Flag("--timeout", "TIME", "stop the command after 30s, 5m, …; none: never (default)"),
    Flag("--memory", "SIZE", "at most this much memory: 256M, 2G"),
    Flag("--cpu", "TIME", "at most this much CPU time: 10s, 2m"),
    Flag("--processes", "N", "at most N processes at once"),
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
_POLICY = (*POLICY, _CWD)
# What a command in a sandbox that exists can be given: variables, and less than the sandbox has.
NARROWING = tuple(
    flag
    for flag in POLICY
    if flag.name.startswith("--env")
    or flag.name in ("--timeout", "--memory", "--cpu", "--processes")
)

_SHELL_LINE = Flag("--command", "LINE", "a line of shell in place of COMMAND", short="-c")

_KEPT_WORKSPACE = Flag(
    "--workspace",
    "DIR",
    "the workspace (default: the git root, else here)",
    completes="dir",
    short="-w",
)

_DETACH = (
    Flag("--detach", "", "print its ID and leave it running; see attach, logs, ps and kill"),
    Flag("--name", "NAME", "its ID, for --detach"),
)

RUN = CommandSpec(
    "run", "run a command in a sandbox; it behaves like the command itself",
    (*_POLICY, _SANDBOX, *_PTY, _SHELL_LINE, *_DETACH, *_SESSION,
     Flag("--json", "", "print one JSON object with the result and the captured output"),
     _QUIET, _SOCKET, _NO_START),
    operand="[--] COMMAND [ARG…]", greedy=True, optional=True,
    examples=(
        ("sandboxctl run make test", "the git repository here is writable, no network"),
        ("sandboxctl run -c 'make 2>&1 | tail'", "a line of shell"),
        ("sandboxctl run --net group:python pip install -r requirements.txt", "named hosts only"),
        ("sandboxctl run --preset read-only --read ~/data ./report.py", "nothing can be written"),
        ("sandboxctl run --timeout 10m --detach --name build make", "in the background"),
    ),
)  # fmt: skip

SANDBOX_RUN = CommandSpec(
    "sandbox run", "run a command in a sandbox that exists",
    (_CWD, *NARROWING, *_PTY, _SHELL_LINE, *_DETACH, *_SESSION,
     Flag("--json", "", "print one JSON object with the result and the output"),
     _QUIET, _SOCKET, _NO_START),
    operand="ID [--] COMMAND [ARG…]", greedy=True, completes="sandbox",
    examples=(
        ("sandboxctl sandbox run web -- make test", "in the sandbox that was named web"),
        ("sandboxctl sandbox run --detach web -- ./server", "it goes on in the background"),
    ),
)  # fmt: skip

EXPLAIN = CommandSpec(
    "explain", "run a command once, and say what it needs that it may not have",
    (*_POLICY,
     Flag("--write-manifest", "FILE", "write a manifest for `run --manifest` that would do",
          completes="file"),
     *_PTY, Flag("--json", "", "print one JSON object with the result and the explanation"),
     _QUIET, _SOCKET, _NO_START),
    operand="[--] COMMAND [ARG…]", greedy=True,
)  # fmt: skip

COMMANDS: dict[str, CommandSpec] = {
    command.name: command
    for command in (
        RUN,
        EXPLAIN,
        CommandSpec("shell", "an interactive shell in a sandbox; what it started ends with it",
                (*_POLICY, _SANDBOX, *_PTY, _SHELL_LINE, _QUIET, _SOCKET, _NO_START),
                operand="[COMMAND [ARG…]]", optional=True, greedy=True,
                examples=(("sandboxctl shell", "your shell, with the workspace writable"),
                          ("sandboxctl shell --net all", "with the network"))),
        CommandSpec("attach", "see what a detached command prints, and type to it",
                (_SOCKET,), operand="ID", completes="detached",
                examples=(("sandboxctl attach build",
                           "Ctrl-C leaves it running; Ctrl-] if it has --pty"),)),
        CommandSpec("logs", "what a detached command has printed (its last MiB), and its end",
                (Flag("--follow", "", "go on until it ends; then the exit code is the command's",
                      short="-f"), _SOCKET),
                operand="ID", completes="detached"),
        CommandSpec("sandbox create", "make a sandbox for many commands, and print its ID",
                (*POLICY,
                 Flag("--name", "NAME", "can be used in place of its ID"),
                 Flag("--idle", "TIME", "end it when nothing ran in it for so long (default: 30m)"),
                 _JSON, _SOCKET, _NO_START),
                examples=(
                    ("sandboxctl sandbox create --name web", "then, for a server:"),
                    ("sandboxctl sandbox run --detach web -- python3 -m http.server 8000",
                     "it listens on the sandbox's own 127.0.0.1"),
                    ("sandboxctl sandbox forward --tcp web 8000",
                     "prints the address on this machine that leads to it"),
                )),
        CommandSpec("sandbox list", "list the sandboxes that were made", (_JSON, _SOCKET)),
        CommandSpec("sandbox forward", "reach a port of a sandbox from this machine; prints where",
                (Flag("--tcp", "", "a port of 127.0.0.1, which every user of this machine can "
                      "connect to (default: a Unix socket that only you can)"), _JSON, _SOCKET),
                operand="ID PORT", completes="sandbox",
                examples=(
                    ("sandboxctl sandbox forward --tcp web 8000", "for a browser"),
                    ('curl --unix-socket "$(sandboxctl sandbox forward web 8000)" http://localhost/',
                     "without a port"),
                )),
        CommandSpec("sandbox unforward", "end what `sandbox forward` printed; without it, all",
                (_JSON, _SOCKET), operand="ID [ENDPOINT]", completes="sandbox"),
        CommandSpec("sandbox destroy", "end a sandbox and everything in it", (_JSON, _SOCKET),
                operand="ID…", completes="sandbox"),
        SANDBOX_RUN,
        CommandSpec("check", "show what `run` would enforce, and how; run nothing",
                (*_POLICY, Flag("--verbose", "", "every path, variable and argument", short="-v"),
                 _JSON, _QUIET, _SOCKET, _NO_START)),
        CommandSpec("status", "show the daemon, its backend and what runs",
                (_JSON, _SOCKET, _NO_START)),
        CommandSpec("doctor", "why a backend does not work here, and the exact fix",
                (_JSON, _SOCKET, _NO_START)),
        CommandSpec("ps", "list what runs: of every client of yours, and detached",
                (_JSON, _SOCKET)),
        CommandSpec("kill", "end an execution and everything that it started",
                (Flag("--signal", "SIG", "send this signal instead of ending the whole tree",
                      completes="signal"), _JSON, _SOCKET),
                operand="ID…", completes="execution"),
        CommandSpec("approve", "decide what waits for an approval, one at a time, oldest first",
                (Flag("--once", "", "allow this once"),
                 Flag("--session", "", "allow it for the session"),
                 Flag("--always", "", "allow it always in the workspace"),
                 Flag("--deny", "", "refuse it; the words after the ID are the message"),
                 Flag("--list", "", "list what waits"), _JSON, _SOCKET),
                operand="[ID [MESSAGE…]]", optional=True),
        CommandSpec("session open", "run an agent; its own commands belong to one session",
                (_MODE, _PLAN,
                 Flag("--budget", "LIMITS", "at most this much: usd=2,runtime=10m,tokens_in=1000"),
                 Flag("--name", "NAME", "its restrictions come back when NAME is opened again"),
                 Flag("--title", "TEXT", "what approvers are shown"),
                 Flag("--workspace", "DIR", "the folder that is writable", completes="dir"),
                 _SOCKET, _NO_START),
                operand="[--] AGENT [ARG…]", greedy=True),
        CommandSpec("session close", "end a session, with all below it and what runs in them",
                (_JSON, _SOCKET), operand="ID…"),
        CommandSpec("sessions", "list the sessions as a tree", (_JSON, _SOCKET)),
        CommandSpec("plan", "plan mode for every session: only commands that read may run",
                (_JSON, _SOCKET), operand="on|off", choices=("on", "off")),
        CommandSpec("grants", "list what was approved for longer; remove ID takes one back",
                (_JSON, _SOCKET), operand="[remove ID…]", optional=True),
        CommandSpec("budget", "show what sessions may use and have used", (_JSON, _SOCKET),
                operand="[ID…]", optional=True),
        CommandSpec("top", "sessions, what runs, what waits and what it cost, as they change",
                (Flag("--once", "", "print it once"), _JSON, _SOCKET)),
        CommandSpec("audit", "print the trail of what ran and who decided",
                (Flag("--follow", "", "go on with what happens"),
                 Flag("--session", "ID", "of this session"),
                 Flag("--since", "TIME", "not older than 1h, 2d or a date"),
                 Flag("--last", "N", "the last N records; all: every one (default: 50)"),
                 Flag("--type", "NAME", "of this type: execution.ended, approval.*", many=True),
                 Flag("--verify", "", "check that no record was changed or removed"),
                 _JSON, _SOCKET)),
        CommandSpec("dashboard", "a page with sessions, approvals and the trail, on this machine",
                (Flag("--port", "N", "listen at this port (default: a free one)"),
                 Flag("--no-open", "", "print the address, and open no browser"), _SOCKET)),
        CommandSpec("shutdown", "end the daemon, when nothing runs",
                (Flag("--force", "", "also when commands or sandboxes end with it"),
                 _JSON, _SOCKET)),
        CommandSpec("restart", "end the daemon and start it anew, when nothing runs",
                (Flag("--force", "", "also when commands or sandboxes would end with it"),
                 _SOCKET)),
        CommandSpec("socket", "print the path of the daemon's socket",
                (Flag("--start", "", "start the daemon if it does not listen"), _SOCKET)),
        CommandSpec("config show", "print every setting, and where it comes from", (_JSON,)),
        CommandSpec("config check", "read the config and say what is wrong with it", ()),
        CommandSpec("cache list", "the package caches of workspaces, with their sizes", (_JSON,)),
        CommandSpec("cache prune", "remove the caches of workspaces that are gone",
                (Flag("--all", "", "of every workspace"), _JSON)),
        CommandSpec("kept list", "protected files that were moved aside, of this workspace",
                (_JSON, _KEPT_WORKSPACE)),
        CommandSpec("kept diff", "what they hold, against what is there now",
                (_KEPT_WORKSPACE,), operand="[NAME…]", optional=True),
        CommandSpec("kept accept", "put one back to where it appeared; look at it first",
                (_KEPT_WORKSPACE,), operand="NAME…"),
        CommandSpec("kept drop", "delete them; without a name all of them",
                (Flag("--all", "", "all of them, as without a name"), _KEPT_WORKSPACE),
                operand="[NAME…]", optional=True),
        CommandSpec("image", "build the base image of the docker backend; no registry is needed",
                (Flag("--tag", "NAME", "what it is called (default: sandboxd/base:local)"),
                 Flag("--with", "PROGRAM", "put a program of this machine into it", many=True),
                 Flag("--bare", "", "busybox only, without Python"),
                 Flag("--host", "URL", "the engine (default: $DOCKER_HOST, else the usual socket)"),
                 _JSON),
                operand="build", choices=("build",)),
        CommandSpec("service", "the daemon as a service: systemd, launchd or a logon task",
                (Flag("--dry-run", "", "only print what would be done"), _JSON),
                operand="install|uninstall|status", choices=("install", "uninstall", "status")),
        CommandSpec("completion", "print the completion script of a shell", (),
                operand="bash|zsh|fish", choices=SHELLS),
        CommandSpec("man", "show the manual page of sandboxctl or of one command",
                (Flag("--install", "", "write all of them to where `man` finds them"),),
                operand="[COMMAND]", optional=True, completes="command",
                examples=(("sandboxctl man run", "read one"),
                          ("sandboxctl man --install", "then: man sandboxctl-run"))),
        CommandSpec("help", "show the help of a command", (), operand="[COMMAND]", optional=True,
                completes="command"),
    )
}  # fmt: skip
