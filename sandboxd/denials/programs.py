"""Exit statuses by which programs themselves say "the network", as their manuals document them.

They tell of a failed connection where nothing was printed (curl -s, wget -q).
"""

from __future__ import annotations

from sandboxd.denials.commandline import Simple

_NETWORK_STATUS: dict[str, frozenset[int]] = {
    "curl": frozenset({5, 6, 7}),  # proxy or host not resolved, connection failed
    "wget": frozenset({4}),  # network failure
    "getent": frozenset({2}),  # the key was not found; asked of hosts below
    "dig": frozenset({9}),  # no reply from a server
    "ping": frozenset({2}),  # "other error"; 1 is a host that does not answer
    "ssh": frozenset({255}),
    "lynx": frozenset({1}),
}
_HOST_DATABASES = frozenset({"hosts", "ahosts", "ahostsv4", "ahostsv6"})


def says_network(command: Simple, exit_code: int | None) -> bool:
    if exit_code not in _NETWORK_STATUS.get(command.program, frozenset()):
        return False
    return command.program != "getent" or bool(_HOST_DATABASES & set(command.words))
