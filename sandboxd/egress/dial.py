"""Connect to an allowed name: resolve it once, check the addresses, then connect."""

from __future__ import annotations

import os
import socket

import anyio

from sandboxd.egress.dns.resolver import NameNotFound, Resolver
from sandboxd.egress.http.responses import GateRefused
from sandboxd.egress.sockets import connected
from sandboxd.egress.special_addresses import LOCALHOST, NamedAddresses
from sandboxd.egress.target import Target
from sandboxd.policy.network.host_rules import Address, literal
from sandboxd.traffic import GateRefusal

MAX_ADDRESSES = 8
_SHARE = 3  # an address that does not answer gets at most a third of the time


class Unreachable(Exception):
    """The host is allowed, but there is no connection to it."""


def _known(host: str) -> list[Address]:
    """Addresses that need no resolver. `localhost` is always loopback (RFC 6761)."""
    address = literal(host)
    if address is not None:
        return [address]
    return list(LOCALHOST) if host == "localhost" else []


class Dialer:
    def __init__(self, resolver: Resolver, named: NamedAddresses, timeout_s: float) -> None:
        self._resolver = resolver
        self._named = named
        self._timeout_s = timeout_s

    async def dial(self, target: Target) -> socket.socket:
        """Refused if no address of the name may be connected to, else Unreachable."""
        try:
            with anyio.fail_after(self._timeout_s):
                return await self._connect(target, await self._addresses(target))
        except TimeoutError:
            raise Unreachable(f"no connection within {self._timeout_s:g} s") from None
        except NameNotFound as error:
            raise Unreachable(str(error)) from None

    async def _addresses(self, target: Target) -> list[Address]:
        found = _known(target.host) or await self._resolver.addresses(target.host)
        allowed: list[Address] = []
        refused: list[tuple[Address, str]] = []
        for one in found:
            why = self._named.refusal(one, target.port)
            if why is None:
                allowed.append(one)
            else:
                refused.append((one, why))
        if allowed:
            return allowed[:MAX_ADDRESSES]
        one, why = refused[0]
        reason = f"its address {one} is {why}, which has to be named as well"
        entry = f"[{one}]:{target.port}" if one.version == 6 else f"{one}:{target.port}"
        raise GateRefused(GateRefusal(target.host, target.port, reason, allow=(entry,)))

    async def _connect(self, target: Target, addresses: list[Address]) -> socket.socket:
        error: OSError = OSError("no address")
        share = self._timeout_s if len(addresses) == 1 else self._timeout_s / _SHARE
        for address in addresses:
            try:
                with anyio.fail_after(share):
                    return await connected(address, target.port)
            except OSError as failed:  # TimeoutError is one
                error = failed
        raise Unreachable(os.strerror(error.errno) if error.errno else "it does not answer")
