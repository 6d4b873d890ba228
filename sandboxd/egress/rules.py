"""The gate's rules: whether a sandbox may connect to a host and port, and the reason.

`allow` and `deny` are final. `ask`: no rule names the host, so an approver can be asked. `exfil`:
no rule names the host and the request looks like exfiltration, so it is refused without a question.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from sandboxd.egress import exfil
from sandboxd.policy.data import shared_platforms
from sandboxd.policy.network.host_rules import Address, HostRule

VerdictKind = Literal["allow", "ask", "exfil", "deny"]


class Verdict(msgspec.Struct, frozen=True):
    kind: VerdictKind
    reason: str

    @property
    def allowed(self) -> bool:
        return self.kind == "allow"


class HostRules:
    """The entries of one sandbox, in normal form."""

    def __init__(self, rules: Iterable[HostRule], *, exfil_rules: bool = True) -> None:
        self.rules = tuple(rules)
        self.exfil_rules = exfil_rules
        self._exact: dict[str, list[HostRule]] = {}
        for rule in self.rules:
            if not rule.wildcard:
                self._exact.setdefault(rule.name, []).append(rule)
        self._wildcards = [rule for rule in self.rules if rule.wildcard]

    def knows(self, name: str) -> bool:
        """Whether a name may be looked up: some port of it is allowed."""
        if name in self._exact:
            return True
        return bool(self._below(name)) and not self._shared(name)

    def judge(self, name: str, port: int) -> Verdict:
        """`name` in normal form, or the text of an address."""
        exact = self._exact.get(name, [])
        if any(rule.covers_port(port) for rule in exact):
            return Verdict("allow", "it is named in the manifest")
        wider = [rule for rule in self._below(name) if rule.covers_port(port)]
        if wider and not self._shared(name):
            return Verdict("allow", f"{wider[0].text} covers it")
        if wider:
            category = shared_platforms.platform_of(name)
            return Verdict(
                "deny",
                f"it is a shared platform ({category}), which no wildcard covers: name the host",
            )
        if exact or self._below(name):
            return Verdict("ask", f"port {port} of it is not allowed")
        if self._shared(name):
            category = shared_platforms.platform_of(name)
            why = f"it is not an allowed host, and is a shared platform ({category})"
            return Verdict("exfil", why)
        return Verdict("ask", "it is not an allowed host")

    def judge_address(self, address: Address, port: int) -> Verdict:
        """A literal address: allowed only if the manifest lists it."""
        verdict = self.judge(str(address), port)
        if verdict.allowed or str(address) in self._exact:
            return verdict
        return Verdict("deny", "an address is allowed only if the manifest lists it")

    def judge_request(self, name: str, port: int, method: str, target: str) -> Verdict:
        """A plain HTTP request: method, path and query are checked too."""
        verdict = self.judge(name, port)
        if verdict.kind != "ask" or not self.exfil_rules:
            return verdict
        shape = exfil.shape(method, target)
        return verdict if shape is None else Verdict("exfil", f"{verdict.reason}, and {shape}")

    def _below(self, name: str) -> list[HostRule]:
        return [rule for rule in self._wildcards if rule.covers(name)]

    def _shared(self, name: str) -> bool:
        return self.exfil_rules and shared_platforms.platform_of(name) is not None
