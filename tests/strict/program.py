"""One real program: what it is told to do, and what it prints when nothing is in its way.

Data only: how it is run is up to the runner. A script runs in an empty folder that is its HOME,
by `sh -eu` unless it names another interpreter, and must print exactly `output`.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`needs` are the commands that must be installed, `packages` the Debian packages of them.

    files: written into the folder first. network: the script talks to a server of its own on
    localhost.
    """

    name: str
    needs: tuple[str, ...]
    packages: tuple[str, ...]
    script: str
    output: str
    files: tuple[tuple[str, str], ...] = ()
    interpreter: tuple[str, ...] = ("/bin/sh", "-eu")
    network: bool = False


def program(
    name: str,
    packages: str,
    script: str,
    output: str,
    *,
    needs: str = "",
    files: dict[str, str] | None = None,
    interpreter: tuple[str, ...] = ("/bin/sh", "-eu"),
    network: bool = False,
) -> Program:
    return Program(
        name=name,
        needs=tuple((needs or name).split()),
        packages=tuple(packages.split()),
        script=dedent(script),
        output=dedent(output).lstrip("\n"),
        files=tuple((path, dedent(text).lstrip("\n")) for path, text in (files or {}).items()),
        interpreter=interpreter,
        network=network,
    )
