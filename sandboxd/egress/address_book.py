"""Which loopback address stands for which host inside a sandbox.

Exact hosts get an address when the sandbox is made (they are in its /etc/hosts). Names below a
wildcard get one at the first DNS query.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address

from sandboxd.policy.network.host_rules import HostRule

PROXY = IPv4Address("127.76.0.1")
_EXACT = int(IPv4Address("127.77.0.1"))
_ON_DEMAND = int(IPv4Address("127.80.0.1"))
# The least recently queried names lose their address above this number.
MAX_ON_DEMAND = 4096


def exact_addresses(rules: Iterable[HostRule]) -> dict[str, IPv4Address]:
    """Names in the order of the manifest; the same rules always give the same addresses.

    `localhost` keeps the address that every program expects; addresses stand for themselves.
    """
    names = dict.fromkeys(
        rule.name for rule in rules
        if not rule.wildcard and rule.address is None and rule.name != "localhost"
    )  # fmt: skip
    return {name: IPv4Address(_EXACT + number) for number, name in enumerate(names)}


class AddressBook:
    def __init__(self, rules: Iterable[HostRule]) -> None:
        rules = tuple(rules)
        self._addresses = exact_addresses(rules)
        self._names = {address: name for name, address in self._addresses.items()}
        if any(rule.name == "localhost" for rule in rules):
            self._names[IPv4Address("127.0.0.1")] = "localhost"
        self._on_demand: OrderedDict[str, IPv4Address] = OrderedDict()

    def address(self, name: str) -> IPv4Address | None:
        """The address of a name that has one already."""
        return self._addresses.get(name) or self._on_demand.get(name)

    def make(self, name: str) -> IPv4Address:
        """The address of a name below a wildcard."""
        found = self.address(name)
        if found is None:
            found = self._free()
            self._on_demand[name] = found
            self._names[found] = name
        elif name in self._on_demand:
            self._on_demand.move_to_end(name)
        return found

    def _free(self) -> IPv4Address:
        if len(self._on_demand) < MAX_ON_DEMAND:
            return IPv4Address(_ON_DEMAND + len(self._on_demand))
        _, oldest = self._on_demand.popitem(last=False)
        return oldest

    def name_at(self, address: IPv4Address) -> str | None:
        return self._names.get(address)

    def __iter__(self) -> Iterator[tuple[str, IPv4Address]]:
        return iter(self._addresses.items())
