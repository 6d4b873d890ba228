"""A model of how a profile decides: the last rule with a filter that matches, else the default.

Ours, not Apple's: it shows what the profile means if the order of rules counts as documented. It
decides on what TinyScheme made of the profile, so parameters are plain strings here.
"""

from __future__ import annotations

import re
from typing import Any

from sbpl import evaluate

from sandboxd.macos.profile import Profile

Node = Any  # a word, a string in quotes, or a list of nodes
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()]|[^\s()"]+')


def parse(line: str) -> Node:
    tokens = iter(_TOKEN.findall(line))

    def node(token: str) -> Node:
        if token != "(":
            return token
        inner = []
        while (following := next(tokens)) != ")":
            inner.append(node(following))
        return inner

    return node(next(tokens))


def text_of(word: str) -> str:
    assert word.startswith('"'), word
    return re.sub(r"\\(.)", r"\1", word[1:-1])


class Decisions:
    def __init__(self, made: Profile) -> None:
        self.rules = [parse(line) for line in evaluate(made.text, dict(made.parameters))]

    def allows(self, operation: str, **target: str) -> bool:
        """`target`: path, name, remote, local, vnode."""
        default, filtered = "deny", None
        for action, *rest in self.rules:
            operations = [word for word in rest if isinstance(word, str)]
            filters = [word for word in rest if isinstance(word, list) and word[0] != "with"]
            if not any(covers(word, operation) for word in operations):
                continue
            if filters:
                if any(matches(one, target) for one in filters):
                    filtered = action
            elif operations != ["default"]:
                default = action
        return (filtered or default) == "allow"


def covers(rule: str, operation: str) -> bool:
    return rule == operation or (rule.endswith("*") and operation.startswith(rule[:-1]))


def matches(node: Node, target: dict[str, str]) -> bool:
    name, *rest = node
    path = target.get("path")
    match name:
        case "literal":
            return path == text_of(rest[0])
        case "subpath":
            below = text_of(rest[0]).rstrip("/") + "/"
            return path is not None and (path.startswith(below) or path + "/" == below)
        case "regex":
            return path is not None and re.search(text_of(rest[0]), path) is not None
        case "path-ancestors":
            return path is not None and text_of(rest[0]).startswith(path.rstrip("/") + "/")
        case "vnode-type":
            return target.get("vnode", "").upper() == rest[0].upper()
        case "global-name" | "sysctl-name":
            return target.get("name") == text_of(rest[0])
        case "sysctl-name-prefix":
            return target.get("name", "").startswith(text_of(rest[0]))
        case "remote" | "local":
            return _address(target.get(name), text_of(rest[1]))
        case "require-all":
            return all(matches(one, target) for one in rest)
        case "target":
            return target.get("process") == rest[0]
        case _:
            return False  # not modelled, so it grants nothing


def _address(given: str | None, pattern: str) -> bool:
    if given is None:
        return False
    return pattern == "*:*" or given == pattern
