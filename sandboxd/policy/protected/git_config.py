"""Git's config files, read without running git: a workspace's own config can make git run code.

Two readers for two questions. `entries` reads what git would read, as well as it can: it looks for
paths to protect in files that the user wrote. `harmless` answers for files that a sandboxed
command wrote: it accepts a narrow grammar and a list of keys, and says no to everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

MAX_BYTES = 1 << 20
# From a git dir; a worktree's state lies two folders further down.
PLACES = ("config", "../../config")

_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=?)")
_REMOTE_URL = re.compile(r"remote\..+\.url\Z", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}


def entries(text: str) -> list[tuple[str, str]]:
    """(`section.subsection.key`, value) in order; section and key in lower case."""
    found: list[tuple[str, str]] = []
    section = ""
    lines = iter(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"))
    for line in lines:
        rest = line.strip(" \t")
        opened = _SECTION.match(rest)
        if opened:
            section = _section_name(opened)
            rest = rest[opened.end() :].strip(" \t")
        key = _KEY.match(rest)
        if key:
            value = _value(rest[key.end() :], lines) if key[2] else "true"
            # Git takes keys before any section too.
            name = key[1].lower()
            found.append((f"{section}.{name}" if section else name, value))
    return found


def hash_bytes(data: bytes) -> int:
    """How long the names of objects are in a repository with this config."""
    settings = dict(entries(data.decode(errors="surrogateescape")))
    return 32 if settings.get("extensions.objectformat", "").lower() == "sha256" else 20


def local_remotes(settings: list[tuple[str, str]]) -> list[str]:
    """Remotes that are paths on this machine: `git push` runs the hooks of a repository there."""
    names = {key[len("remote.") : -len(".url")] for key, _ in settings if _REMOTE_URL.match(key)}
    places = [v for k, v in settings if _REMOTE_URL.match(k) or k.endswith(".pushurl")]
    # Where no remote has the name, the name itself is the address.
    places += [
        value
        for key, value in settings
        if key.startswith("branch.") and key.endswith(".remote") and value not in names
    ]
    return [path for path in map(_local_path, places) if path not in ("", ".")]


def _local_path(address: str) -> str:
    if address.startswith("file://"):
        return unquote(address.removeprefix("file://"), errors="surrogateescape")
    colon, slash = address.find(":"), address.find("/")
    return address if colon < 0 or 0 <= slash < colon else ""


def _section_name(match: re.Match[str]) -> str:
    name, sub = match[1], match[2]
    if sub is None:
        # The old form [section.subsection] is in lower case as a whole.
        return name.lower()
    unescaped = re.sub(r"\\(.)", r"\1", sub)
    return f"{name.lower()}.{unescaped}"


def _value(text: str, following: Iterator[str]) -> str:
    """A value with quotes, escapes and continued lines undone."""
    kept: list[str] = []
    trailing = ""  # blanks count only if something follows
    quoted = False
    text = text.lstrip(" \t")
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\":
            if at >= len(text):
                text, at = next(following, ""), 0
                continue
            kept.append(trailing + _ESCAPES.get(text[at], text[at]))
            trailing, at = "", at + 1
        elif char == '"':
            quoted = not quoted
        elif not quoted and char in "#;":
            break
        elif not quoted and char in " \t":
            trailing += char
        else:
            kept.append(trailing + char)
            trailing = ""
    return "".join(kept)


# What `git init`, `git clone` (also a partial or sparse one, or with submodules), `git remote add`
# and a name and address write. None of these makes git run a program that the file names.
_HARMLESS_KEYS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|symlinks|ignorecase"
    r"|precomposeunicode|autocrlf|eol|safecrlf|quotepath|abbrev|longpaths"
    r"|sparsecheckout|sparsecheckoutcone)"
    r"|extensions\.(objectformat|refstorage|compatobjectformat|partialclone|worktreeconfig)"
    r"|index\.sparse|submodule\.active|submodule\..+\.(active|url)"
    r"|init\.defaultbranch|user\.(name|email)"
    r"|(commit|tag)\.gpgsign|pull\.(rebase|ff)|push\.(default|autosetupremote)|merge\.ff"
    r"|fetch\.prune|rebase\.(autostash|autosquash)|gc\.auto|(advice|color)\.[a-z]+"
    r"|remote\..+\.(url|fetch|tagopt|prune|promisor|partialclonefilter)|branch\..+\.(remote|merge|rebase)"
)
# For a line without blanks around it. No two neighbouring parts match the same character: the time
# stays linear for every line.
_PLAIN_LINE = re.compile(
    r'[#;][\x20-\x7e\t]*|\[[A-Za-z]+(?: "[^"\\\[\]]*")?\]'
    r'|[A-Za-z][A-Za-z0-9]*[ \t]*=[^\\"#;]*'
)


def harmless(data: bytes) -> bool:
    """Whether nothing in this file can make git run a program. In doubt: no."""
    return doubtful(data) == []


def doubtful(data: bytes) -> list[tuple[str, str]] | None:
    """The settings that are not known to be harmless; None for a file in an unusual form."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if any(c != "\n" and c != "\t" and not c.isprintable() for c in text):
        return None
    lines = filter(None, (line.strip(" \t") for line in text.split("\n")))
    if not all(map(_PLAIN_LINE.fullmatch, lines)):
        return None
    return [(key, value) for key, value in entries(text) if not _is_harmless(key, value)]


def _is_harmless(key: str, value: str) -> bool:
    """`helper::address` makes git run git-remote-helper."""
    return _HARMLESS_KEYS.fullmatch(key) is not None and "::" not in value


def harmless_lines(data: bytes, is_wanted: Callable[[str, str], bool]) -> bytes:
    """The lines in a plain form with settings that are harmless, or wanted nevertheless. Whether
    they are harmless together is to be asked again: a line may have continued another one."""
    kept: list[str] = []
    section: str | None = None
    for line in data.decode(errors="replace").split("\n"):
        plain = line.strip(" \t")
        is_plain = _PLAIN_LINE.fullmatch(plain) is not None and plain.isprintable()
        if plain.startswith("["):
            section = plain if is_plain else None
            kept += [line] if is_plain else []
        elif section is not None and is_plain:
            settings = entries(f"{section}\n{plain}")
            kept += [line] if all(_is_harmless(*s) or is_wanted(*s) for s in settings) else []
    return "".join(f"{line}\n" for line in kept).encode()


def smallest(data: bytes) -> bytes:
    """What git needs to open the repository."""
    settings = dict(entries(data.decode(errors="replace")))
    version = _word(settings, "core.repositoryformatversion") or "0"
    kept = [f"[core]\n\trepositoryformatversion = {version}\n"]
    bare = _word(settings, "core.bare")
    kept += [f"\tbare = {bare}\n"] if bare else []
    for name in ("objectformat", "refstorage"):
        value = _word(settings, f"extensions.{name}")
        kept += [f"[extensions]\n\t{name} = {value}\n"] if value else []
    return "".join(kept).encode()


def _word(settings: dict[str, str], key: str) -> str | None:
    value = settings.get(key, "")
    return value if re.fullmatch("[A-Za-z0-9]{1,16}", value) else None
