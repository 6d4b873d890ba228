"""An error of the daemon in terms of the command line: which flag it is about, what to type.

Loaded only when something failed.
"""

from __future__ import annotations

import os

from sandboxd_client.cli.flags import TOOL_GROUPS
from sandboxd_client.cli.hints.invocation import adapt_hint, typed_prefix
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.session_variable import VARIABLE as SESSION_VARIABLE
from sandboxd_proto.locations import KEPT_FOLDER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd_client.cli.parse import Options

_FLAGS = {
    "fs_read_allow": "--read", "fs_write_allow": "--write", "fs_deny": "--deny", "cwd": "--cwd",
    "workspace": "--workspace", "preset": "--preset", "backend": "--backend", "base": "--base",
    "network": "--net", "syscall_policy": "--syscalls", "timeout": "--timeout",
    "max_memory_bytes": "--memory", "max_cpu_secs": "--cpu", "max_processes": "--processes",
    "tmp_bytes": "--tmp-size", "shm_bytes": "--shm-size", "env": "--env", "sandbox": "--sandbox",
    "idle_secs": "--idle", "signal": "--signal", "name": "--name", "execution_id": "--name",
    "types": "--type",
}  # fmt: skip
# What only a manifest has, unless a flag was typed.
_MANIFEST = {
    "fs_read_allow", "fs_write_allow", "fs_deny", "base", "network", "syscall_policy", "timeout",
    "max_memory_bytes", "max_cpu_secs", "max_cpus", "max_processes", "max_file_bytes",
    "max_output_bytes", "tmp_bytes", "shm_bytes", "env", "image",
}  # fmt: skip
# Of values that are typed. Whether an execution_id fits depends on what runs.
_VALUES = _MANIFEST | _FLAGS.keys() - {"execution_id"} | {"port", "title", "budget", "mode"}
# The message says what it is about.
_CLEAR = (
    "argv",
    "manifest",
    "execution_id",
    "sandbox",
    "workspace",
    "cwd",
    "session",
    "approval",
    "grant",
)
# What a remedy of the daemon says to a program, and what a person types.
_TYPED = (
    ("leave it out of the manifest", "leave it out"),
    ("leave it out of the request", "leave it out"),
    ("add it to the manifest: --", "add --"),
    ("allow it: --", "add --"),
    ('give "workspace": "/abs/dir"', "give --workspace DIR"),
    ('give another "cwd", such as ', "add --cwd "),
    ('leave "backend" out', "leave --backend out"),
    ('start it with "detach": true', "start it with --detach"),
    ('start it with "stdin_open": true', "start it with --pty"),
    ('use "preset": "read-only"', "give --preset read-only"),
    ("use the preset read-only", "give --preset read-only"),
    ('use "deny" or "inherit"', "give --net none or --net all"),
    ("read `message`, and ask for something else", "ask for something else"),
    ("ask to leave plan mode", "end plan mode (sandboxctl plan off; of one session: plan off ID)"),
    ("a PATH in the manifest's env", "a PATH with --env"),
    ("that this connection may use", "that exist"),
    (" and restart sandboxd", ", then sandboxctl restart"),
    ("send the request again", "run it again"),
    ("execution/list", "sandboxctl ps"),
    ("sandbox/list", "sandboxctl sandbox list"),
    ("sandbox/create", "sandboxctl sandbox create"),
    ("sandbox/destroy", "sandboxctl sandbox destroy"),
    ("sandbox/unforward", "sandboxctl sandbox unforward"),
    ("session/list", "sandboxctl sessions"),
    ("session/open", "sandboxctl session open"),
    ("approval/list", "sandboxctl approve --list"),
    ("grant/list", "sandboxctl grants"),
)
_SHELL_SYNTAX = set("|&;<>$*?`~(){}\"'\n")
_BUILTINS = ("cd", "export", "source", ".", "alias", "set", "unset", "ulimit", "umask", "type",
             "eval", "exec", "read", "if", "for", "while")  # fmt: skip
_EXECUTIONS = (
    "sandboxctl ps --all lists them, those that have ended for ten minutes and as long as the "
    "daemon runs; how others ended is in sandboxctl audit. An ID's first four digits are enough"
)
_EMPTY_COMMAND = (
    'did a variable that was to name it have no value? A line of shell is sandboxctl run -c "LINE"'
)
_NO_BACKEND = "leave --backend out"
_SESSION_ENDED = "the daemon was restarted, or the session was closed: leave it, and open one again"
_SANDBOXES = "sandboxctl sandbox list shows those that exist"
_SANDBOX_ENDED = "sandboxctl sandbox create makes one of that name again, with an empty /tmp"
_KEPT = "sandboxctl kept list, diff, accept or drop handles what was moved aside"
_NOWHERE = "no folder of your PATH has it either; aliases of your shell are not known here"


def is_wrong_value(error: Exception) -> bool:
    """Whether the daemon refused a typed value that is wrong on every machine."""
    if getattr(error, "kind", None) not in ("InvalidParams", "ManifestInvalid"):
        return False
    name = (getattr(error, "field", None) or "").partition("[")[0].partition(".")[0]
    return name in _VALUES


def reword(
    message: str, field: str | None, remedy: str | None, options: Options | None
) -> tuple[str, str | None, str | None]:
    """(message, cause, hint) for the screen."""
    name = (field or "").partition("[")[0].partition(".")[0]
    flag = _FLAGS.get(name)
    if name == "execution_id" and message.startswith("there is no"):
        return message.removesuffix(" on this connection"), None, _EXECUTIONS
    if name == "sandbox" and message.startswith("there is no"):
        hint = _SANDBOX_ENDED if " any more: " in message else _SANDBOXES
        aside = f"{_KEPT}; then " if KEPT_FOLDER in message else ""
        return message, None, aside + hint
    if name == "sandbox" and "is a command, and no sandbox" in message:
        how = (
            "sandboxctl sandbox create --name NAME; then sandboxctl sandbox run --detach NAME -- …"
        )
        return message, None, f"start the server in one: {how}"
    if name == "session" and message.startswith("there is no") and _is_ours(message):
        return f"{message} any more", None, _SESSION_ENDED
    if name == "argv" and options is not None and options.operands[:1] == [""]:
        return "the command is an empty word", None, _EMPTY_COMMAND
    is_typed = flag is not None and options is not None and options.has(flag)
    if is_typed and name == "cwd" and "is not visible" in message and options is not None:
        message, remedy = _cwd_that_does_not_exist(options) or (message, remedy)
    if is_typed:
        for whole in ("manifest", "request"):
            remedy = (remedy or "").replace(f"leave it out of the {whole}", f"leave {flag} out")
            remedy = remedy.replace(f"leave {name} out", f"leave {flag} out")
        remedy = remedy or None
        if (
            flag in ("--read", "--write", "--deny")
            and "," in message
            and "create it" in str(remedy)
        ):
            remedy = f"it is one path; write {flag} once for each: {flag} A {flag} B"
    if remedy and options is not None and options.has("--backend"):
        before, local, _ = remedy.partition("for the local sandbox ")
        remedy = f"{before}{local}{_NO_BACKEND}" if local else remedy
    remedy = adapt_hint(in_words_of_the_shell(remedy), options) if remedy else None
    if is_typed:
        if "no group" in message:
            remedy = f"groups of tools: {', '.join(f'group:{name}' for name in TOOL_GROUPS)}"
        if message.startswith(f"{name} is ") or (
            "_" in name and message.startswith(f"{name} must")
        ):
            from sandboxd_client.cli.denial_lines import in_flags

            return in_flags(message), None, remedy
        return f"{flag}: {message}", None, remedy
    file = options.one("--manifest") if options is not None else None
    if file is not None and name in _MANIFEST:
        return f"{file}: {message if name in message else f'{name}: {message}'}", None, remedy
    cause = None if not field or name in _CLEAR or name in message else f"the field is {field}"
    return message, cause, remedy


def _cwd_that_does_not_exist(options: Options) -> tuple[str, str] | None:
    from sandboxd_client.cli.workspace import resolve

    path = resolve(options.one("--cwd") or "")
    if os.path.lexists(path):
        return None
    return f"{path} does not exist", "create it first, or leave --cwd out"


def _is_ours(message: str) -> bool:
    """Whether it names the session that this process was started in."""
    session = os.environ.get(SESSION_VARIABLE, "").partition(":")[0]
    return bool(session) and session in message


def in_words_of_the_shell(remedy: str) -> str:
    """Flags in place of fields of the manifest, commands in place of methods."""
    for field, flag in (("fs_read_allow", "--read"), ("fs_write_allow", "--write")):
        before, found, rest = remedy.partition(f'"{field}": ["')
        path, closed, after = rest.partition('"]')
        if found and closed:
            remedy = f"{before}{flag} {quote(path)}{after}"
    for words, instead in _TYPED:
        remedy = remedy.replace(words, instead)
    return remedy


def _hidden_by_deny(options: Options, needed: list[str]) -> str | None:
    from sandboxd_client.cli.workspace import inside, resolve

    for path in options.all("--deny"):
        hidden = next((one for one in needed if inside(one, resolve(path))), None)
        if hidden is not None:
            return f"--deny {quote(path)} hides {quote(hidden)}, which is on this machine"
    return None


def _is_assignment(word: str) -> bool:
    return "=" in word and word.partition("=")[0].isidentifier()


def _with_variables(argv: list[str]) -> str:
    """`FOO=1 make` is shell; outside of one a flag sets variables."""
    count = next((i for i, word in enumerate(argv) if not _is_assignment(word)), len(argv))
    given = " ".join(f"-e {quote(word)}" for word in argv[:count])
    command = " ".join(map(quote, argv[count:])) or "COMMAND"
    return f"variables are set with a flag: {given} {command}"


def not_found(
    options: Options, caller_path: str, shown: list[str], message: str = ""
) -> str | None:
    """What to do about a program that is not in the sandbox. `shown`: folders of the request.
    `message`: of the daemon, which may name an interpreter."""
    argv, program = options.operands, options.operands[0]
    if len(argv) == 1 and (" " in program or _SHELL_SYNTAX & set(program)):
        return f"for a line of shell: {typed_prefix(options)} -- sh -c {quote(program)}"
    if _is_assignment(program):
        return _with_variables(argv)
    from sandboxd_client.cli.hints.root import BECOME, root_hint

    if program in BECOME:
        return root_hint(program, argv)
    if program in _BUILTINS:
        line = quote(" ".join(argv))
        return f"{program} is a word of the shell: {typed_prefix(options)} -- sh -c {line}"
    from shutil import which

    found = which(program, path=caller_path)
    needed = [word.strip(",") for word in message.split() if word.startswith("/")]
    if hidden := _hidden_by_deny(options, [*filter(None, [found]), *needed]):
        return hidden
    if found is None:
        return None if os.sep in program else _NOWHERE
    from sandboxd_client.cli.hints.hidden_program import where_it_lies

    place = where_it_lies(found, shown)
    return adapt_hint(place, options) if place else None
