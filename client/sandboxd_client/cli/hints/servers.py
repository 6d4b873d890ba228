"""After a server in `run` that was interrupted or timed out: how it is reached from outside."""

from __future__ import annotations

import re

from sandboxd_client.cli.hints.shell_lines import line_of, simple_commands
from sandboxd_client.cli.hints.tools import program_words
from sandboxd_client.cli.plain_text import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sandboxd_client.cli.parse import Options

# They end only when they are told to, some of them with exit code 0.
PROGRAMS = ("uvicorn", "gunicorn", "hypercorn", "http-server", "caddy", "nginx", "redis-server",
            "mongod", "jupyter", "jupyter-lab", "vite")  # fmt: skip
MODULES = ("http.server", "uvicorn", "gunicorn", "hypercorn", "aiohttp.web")
_WITH_WORD = {
    "flask": ("run",), "php": ("-S",), "hugo": ("server", "serve"), "mkdocs": ("serve",),
    "rails": ("server", "s"), "next": ("dev", "start"), "webpack": ("serve",),
    "ng": ("serve",), "manage.py": ("runserver",),
    **dict.fromkeys(("npm", "pnpm", "yarn"), ("start", "dev", "serve")),
}  # fmt: skip
_TOLD = (130, 143)  # ended by SIGINT or SIGTERM, which a shell says by its exit code
_SIGNALS = (2, 15)
_PORT = re.compile(r"(?:.*[:=])?([1-9][0-9]{1,4})")


def server_hint(options: Options, result: dict[str, Any]) -> str | None:
    if options.has("--manifest") or "all" in options.all("--net") or options.has("--detach"):
        return None  # what the sandbox has for a network is not known, or it is the host's
    words = _server(options.operands)
    if not words or not _was_ended(result, words):
        return None
    port = _port(words)
    inside = options.typed_in_sandbox is not None
    if inside:
        name = quote(options.one("--sandbox") or "ID")
        return (
            f"a server is reached from outside with: sandboxctl sandbox forward --tcp {name} {port}"
        )
    return (
        "a server is reached only inside its sandbox. From outside, for example by a browser:\n"
        "    sandboxctl sandbox create --name web\n"
        "    sandboxctl sandbox run --detach web -- COMMAND\n"
        f"    sandboxctl sandbox forward --tcp web {port}"
    )


def _server(argv: list[str]) -> list[str]:
    """The words of the command that listens, as far as its name says that."""
    line = line_of(argv)
    commands = simple_commands(line) if line is not None else [program_words(argv)]
    return next((words for words in reversed(commands) if _always(words) or _perhaps(words)), [])


def _always(words: list[str]) -> bool:
    if not words:
        return False
    module = words[words.index("-m") + 1 :][:1] if "-m" in words else []
    return words[0].rpartition("/")[2] in PROGRAMS or bool(module and module[0] in MODULES)


def _perhaps(words: list[str]) -> bool:
    names = [word.rpartition("/")[2] for word in words[:4]]
    return any(not {*_WITH_WORD.get(name, ())}.isdisjoint(words) for name in names)


def _was_ended(result: dict[str, Any], words: list[str]) -> bool:
    outcome, code = result.get("outcome"), result.get("exit_code")
    if outcome in ("timeout", "cancelled"):
        return True
    if outcome == "signaled":
        return result.get("signal") in _SIGNALS
    return code in _TOLD or (code == 0 and _always(words))


def _port(words: list[str]) -> str:
    found = (match for word in words[1:] if (match := _PORT.fullmatch(word)) is not None)
    return next((match[1] for match in found), "PORT")
