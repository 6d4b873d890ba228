"""The blocking and the asynchronous client have the same methods: these names are public."""

from __future__ import annotations

import inspect

from sandboxd_client import calls
from sandboxd_client.async_client import AsyncClient
from sandboxd_client.async_execution import AsyncExecution
from sandboxd_client.client import Client
from sandboxd_client.execution import Execution

METHODS = {
    "check", "discover", "execute", "execution_cancel", "execution_close_stdin", "execution_list",
    "execution_resize", "execution_signal", "execution_status", "execution_wait",
    "execution_write", "initialize", "sandbox_create", "sandbox_destroy", "sandbox_forward",
    "sandbox_list", "sandbox_unforward", "shutdown", "start", "status",
}  # fmt: skip
OTHERS = {"attach", "stream", "wait"}
OF_AN_EXECUTION = {"cancel", "close_stdin", "kill", "resize", "result", "signal", "wait", "write"}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def signature(kind: type, name: str) -> inspect.Signature:
    found = inspect.signature(getattr(kind, name))
    return found.replace(return_annotation=inspect.Signature.empty)


def test_the_clients_have_the_same_public_names() -> None:
    assert public(Client) == METHODS | OTHERS | {"close"}
    assert public(AsyncClient) == METHODS | OTHERS | {"aclose"}


def test_each_method_takes_the_same_parameters_and_one_of_them_is_awaited() -> None:
    for name in METHODS:
        assert signature(Client, name) == signature(AsyncClient, name)
        assert inspect.iscoroutinefunction(getattr(AsyncClient, name))
        assert not inspect.iscoroutinefunction(getattr(Client, name))


def test_every_method_is_described_once() -> None:
    found = dict(inspect.getmembers(calls, inspect.isfunction))
    described = {name for name, one in found.items() if one.__module__ == calls.__name__}
    assert described == METHODS


def test_running_commands_have_the_same_public_names() -> None:
    for kind in (Execution, AsyncExecution):
        inherited = [public(base) for base in kind.__mro__ if base is not object]
        assert set().union(*inherited) == OF_AN_EXECUTION
