"""Parse a command line: the folders, hosts, pids and files that it names.

A shell's text is split into words; nothing is expanded. It helps to find the subject of a message
that does not name it, and is never evidence on its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cached_property
from posixpath import basename, dirname, normpath

import msgspec

from sandboxd.denials.text.outputs import ENTRY_PROGRAMS, outputs

MAX_TEXT = 16384
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "ash"})
# Prefixes before the real program.
_WRAPPERS = frozenset(
    {"env", "exec", "command", "nice", "nohup", "time", "sudo", "stdbuf", "setsid"}
)
_BREAKS = frozenset({";", "&&", "||", "|", "&", "(", ")", "|&", ";;", "\n"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_FOLDER_OPTIONS = frozenset({"-C", "--directory", "--prefix", "--git-dir", "--work-tree", "--cwd"})
_URL_HOST = re.compile(
    r"\b[a-z][a-z0-9+.-]{0,15}://(?:[^\s/@'\"]*@)?(\[[0-9a-fA-F:]+\]|[\w.-]+)(?::(\d+))?"
)
_SCP_HOST = re.compile(r"(?:^|[\s'\"])[\w.-]+@([\w-]+(?:\.[\w-]+)+):")
_SSH_PORT = {"ssh": "-p", "scp": "-P", "sftp": "-P"}  # the option of each
_TCP_DEVICE = re.compile(r"/dev/(?:tcp|udp)/([\w.:-]+)/(\d+)")
_HOST_WORD = re.compile(r"(?:[\w-]+@)?((?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}|\d{1,3}(?:\.\d{1,3}){3})\Z")
# Programs whose plain operands are hosts.
_HOST_PROGRAMS = frozenset(
    {"ping", "curl", "wget", "ssh", "getent", "nslookup", "dig", "host", "nc", "ncat", "telnet",
     "traceroute", "tracepath", "ftp", "sftp", "whois", "openssl"}
)  # fmt: skip
_NUMBER = re.compile(r"(?<![\w.])(\d{2,7})(?![\w.])")
# How languages open a file for writing, seen from its name: `open("p", "w")`, `write_text("p"`,
# `Path("p").write_text(`.
_OPENED_AFTER = re.compile(
    r"[\"'`]\s{0,8},\s{0,8}(?:mode\s{0,8}=\s{0,8})?[\"'`](?:[wax]|r\+|rb\+|>)"
    r"|[\"'`]\s{0,8}\)\s{0,8}\.(?:write_|touch\(|mkdir\()"
)
_OPENED_BEFORE = re.compile(
    r"(?:[\"'`](?:>|>>|\+<|w|a)[\"'`]\s{0,8},\s{0,8}"
    r"|(?:write|append|mkdir|makedirs|create)\w{0,16}\s{0,8}\(\s{0,8})[\"'`]\Z"
)
# A single quote before it may keep it as it is: then no message names such a path.
_HOME = re.compile(r"(?:(?<![^\s=:'\"<>])~|\$HOME|\$\{HOME\})/")
_AROUND = 64
_MOST_MENTIONS = 16  # of one name on one command line
_MOST_FOLDERS = 8


class Simple(msgspec.Struct, frozen=True):
    """One program of a command line with its operands; `writes_to`: targets of `>`."""

    program: str
    words: tuple[str, ...]
    writes_to: tuple[str, ...] = ()
    silent: bool = False  # its stderr goes to /dev/null


class CommandLine:
    def __init__(self, argv: tuple[str, ...], home: str = "") -> None:
        """`home`: what a shell puts in the place of `~` and `$HOME`."""
        self.argv = argv
        self.script = _script(argv)
        if home and self.script is not None:
            self.script = _HOME.sub(lambda _: f"{home}/", self.script[:MAX_TEXT])
        self.text = (self.script if self.script is not None else " ".join(argv))[:MAX_TEXT]

    @cached_property
    def simple(self) -> tuple[Simple, ...]:
        if self.script is None:
            return (_simple(list(self.argv)),) if self.argv else ()
        return tuple(_commands(self.script[:MAX_TEXT]))

    @cached_property
    def only(self) -> Simple | None:
        """The one program whose exit code the command's is."""
        return self.simple[0] if len(self.simple) == 1 else None

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Folders that it changes to, as written: `cd d`, `-C d`, `--prefix d`. With "." last if
        it does so before anything else: a relative name is then meant in the folder."""
        found = []
        for one in self.simple:
            if one.program in {"cd", "pushd"} and one.words:
                found.append(one.words[0])
            found += _option_folders(one.words)
        enters = self.simple[:1] and self.simple[0].program in {"cd", "pushd"}
        enters = enters or (self.only is not None and self.only.program in {"git", "make"})
        return (*tuple(dict.fromkeys(found))[:_MOST_FOLDERS], *(["."] if found and enters else ()))

    @cached_property
    def hosts(self) -> tuple[tuple[str, int | None], ...]:
        """Hosts that it names, with the port where one is given."""
        found: dict[tuple[str, int | None], None] = {}
        for host, port in _URL_HOST.findall(self.text) + _TCP_DEVICE.findall(self.text):
            found[(host.strip("[]"), int(port) if port and int(port) < 65536 else None)] = None
        for host in _SCP_HOST.findall(self.text):
            given = [port for one in self.simple if (port := _ssh_port(one)) is not None]
            found[(host, given[0] if given else 22)] = None
        for one in self.simple:
            if one.program in _HOST_PROGRAMS:
                for word in one.words:
                    match = _HOST_WORD.match(word)
                    if match is not None:
                        found.setdefault((match.group(1), _ssh_port(one)))
        return tuple(found)

    def port_of(self, host: str) -> int | None:
        """The port that it names for a host, where it names one."""
        ports = {port for name, port in self.hosts if name.lower() == host.lower()}
        return ports.pop() if len(ports) == 1 else None

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(int(text) for text in _NUMBER.findall(self.text)))

    @cached_property
    def merges_stderr(self) -> bool:
        return self.script is not None and ("2>&1" in self.script or "&>" in self.script)

    def changes(self, name: str) -> bool:
        """Whether a program of it writes `name`, by its operands and options."""
        return name in self._outputs

    def changes_entry(self, name: str) -> bool:
        """Whether `name` is only made, renamed or removed: what a link of that name leads to is
        not written."""
        by = self._writers.get(name, frozenset())
        opened = name in self._redirected or self._opens(name)
        return bool(by) and by <= ENTRY_PROGRAMS and not opened

    def replaces(self, name: str) -> bool:
        """Whether a program of it replaces or removes `name` in its folder."""
        return self._outputs.get(name, False)

    def replaced_beside(self, name: str) -> list[str]:
        """What a program of it replaces in the folder of `name`, which may be a temporary file."""
        folder = normpath(dirname(name))
        replaced = (path for path, in_folder in self._outputs.items() if in_folder)
        return [path for path in replaced if normpath(dirname(path)) == folder]

    def writes(self, name: str, line: str = "") -> bool:
        """Whether the command line itself opens `name` for writing. Of a program that says so in
        `line`, what another one writes counts as read."""
        speaker = basename(line[:_AROUND].partition(":")[0])
        if speaker not in SHELLS and any(one.program == speaker for one in self.simple):
            return speaker in self._writers.get(name, ()) or self._opens(name)
        return name in self._redirected or self.changes(name) or self._opens(name)

    def _opens(self, name: str) -> bool:
        """Whether a program in its text does."""
        at = self.text.find(name) if name else -1
        for _ in range(_MOST_MENTIONS):
            if at < 0:
                return False
            end = at + len(name)
            if _OPENED_AFTER.match(self.text[end : end + _AROUND]) or _OPENED_BEFORE.search(
                self.text[max(0, at - _AROUND) : at]
            ):
                return True
            at = self.text.find(name, end)
        return False

    def names(self, word: str) -> bool:
        """Whether the command line has this very word."""
        return word in self._words

    @cached_property
    def _redirected(self) -> frozenset[str]:
        return frozenset(path for one in self.simple for path in one.writes_to)

    @cached_property
    def _outputs(self) -> dict[str, bool]:
        """What its programs change → whether in its folder."""
        found = (each for one in self.simple for each in outputs(one.program, one.words))
        return {each.path: each.in_folder for each in found}

    @cached_property
    def _writers(self) -> dict[str, frozenset[str]]:
        """What its programs change → which of them."""
        found: dict[str, frozenset[str]] = {}
        for one in self.simple:
            for each in outputs(one.program, one.words):
                found[each.path] = found.get(each.path, frozenset()) | {one.program}
        return found

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(word for one in self.simple for word in (*one.words, *one.writes_to))


def _script(argv: tuple[str, ...]) -> str | None:
    """The text that a shell was given with -c."""
    if len(argv) < 3 or basename(argv[0]) not in SHELLS:
        return None
    for index, word in enumerate(argv[1:-1], 1):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word):
            return argv[index + 1]
        if not word.startswith("-"):
            return None
    return None


def _commands(script: str) -> Iterator[Simple]:
    words: list[str] = []
    for token in _tokens(script):
        if token in _BREAKS:
            if words:
                yield _simple(words)
            words = []
        else:
            words.append(token)
    if words:
        yield _simple(words)


def _tokens(script: str) -> list[str]:
    lexer = shlex.shlex(script, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return script.split()


def _simple(words: list[str]) -> Simple:
    writes: list[str] = []
    operands: list[str] = []
    skip = silent = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word in {">", ">>", ">|", "&>", "<>"}:
            target = words[index + 1] if index + 1 < len(words) else ""
            # `2>file`: the digit before belongs to the redirection.
            digit = operands.pop() if operands and operands[-1] in {"1", "2"} else ""
            silent = silent or (target == "/dev/null" and (digit == "2" or word == "&>"))
            writes.append(target)
            skip = True
        elif word in {"<", ">&", "<<", "<<<"}:
            if word == ">&" and operands and operands[-1] in {"1", "2"}:
                operands.pop()
                skip = True
        else:
            operands.append(word)
    while operands and (_ASSIGNMENT.match(operands[0]) or basename(operands[0]) in _WRAPPERS):
        if len(operands) == 1:
            break
        operands.pop(0)
    program = basename(operands[0]) if operands else ""
    return Simple(program, tuple(operands[1:]), tuple(writes), silent)


def _ssh_port(one: Simple) -> int | None:
    """The port that ssh and its relatives connect to; None for another program."""
    option = _SSH_PORT.get(one.program)
    if option is None:
        return None
    for word, following in zip(one.words, [*one.words[1:], ""], strict=True):
        port = following if word == option else word.removeprefix(option)
        known = word.startswith(option) and port.isdecimal() and len(port) <= 5
        if known and 0 < int(port) < 65536:
            return int(port)
    return 22


def _option_folders(words: tuple[str, ...]) -> list[str]:
    found = []
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in _FOLDER_OPTIONS:
            if equals:
                found.append(value)
            elif index + 1 < len(words):
                found.append(words[index + 1])
    return found
