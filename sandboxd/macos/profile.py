"""A sandbox's rules as a profile for sandbox-exec. Pure text: nothing is looked up, nothing runs.

Everything is denied unless a rule allows it. Among rules with a filter the last one that matches
decides, so rules go from shallow to deep and what takes away comes last. Paths are never part of
the text: each is a parameter (`-D P0=/path`), so no path can become a rule. Rules match the real
path of a file, so every path must be canonical and spelled as on disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import msgspec

from sandboxd.macos import profile_data as data

Access = Literal["read", "write"]
TAG_PREFIX = "dev.sandboxd."
_TAG = re.compile(re.escape(TAG_PREFIX) + r"[0-9a-f]{16,64}")
_PLAIN = re.compile(r"[A-Za-z0-9._+@/-]+")
_WRITE = ("file-read*", "file-write*", "file-map-executable", "network-bind", "network-outbound")
_READ = ("file-read*", "file-map-executable")
# A hard link to a file that may not be written could be written through. `file-link` is therefore
# allowed nowhere, and denied again wherever writing is.
_CHANGE = ("file-write*", "file-link", "network-bind", "network-outbound")


class _Kind(IntEnum):
    WRITE = 0
    READ = 1
    PROTECTED = 2
    MASK = 3


class UnsafePath(ValueError):
    """A path that cannot be given to sandbox-exec."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!r} has a character that no sandbox profile can hold")
        self.path = path


class ProfileRequest(msgspec.Struct, frozen=True):
    """What a profile is made from; every path canonical and as on disk.

    `tag` names the execution: in the kernel's log, and as the service name that only members of
    this sandbox may look up. `programs`: single files that must be executable. `sockets`: granted
    sockets, which may be connected to. `protected`: (path, the writable folder that it lies in),
    also of paths that do not exist. `absent`: those of them; they are denied in every spelling,
    because most volumes ignore case.
    """

    tag: str
    base: Literal["minimal", "host"] = "minimal"
    grants: tuple[tuple[str, Access], ...] = ()
    masks: tuple[str, ...] = ()
    protected: tuple[tuple[str, str], ...] = ()
    absent: frozenset[str] = frozenset()
    programs: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    network: Literal["deny", "inherit", "allow_hosts"] = "deny"
    proxy_port: int | None = None
    terminal: str | None = None


class Profile(msgspec.Struct, frozen=True):
    text: str
    parameters: tuple[tuple[str, str], ...]

    def arguments(self) -> list[str]:
        """For sandbox-exec, in front of the command."""
        defined = [word for key, value in self.parameters for word in ("-D", f"{key}={value}")]
        return ["-p", self.text, *defined]


def profile(request: ProfileRequest) -> Profile:
    if _TAG.fullmatch(request.tag) is None:
        raise ValueError(f"{request.tag!r} is not a tag")
    text = _Text(request.tag)
    text.line("(version 1)")
    text.line(f'(deny default (with message "{request.tag}"))')
    text.data(data.PROCESSES)
    _mach(text, request)
    _system(text, request)
    text.data(data.DEVICES)
    if request.terminal is not None:
        devices = ("file-read*", "file-write*", "file-ioctl")
        text.rule("allow", devices, [text.literal(request.terminal)])
    _places(text, request)
    _network(text, request)
    _renames(text, request)
    return Profile(text.joined(), tuple((key, path) for path, key in text.keys.items()))


@dataclass(slots=True)
class _Text:
    """The lines so far. Each path becomes one parameter, however often it is named."""

    tag: str
    lines: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def rule(self, action: data.Action, operations: Iterable[str], filters: Iterable[str]) -> None:
        words = [action, *operations, *filters]
        if action == "deny":
            # Without it the kernel's log line about this rule does not name the execution.
            words.append(f'(with message "{self.tag}")')
        self.line(f"({' '.join(words)})")

    def data(self, rules: Iterable[data.Rule]) -> None:
        for rule in rules:
            self.rule(rule.action, rule.operations, rule.filters)

    def parameter(self, path: str) -> str:
        if "\0" in path or "\n" in path or "\r" in path or not path.startswith("/"):
            raise UnsafePath(path)
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UnsafePath(path) from None
        key = self.keys.setdefault(path, f"P{len(self.keys)}")
        return f'(param "{key}")'

    def literal(self, path: str) -> str:
        return f"(literal {self.parameter(path)})"

    def trees(self, paths: Iterable[str]) -> list[str]:
        """Each place and what is below it: `subpath` alone may miss the place's own creation."""
        found = []
        for path in paths:
            found += [self.literal(path), f"(subpath {self.parameter(path)})"]
        return found

    def joined(self) -> str:
        return "\n".join(self.lines) + "\n"


def _mach(text: _Text, request: ProfileRequest) -> None:
    names = [*data.MACH, *(data.MACH_NETWORK if request.network != "deny" else ()), request.tag]
    text.rule("allow", ["mach-lookup"], [f'(global-name "{name}")' for name in names])


def _system(text: _Text, request: ProfileRequest) -> None:
    text.data(data.ROOT)
    if request.base == "host":
        text.rule("allow", _READ, ['(subpath "/")'])
        hidden = [*_constant_trees(data.HIDDEN_FROM_HOST), *text.trees(request.homes)]
        text.rule("deny", _READ, hidden)
    else:
        text.rule("allow", _READ, _constant_trees(data.SYSTEM_FOLDERS))
    text.rule("deny", _READ, _constant_trees(data.SYSTEM_SECRETS))


def _constant_trees(paths: Iterable[str]) -> list[str]:
    return [f'({kind} "{path}")' for path in paths for kind in ("literal", "subpath")]


def _places(text: _Text, request: ProfileRequest) -> None:
    """Shallow to deep, as everywhere the deepest place decides; at one path the strictest one."""
    places: list[tuple[int, str, int]] = []
    for path, access in request.grants:
        places.append((_depth(path), path, _Kind[access.upper()]))
    places += [(_depth(path), path, _Kind.PROTECTED) for path, _ in request.protected]
    places += [(_depth(path), path, _Kind.MASK) for path in request.masks]
    readable = {path for path, access in request.grants if access == "write"}
    for _, path, kind in sorted(set(places)):
        if kind == _Kind.READ and path in readable:
            continue  # both lists say what is allowed
        _place(text, path, _Kind(kind))
    _absent(text, request)
    for path in request.programs:
        _place(text, path, _Kind.READ)
    if request.sockets:
        text.rule("allow", ["network-outbound"], [text.literal(path) for path in request.sockets])


def _absent(text: _Text, request: ProfileRequest) -> None:
    filters = [
        found
        for path, root in request.protected
        if path in request.absent and (found := _any_case(text, path, root)) is not None
    ]
    if filters:
        text.rule("deny", _CHANGE, filters)


def _any_case(text: _Text, path: str, root: str) -> str | None:
    """A filter for `path` in every case. The root is a parameter; of the names below it only
    letters, digits and a few signs become part of the text. Other names have no such filter."""
    below = path.removeprefix(root.rstrip("/") + "/")
    if below == path or _PLAIN.fullmatch(below) is None:
        return None
    # The root's names are matched by number only: `subpath` says which they are.
    above = "/[^/]+" * (_depth(root) if root != "/" else 0)
    names = "".join(
        f"[{c.lower()}{c.upper()}]" if c.isalpha() else c if c.isdigit() or c == "/" else f"[{c}]"
        for c in below
    )
    pattern = f'(regex #"^{above}/{names}(/|$)")'
    return f"(require-all (subpath {text.parameter(root)}) {pattern})"


def _place(text: _Text, path: str, kind: _Kind) -> None:
    if kind in (_Kind.WRITE, _Kind.READ):
        text.rule("allow", ["file-read-metadata"], [f"(path-ancestors {text.parameter(path)})"])
    match kind:
        case _Kind.WRITE:
            text.rule("allow", _WRITE, text.trees([path]))
        case _Kind.READ:
            text.rule("allow", _READ, text.trees([path]))
            text.rule("deny", _CHANGE, text.trees([path]))
        case _Kind.PROTECTED:
            text.rule("deny", _CHANGE, text.trees([path]))
        case _Kind.MASK:
            text.rule("deny", ["file*", "network-bind", "network-outbound"], text.trees([path]))


def _network(text: _Text, request: ProfileRequest) -> None:
    if request.network == "inherit":
        text.data(data.NETWORK_INHERIT)
    elif request.network == "allow_hosts":
        if request.proxy_port is None:
            raise ValueError("named hosts are reached through a proxy, and it has no port")
        text.rule("allow", ["network-outbound"],
                  [f'(remote ip "localhost:{int(request.proxy_port)}")'])  # fmt: skip


def _renames(text: _Text, request: ProfileRequest) -> None:
    """A rename would carry a path away from the rule that names it."""
    for folder in _unmovable(request):
        text.rule("deny", ["file-write-unlink"],
                  [f"(require-all {text.literal(folder)} (vnode-type DIRECTORY))"])  # fmt: skip


def _unmovable(request: ProfileRequest) -> list[str]:
    """Writable folders, and those between a writable folder and what is taken away in it."""
    writable = {path for path, access in request.grants if access == "write"}
    inner = [path for path, access in request.grants if access == "read"]
    found = set(writable)
    for path in (*request.masks, *inner, *writable, *(p for p, _ in request.protected)):
        for root in writable:
            found.update(_between(path, root))
    return sorted(found)


def _between(path: str, root: str) -> list[str]:
    """The folders above `path` that are below `root`."""
    found = []
    while (path := path.rpartition("/")[0]).startswith(root.rstrip("/") + "/"):
        found.append(path)
    return found


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")
