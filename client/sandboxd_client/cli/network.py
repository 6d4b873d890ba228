"""What `--net` means."""

from __future__ import annotations

import os

from sandboxd_client.cli.parse import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NETWORKS = {"none": "deny", "off": "deny", "all": "inherit", "deny": "deny", "inherit": "inherit"}
_MISTAKEN_NETWORKS = {
    "allow": "all", "any": "all", "yes": "all", "true": "all", "on": "all", "host": "all",
    "full": "all", "no": "none", "false": "none", "never": "none",
}  # fmt: skip
_LONGEST_WORD = 8


def network(asked: list[str]) -> dict[str, Any]:
    """`deny` (none), `inherit` (all), or the hosts of all --net together."""
    words = [
        _NETWORKS.get(word) or _host_of(word) for item in asked for word in item.split(",") if word
    ]
    if not words:
        raise UsageError("--net is empty", "write none, all or a host")
    kinds = {word for word in words if word in ("deny", "inherit")}
    if not kinds:
        return {"kind": "allow_hosts", "hosts": _with_groups(list(dict.fromkeys(words)))}
    if len(set(words)) > 1:
        given = (word for item in asked for word in item.split(",") if word)
        raise UsageError(
            f"--net cannot be {' and '.join(dict.fromkeys(given))} at once",
            "give either none, or all, or hosts",
        )
    return {"kind": words[0]}


def _host_of(word: str) -> str:
    """The host of a URL that was pasted. A misspelt `all` or `none` is no host."""
    if "://" not in word:
        if word == "*":
            raise UsageError("--net '*': hosts are named one by one", "every host: --net all")
        if word.isalpha() and len(word) < _LONGEST_WORD:
            _check_misspelt(word)
        return word
    place = word.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return place.partition("?")[0].partition("#")[0]


def say_ignored_paths(asked: list[str]) -> None:
    """A host is allowed as a whole, whatever the URL says of it."""
    words = [word for item in asked for word in item.split(",")]
    urls = [word.partition("://")[2] for word in words if "://" in word]
    hosts = [_host_of(f"://{url}") for url in urls if url.partition("/")[2]]
    if hosts:
        from sandboxd_client.cli.screen import printable, say

        names = printable(", ".join(dict.fromkeys(hosts)))
        say(f"--net allows all of {names}: the path of a URL is ignored")


def _check_misspelt(word: str) -> None:
    from difflib import get_close_matches

    from sandboxd_client.cli.flags import TOOL_GROUPS

    meant = f"group:{word}" if word in TOOL_GROUPS else _MISTAKEN_NETWORKS.get(word.lower())
    meant = meant or next(
        iter(get_close_matches(word.lower(), ("none", "all"), n=1, cutoff=0.7)), None
    )
    if meant is not None:
        raise UsageError(
            f"--net {word}: that is no word of --net, and no host name has so few letters",
            f"did you mean --net {meant}? For a host of that name write its port: {word}:443",
        )


def _with_groups(words: list[str]) -> list[str]:
    """Groups of tools (group:python, …) as the hosts of their configuration on this machine."""
    if not any(word.startswith("group:") for word in words):
        return words
    from sandboxd_client.cli.host_groups import expand

    return list(dict.fromkeys(host for word in words for host in expand(word, os.environ)))


def widen(before: Any, net: dict[str, Any]) -> dict[str, Any]:
    """Hosts are added to a manifest's hosts; anything else replaces what it says."""
    if net["kind"] == "allow_hosts" and isinstance(before, dict) and before.get("hosts"):
        return {**net, "hosts": list(dict.fromkeys([*before["hosts"], *net["hosts"]]))}
    return net
