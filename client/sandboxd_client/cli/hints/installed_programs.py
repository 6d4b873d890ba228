"""Where `go install` and the like put a program: into the workspace's own cache, off the PATH."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxd_client.cli.parse import Options

# How a command begins; the variable that names the cache; the folder below it; what to add to have
# the program in the workspace, and the words that say so already.
_INSTALLERS = (
    (("go", "install"), "GOPATH", "bin", 'to sandboxctl -e GOBIN="$PWD/bin"', ("GOBIN",)),
    (("cargo", "install"), "CARGO_HOME", "bin", "to cargo --root .", ("--root",)),
    (("pipx", "install"), "PIPX_BIN_DIR", "", 'to sandboxctl -e PIPX_BIN_DIR="$PWD/bin"',
     ("PIPX_BIN_DIR",)),
    (("uv", "tool", "install"), "UV_TOOL_BIN_DIR", "",
     'to sandboxctl -e UV_TOOL_BIN_DIR="$PWD/bin"', ("UV_TOOL_BIN_DIR",)),
    (("dotnet", "tool", "install"), "DOTNET_CLI_HOME", ".dotnet/tools",
     "to dotnet --tool-path ./bin", ("--tool-path", "--local")),
)  # fmt: skip


def installed(options: Options, words: list[str]) -> str | None:
    """A hint after one that has succeeded; None for other commands."""
    program = [words[0].rpartition("/")[2], *words[1:]] if words else []
    for begins, variable, below, instead, has in _INSTALLERS:
        if program[: len(begins)] == list(begins):
            if any(word.partition("=")[0] in has for word in (*words, *options.all("--env"))):
                return None
            return _told(_environment(options), variable, below, instead, has[0])
    return None


def _told(env: Mapping[str, str], variable: str, below: str, instead: str, word: str) -> str | None:
    if variable not in env or (word in env and word != variable):
        return None
    from sandboxd_client.cli.plain_text import quote

    folder = os.path.normpath(os.path.join(env[variable].split(os.pathsep)[0], below))
    return (
        f"what it installed is in {quote(folder)}: the workspace's own cache, which is in no "
        f"PATH; to have it in the workspace add {instead}"
    )


def _environment(options: Options) -> Mapping[str, str]:
    from sandboxd_client.cli.connect import connect
    from sandboxd_client.cli.request import policy

    with connect(options) as client:
        return dict(client.check(**policy(options, os.environ)).plan.env)
