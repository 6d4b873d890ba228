"""The backend that a conformance test is about, and whether it claims what the test demands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support import backends
from support.backends import product_name
from support.daemon import Daemon
from support.rpc import RpcError
from support.runs import Ran, Runner


class NotHeld(Exception):
    """The backend has said that it does not hold the field that the test is about."""


class Subject(Runner):
    """The backend that is tested. `field`: what the current test shows to be held."""

    def __init__(self, name: str, daemon: Daemon) -> None:
        super().__init__(daemon)
        self.name = name
        self.field: str | None = None
        self.may_refuse: set[str] = set()
        self.fully = False

    @property
    def product_name(self) -> str:
        """What the daemon calls it."""
        return product_name(self.name)

    @property
    def works_on_copies(self) -> bool:
        """On a server: its commands have copies of the granted folders, and an image of their own
        that they can write to. What they do shows neither in the folders nor on this machine."""
        return self.name == "opensandbox"

    def is_any_alive(self) -> bool:
        """Where it works on copies: whether the server has a sandbox."""
        return backends.remote_sandboxes() > 0

    def run(self, *argv: str, **params: Any) -> Ran:
        with self._refusals():
            ran = super().run(*argv, **self._with_network(params))
        self.heed(ran)
        return ran

    def _with_network(self, params: dict[str, Any]) -> dict[str, Any]:
        """Presets close the network, which a server without the image for it refuses."""
        if not self.works_on_copies or "preset" not in params:
            return params
        return {**params, "manifest": {"network": "inherit", **params.get("manifest", {})}}

    def heed(self, ran: Ran) -> None:
        """Give up on the test when the result says that its field is not held."""
        self._heed(ran.enforcement)

    def ask_first(self, manifest: dict[str, Any]) -> None:
        """The same before anything has run, for commands that take long where nothing ends them."""
        with self._refusals():
            answer = self.check(manifest=manifest)
        self._heed(answer["enforcement"])

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except RpcError as error:
            if error.kind == "PolicyNotSupported" and self._may_refuse(error):
                raise NotHeld(f"{self.name} refuses: {error.message}") from None
            raise

    def _heed(self, tiers: dict[str, str]) -> None:
        if self.field is None:
            return
        tier = tiers.get(self.field)
        assert tier is not None, f"{self.field} was asked for and is not in {tiers}"
        if tier == "none" or (self.fully and tier != "enforced"):
            raise NotHeld(f"{self.name} holds {self.field}: {tier}")

    def _may_refuse(self, error: RpcError) -> bool:
        return any((error.field or "").startswith(field) for field in self.may_refuse)

    def python(self, code: str, *args: str, **params: Any) -> Ran:
        return self.run("python3", "-I", "-S", "-c", code, *args, **params)
