"""What to write in place of a line that is not TOML. Pure."""

from __future__ import annotations

import re

_PLACE = re.compile(r"\(at line (\d+), column \d+\)")
_WORDS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false",
          "off": "false"}  # fmt: skip
_LONGEST = 60
# The start of the parser's message, and what to write.
_MISTAKES = (
    ("Illegal character '\\n'", "the quote is not closed"),
    ("Expected ']' at the end of a table", "a table is named on a line of its own: [name]"),
    ("Cannot overwrite", "this key or table is there twice: keep one"),
    ("Cannot declare", "this key or table is there twice: keep one"),
    ("Unclosed array", "put a comma between the items, and ] after the last"),
    ("Expected '=' after a key", "write key = value"),
    ("Unescaped '\\'", "write \\\\ for \\, or put the text in single quotes"),
    ("Unterminated string", "the quote is not closed"),
    ("Expected newline or end of document", "one key = value on a line"),
)


def advice(text: str, error: Exception) -> str:
    """The line as it is and what to write, to follow the parser's message; empty if unknown."""
    said = str(error)
    found = _PLACE.search(said)
    lines = text.splitlines()
    number = int(found[1]) if found else len(lines)
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    hint = next((words for start, words in _MISTAKES if said.startswith(start)), "")
    if said.startswith("Invalid value"):
        hint = _value_hint(line)
    if not line or not line.isprintable() or len(line) > _LONGEST:
        return f"; {hint}" if hint else ""
    return f": {line}" + (f"; {hint}" if hint else "")


def _value_hint(line: str) -> str:
    key, _, value = (part.strip() for part in line.partition("="))
    closing = {"[": "]", "{": "}"}.get(value[:1])
    if closing and not value.endswith(closing):
        return f"the value is not finished: {closing} is missing"
    if value.lower() in _WORDS:
        return f"write {key} = {_WORDS[value.lower()]}"
    example = f": {key} = '{value}'" if value and not closing and "'" not in value else ""
    return f"text is written in quotes{example}"
