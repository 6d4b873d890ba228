"""Turn a decoding error into a message for the author of the value: what it is, what it can be.

msgspec says "Invalid enum value 'allow' - at `$.network`" and "Expected `int | null`, got `str`".
This module looks up the type of the field and names the value and what is accepted.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from sandboxd_proto.secret import Secret

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"unknown field `([^`]+)`")
_MISSING = re.compile(r"missing required field `([^`]+)`")
_WORDS = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false",
    dict: "a table of names and values", list: "a list", type(None): "nothing",
}  # fmt: skip
_HINTS = {
    "timeout": 'a time: 30, "30s", "5m", "none" or "longest"',
    "network": '"deny", "inherit" (every host), or a list of hosts: ["example.org"]',
    "env": 'names with values: { NAME = "value" }',
    "argv": 'a list of words, for example ["sh", "-c", "make test"]',
}
_SHOWN = 60
_LONGEST_NAME = 64  # of a name that is compared


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name that was perhaps meant. A client may send megabytes, and comparing takes long."""
    return next(iter(get_close_matches(name[:_LONGEST_NAME], known, n=1, cutoff=cutoff)), None)


def shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def sentence(error: str, path: str, value: Any, into: Any) -> tuple[str, str | None, str | None]:
    """(message, name of an unknown or missing field, remedy) for msgspec's `error` at `path`."""
    unknown, missing = _UNKNOWN.search(error), _MISSING.search(error)
    inner_type, inner = type_at(into, path), _wrong_value(value, into, path)
    if unknown:
        name = shortened(unknown.group(1))
        known = _names(inner_type)
        near = nearest(name, known)
        remedy: str | None = (
            f"did you mean {near}?" if near else f"the fields are {', '.join(known)}"
        )
        if name in _names(_member(inner_type, "manifest")):
            remedy = f'{name} is a field of the manifest: {{"manifest": {{"{name}": …}}}}'
        return f"there is no field {name!r}", name, remedy if known else None
    if missing:
        name = missing.group(1)
        how = f"give {name}, {_HINTS[name]}" if name in _HINTS else None
        return f"{name} is missing", name, how
    last = _last(path)
    is_item = path.endswith("]")
    accepted = _accepted("" if is_item and last != "env" else last, inner_type)
    if Secret in _options(inner_type):
        return f"{last} is text", None, "send it as it was given"
    if not accepted:
        return error, None, None
    kind = "a value" if path.endswith("[...]") else "an item"
    label = f"{kind} of {last}" if is_item else last or "the value"
    return f"{label} cannot be {_shown(inner)}", None, f"it is {accepted}"


def type_at(into: Any, path: str) -> Any:
    for name, index in _STEP.findall(_dotted(path)):
        into = _member(into, name) if name else _item(into)
        if into is None:
            return None
        del index
    return into


def value_at(value: Any, path: str) -> Any:
    for name, index in _STEP.findall(_dotted(path)):
        if name and isinstance(value, dict):
            value = value.get(name)
        elif index.isdigit() and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            return None
    return value


def _wrong_value(value: Any, into: Any, path: str) -> Any:
    """msgspec names no key of a table: the first value that does not fit is meant."""
    head, key_unknown, tail = path.partition("[...]")
    table = value_at(value, head)
    if not key_unknown or not isinstance(table, dict):
        return value_at(value, path)
    for one in table.values():
        try:
            msgspec.convert(one, _item(type_at(into, head)))
        except msgspec.ValidationError:
            return value_at(one, tail)
    return None


def _dotted(path: str) -> str:
    return path if path.startswith(("[", ".")) or not path else f".{path}"


def _last(path: str) -> str:
    names = [name for name, _ in _STEP.findall(_dotted(path)) if name]
    return names[-1] if names else ""


def _options(into: Any) -> tuple[Any, ...]:
    if get_origin(into) in (Union, types.UnionType):
        return tuple(option for part in get_args(into) for option in _options(part))
    return (into,)


def _struct(into: Any) -> Any:
    for option in _options(into):
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            return option
    return None


def _names(into: Any) -> list[str]:
    found = _struct(into)
    return list(found.__struct_encode_fields__) if found is not None else []


def _member(into: Any, name: str) -> Any:
    found = _struct(into)
    for item in msgspec.structs.fields(found) if found is not None else ():
        if item.encode_name == name:
            return item.type
    for option in _options(into):
        if get_origin(option) is dict:
            return get_args(option)[1]
    return None


def _item(into: Any) -> Any:
    for option in _options(into):
        if get_origin(option) in (list, tuple):
            return get_args(option)[0]
        if get_origin(option) is dict:
            return get_args(option)[1]
    return None


def _accepted(name: str, into: Any) -> str:
    """The accepted values, as people write them."""
    lists = [option for option in _options(into) if get_origin(option) is list]
    if name in _HINTS and not (name == "network" and lists):
        return _HINTS[name]
    words = [word for option in _options(into) for word in _named(name, option)]
    return ", or ".join(dict.fromkeys(words))


def _named(name: str, option: Any) -> list[str]:
    origin = get_origin(option)
    if origin is Literal:
        return [f"one of {', '.join(map(str, get_args(option)))}"]
    if option is type(None) or option is None:
        return []
    if option in (int, float) and name.endswith("_bytes"):
        return ['a size: 268435456 or "256M"']
    if option is float and name.endswith("_secs"):
        return ['a time: 30 or "30s"']
    if origin in (list, tuple):
        item = get_args(option)[0]
        if get_origin(item) is Literal:
            return [f"a list of {', '.join(get_args(item))}"]
        return ['a list of text: ["…"]' if item is str else "a list"]
    if origin is dict:
        return ["a table of names and values"]
    if isinstance(option, type) and issubclass(option, msgspec.Struct):
        return [f"an object with {', '.join(option.__struct_encode_fields__)}"]
    return [_WORDS[option]] if option in _WORDS else []


def _shown(value: Any) -> str:
    if isinstance(value, str):
        text = f'"{value[: _SHOWN + 1]}"'
    elif isinstance(value, bool) or value is None:
        text = {True: "true", False: "false", None: "null"}[value]
    elif isinstance(value, list | dict):
        text = "a list" if isinstance(value, list) else "an object"
    else:
        text = str(value)
    return shortened("".join(c if c.isprintable() else "?" for c in text))
