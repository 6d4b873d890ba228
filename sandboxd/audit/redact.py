"""Replace secrets in a text or an argv by `[redacted:<pattern>]`; the rest stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from sandboxd.audit.patterns import FORMS, TOKENS, Pattern

SHORTEST_VALUE = 8
MOST_LOOKS = 200_000  # words of a command line times secret values of its environment
_SECRET_VARIABLE = re.compile(
    r"(?:^|_)(?:PASS(?:WORD|WD|PHRASE)?|PWD|SECRET|TOKEN|KEY|CREDENTIALS?|AUTH|COOKIE)(?:_|$)"
)
# Options whose value is a secret, in any program: `--token X` and `--token=X`.
_SECRET_OPTION = re.compile(
    r"^--?(?:[a-z0-9]+[-_.])*(?:password|passwd|passphrase|pass|secret|token|api-?key|access-?key"
    r"|private-?key|secret-?key|auth-?token|bearer|oauth2-bearer|storepass|keypass|passin|passout"
    r"|credentials?)$",
    re.IGNORECASE,
)
# Options that only these programs use for a secret.
_USER_AND_PASSWORD = {"curl": ("-u", "--user", "-U", "--proxy-user"), "http": ("-a", "--auth")}
_ATTACHED = {
    "mysql": "-p", "mysqldump": "-p", "mysqladmin": "-p", "mariadb": "-p", "sshpass": "-p",
    "7z": "-p", "7za": "-p",
}  # fmt: skip
_SEPARATE = {
    "sshpass": ("-p",), "zip": ("-P",), "unzip": ("-P",), "redis-cli": ("-a",),
    "ldapsearch": ("-w",), "ldapmodify": ("-w",), "smbclient": ("-U",),
}  # fmt: skip


_TOKEN_LITERALS = tuple({literal for pattern in TOKENS for literal in pattern.literals})
_FORM_LITERALS = tuple({literal for pattern in FORMS for literal in pattern.literals})


def secret_values(environment: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The values of variables whose name says that they are secret; longest first."""
    return _secret_values(tuple(environment))


@lru_cache(maxsize=64)
def _secret_values(environment: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Cached: the next command of the same plan has the same variables."""
    found = {
        value for name, value in environment
        if len(value) >= SHORTEST_VALUE and _SECRET_VARIABLE.search(name.upper())
    }  # fmt: skip
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


_SHORT = 256  # here one search for all literals is faster than one for each
_LITERALS = {literal for pattern in (*TOKENS, *FORMS) for literal in pattern.literals}
_ANY_LITERAL = re.compile("|".join(map(re.escape, sorted(_LITERALS))), re.IGNORECASE)


def redact_text(text: str, values: Sequence[str] = ()) -> str:
    for value in values:
        if value in text:
            text = text.replace(value, "[redacted:value]")
    if len(text) < _SHORT and _ANY_LITERAL.search(text) is None:
        return text
    for pattern in TOKENS:
        if any(literal in text for literal in pattern.literals):
            text = _replace(pattern, text)
    lowered = text.lower()
    for pattern in FORMS:
        if any(literal in lowered for literal in pattern.literals):
            text = _replace(pattern, text)
            lowered = text.lower()
    return text


def redact_argv(argv: Sequence[str], values: Sequence[str] = ()) -> list[str]:
    """By shape first (what follows `--token`), then each word as a text. Of a command line with
    very many words and secrets only the program is shown: to look for each in each takes seconds.
    """
    if len(argv) * len(values) > MOST_LOOKS:
        return [redact_text(argv[0], values), f"[redacted:{len(argv) - 1} words]"]
    shaped = list(argv)
    program = ""
    login = False
    index = 0
    while index < len(argv):
        word = argv[index]
        if not word.startswith("-") and "=" not in word:
            program = program or word.rsplit("/", 1)[-1]
            login = login or word == "login"
        index += _redact_option(shaped, index, program, login)
    # One look at all words finds the patterns that are worth a try: mostly none.
    whole = "\0".join(shaped)
    if not any(value in whole for value in values) and not _candidates(whole):
        return shaped
    return [redact_text(word, values) for word in shaped]


def _candidates(text: str) -> bool:
    if len(text) < _SHORT:
        return _ANY_LITERAL.search(text) is not None
    if any(literal in text for literal in _TOKEN_LITERALS):
        return True
    lowered = text.lower()
    return any(literal in lowered for literal in _FORM_LITERALS)


def _redact_option(words: list[str], at: int, program: str, login: bool) -> int:
    """Redact the option at `at` and its value; how many words were used."""
    word = words[at]
    name, equals, value = word.partition("=")
    if equals and value and _SECRET_OPTION.match(name) and not _is_reference(value):
        words[at] = f"{name}=[redacted:option]"
        return 1
    attached = _ATTACHED.get(program)
    if attached and word.startswith(attached) and len(word) > 2 and not word.startswith("--"):
        words[at] = f"{attached}[redacted:option]"
        return 1
    if at + 1 == len(words):
        return 1
    following = words[at + 1]
    if word in _USER_AND_PASSWORD.get(program, ()) and ":" in following:
        words[at + 1] = f"{following.partition(':')[0]}:[redacted:option]"
        return 2
    secret = bool(_SECRET_OPTION.match(word)) or word in _SEPARATE.get(program, ())
    secret = secret or (login and word == "-p")
    if secret and not _is_reference(following) and not following.startswith("--"):
        words[at + 1] = "[redacted:option]"
        return 2
    return 1


def _is_reference(value: str) -> bool:
    return value.startswith(("$", "<", "@", "{{", "%"))


def _replace(pattern: Pattern, text: str) -> str:
    mark = f"[redacted:{pattern.name}]"

    def cut(found: re.Match[str]) -> str:
        whole, start = found.group(), found.start()
        first, last = found.span(pattern.group)
        return whole[: first - start] + mark + whole[last - start :]

    return pattern.expression.sub(cut, text)
