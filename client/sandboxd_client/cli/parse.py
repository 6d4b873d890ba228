"""Flags to values, from the table. Options after the command's name belong to the command."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd_client.cli.flags import CommandSpec, Flag
    from sandboxd_client.cli.hints.git.worktrees import Known


class UsageError(Exception):
    """The command line is not valid; `hint` says what is."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


_AMOUNTS = {"TIME": "5m", "SIZE": "256M", "N": "10"}  # by how a value is called; an example
_NO_AMOUNT = ("none", "all")
SHELL_LINE = "LINE"  # how -c calls its value


class Options:
    """What was given. A flag that was not given has no value, an empty list, or False."""

    def __init__(self, command: str = "") -> None:
        self.command = command  # the name of the subcommand
        self.help = False
        self.operands: list[str] = []
        self.hosts: list[str] = []  # what --net stands for, groups resolved
        self.missing: list[str] = []  # before a git command: what it takes for deleted
        self.printed = b""  # the end of the output, of git commands whose hint needs it
        self.errors: bytes | None = None  # the end of its stderr, where we have seen it
        self.began = 0.0  # before a git command: the time
        self.worktrees: Known | None = None  # before `git worktree add`
        # The word that was just taken as a value, its flag, and how the flag calls its value.
        self.taken: tuple[str, str, str] | None = None
        self.told: set[str] = set()  # warnings of the daemon, each said once
        self._values: dict[str, list[str]] = {}

    def add(self, name: str, value: str) -> None:
        self._values.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def one(self, name: str) -> str | None:
        """The last one given wins, as everywhere."""
        values = self._values.get(name)
        return values[-1] if values else None

    def merge(self, more: Options) -> None:
        """What was given later; its operands replace these."""
        for name, values in more._values.items():
            self._values.setdefault(name, []).extend(values)
        self.help, self.operands = more.help, more.operands

    @property
    def typed_in_sandbox(self) -> list[str] | None:
        """The flags that were given, for a command in a sandbox that exists; None for another."""
        return list(self._values) if self.has("--sandbox") else None

    def has(self, name: str) -> bool:
        return name in self._values


def parse(command: CommandSpec, arguments: list[str], *, needs_operand: bool = True) -> Options:
    flags = {flag.name: flag for flag in command.flags}
    flags |= {flag.short: flag for flag in command.flags if flag.short}
    options = Options(command.name)
    index = 0
    while index < len(arguments):
        argument = arguments[index]
        index += 1
        if argument == "--":
            options.operands += arguments[index:]
            break
        if not argument.startswith("-") or argument == "-":
            options.operands.append(argument)
            if command.greedy:
                options.operands += arguments[index:]
                break
            continue
        if argument in ("--help", "-h"):
            options.help = True
            return options
        index += _flag(command, flags, argument, arguments[index:], options)
    if needs_operand or options.operands:
        _check_operands(command, options)
    return options


def _flag(
    command: CommandSpec,
    flags: dict[str, Flag],
    argument: str,
    following: list[str],
    options: Options,
) -> int:
    """Take one flag; answers how many further arguments it used."""
    name, equals, value = _divided(argument, flags)
    flag = flags.get(name)
    if flag is None:
        from sandboxd_client.cli.help import unknown_flag

        hint = _taken_hint(options, [argument, *following]) or unknown_flag(command, name)
        raise UsageError(f"{command.name} has no option {name}", hint)
    options.taken = None
    if not flag.value:
        if equals:
            raise UsageError(f"{name} takes no value", f"write {name} alone")
        options.add(flag.name, "")
        return 0
    if equals:
        options.add(flag.name, _checked(flag, value))
        return 0
    if following[:1] in ([], ["--"]):
        raise UsageError(f"{name} needs a value", f"write {name} {flag.value}")
    value = following[0]
    if value in flags:
        raise UsageError(
            f"{name} needs a value, and {value} is an option", f"write {name} {flag.value} {value}"
        )
    is_command = following[1:2] != ["--"]
    if command.greedy and is_command and flag.value in _AMOUNTS and not _may_be_amount(value):
        raise _no_amount_error(name, flag, following)
    options.add(flag.name, _checked(flag, value))
    options.taken = (value, name, flag.value)
    return 1


def _no_amount_error(name: str, flag: Flag, following: list[str]) -> UsageError:
    """The name of a program was not meant as the value, which is forgotten."""
    from shutil import which

    example, (value, *command) = _AMOUNTS[flag.value], following
    if which(value) is not None:
        reason = f"{name} needs a value like {example}, and {value!r} is a program"
        return UsageError(reason, f"write {name} {example} {' '.join(following)}")
    return UsageError(f"{name} cannot be {value!r}", f"write {' '.join([name, example, *command])}")


def _may_be_amount(value: str) -> bool:
    return not value[:1].isalpha() or value in _NO_AMOUNT


def _taken_hint(options: Options, rest: list[str] | None = None) -> str | None:
    """Where a program's name was taken as the value of the flag before it. `rest`: the words that
    follow."""
    from shutil import which

    if options.taken is None:
        return None
    value, name, wanted = options.taken
    if wanted == SHELL_LINE and rest:
        from sandboxd_client.cli.plain_text import quote

        return f"a line of shell is one word: {name} {quote(' '.join([value, *rest]))}"
    if which(value) is None:
        return None
    return f"{value!r} was taken as the value of {name}; write {name} {wanted} {value} …"


def no_command_error(command: CommandSpec, options: Options) -> UsageError:
    hint = _taken_hint(options) or f"see sandboxctl help {command.name}"
    return UsageError(f"{command.name} needs {command.operand.removeprefix('[--] ')}", hint)


def _divided(argument: str, flags: dict[str, Flag]) -> tuple[str, str, str]:
    """`--flag=value`, and `-fvalue` for a letter that takes one."""
    short = flags.get(argument[:2])
    if argument.startswith("--") or short is None or not short.value or len(argument) == 2:
        return argument.partition("=")
    return argument[:2], "=", argument[2:]


def _checked(flag: Flag, value: str) -> str:
    if flag.choices and not flag.many and value not in flag.choices:
        from sandboxd_client.cli.help import unknown_choice

        raise UsageError(f"{flag.name} cannot be {value!r}", unknown_choice(value, flag.choices))
    if flag.name == "--name" and (" " in value or not value.isprintable()):
        raise UsageError(f"--name {value!r}: a name has no blanks", "it is typed as one word")
    return value


def _check_operands(command: CommandSpec, options: Options) -> None:
    if command.operand and not command.optional and not options.operands:
        raise no_command_error(command, options)
    if not command.operand and options.operands:
        raise UsageError(
            f"{command.name} takes no argument {options.operands[0]!r}",
            f"see sandboxctl {command.name} --help",
        )
    # What may follow a choice is no choice.
    checked = options.operands[:1] if " " in command.operand else options.operands
    for operand in checked if command.choices else ():
        if operand not in command.choices:
            from sandboxd_client.cli.help import unknown_choice

            raise UsageError(
                f"{command.name} does not know {operand!r}",
                unknown_choice(operand, command.choices),
            )
