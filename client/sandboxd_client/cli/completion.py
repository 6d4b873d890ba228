"""`sandboxctl completion SHELL`: a script made from the table, so it knows every flag there is."""

from __future__ import annotations

from sandboxd_client.cli.completion_bash import bash
from sandboxd_client.cli.completion_fish import fish
from sandboxd_client.cli.completion_zsh import zsh
from sandboxd_client.cli.parse import Options

WRITERS = {"bash": bash, "zsh": zsh, "fish": fish}


def main(options: Options) -> int:
    print(WRITERS[options.operands[0]](), end="")
    return 0
