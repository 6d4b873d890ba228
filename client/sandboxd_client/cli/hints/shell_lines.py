"""The simple commands in a line of shell, as far as they can be told without a shell.

Nothing is expanded or run. A line with substitutions, here-documents, subshells or functions is not
taken apart: which of its words are commands depends on what it does.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SHELLS = ("sh", "bash", "dash", "zsh")
_LONGEST = 8192  # characters of a line that is taken apart
_SEPARATORS = frozenset((";", "&", "&&", "||", "|", "|&", "\n"))
_REDIRECTIONS = frozenset((">", ">>", "<", ">&", "<&", "&>", "&>>", ">|", "<>", "<<<"))
# Words that stand before a command.
_BEFORE = frozenset(("!", "time", "then", "do", "else", "elif", "if", "while", "until", "{", "exec",
                     "command"))  # fmt: skip


def line_of(argv: Sequence[str]) -> str | None:
    """The line of `sh -c LINE`, also of `bash -lc LINE`; None for another command."""
    if len(argv) < 3 or argv[0].rpartition("/")[2] not in _SHELLS:
        return None
    flags = argv[1]
    return argv[2] if flags[:1] == "-" and flags[1:].isalpha() and flags.endswith("c") else None


def simple_commands(line: str) -> list[list[str]]:
    """The words of each command, in their order; nothing if the line is more than a list of them.
    Quotes are removed, variables stay as they are spelled."""
    return [*filter(None, (_without_prefix(words) for words in _commands(line)))]


def _commands(line: str) -> list[list[str]]:
    if len(line) > _LONGEST or "`" in line or "$(" in line:
        return []
    try:
        return [*_split(_tokens(line))]
    except ValueError:  # an open quote, or more than a list of commands
        return []


def _tokens(line: str) -> Iterator[tuple[str, bool]]:
    """(word or operator, whether it is an operator)"""
    from shlex import shlex

    for number, text in enumerate(line.replace("\\\n", " ").split("\n")):
        if number:
            yield "\n", True
        # A quote that goes on in the next line is a ValueError here, and not worth a parser.
        lexer = shlex(text, posix=True, punctuation_chars=";&|()<>")
        lexer.whitespace_split, lexer.commenters = True, ""
        for token in lexer:
            if token.startswith("#"):
                break
            yield token, not token.strip(";&|()<>") and token != ""


def _split(tokens: Iterator[tuple[str, bool]]) -> Iterator[list[str]]:
    words: list[str] = []
    for token, is_operator in tokens:
        if not is_operator:
            words.append(token)
        elif token in _SEPARATORS:
            yield words
            words = []
        elif token in _REDIRECTIONS:
            words = words[:-1] if words and words[-1].isdecimal() else words
            if next(tokens, ("", True))[1]:
                raise ValueError(token)
        else:
            raise ValueError(token)
    yield words


def _without_prefix(words: list[str]) -> list[str]:
    """Without words and variables that stand before the command."""
    while words and (words[0] in _BEFORE or _is_assignment(words[0])):
        words = words[1:]
    return words


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()
