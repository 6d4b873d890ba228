"""A sandbox as an object on Windows: commands work, and what needs our init is refused by name."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from typing import Any, cast

import anyio
import pytest
from support.no_files import OPERATIONS
from wine.conftest import WindowsDaemon

from sandboxd.backends.appcontainer.backend import AppContainer
from sandboxd.backends.appcontainer.sandbox import AppContainerSandbox, AppIdentity
from sandboxd.backends.windows_context import WindowsSupport
from sandboxd.policy.plan import Limits
from sandboxd.supervisor.sandboxes.persistent import PersistentSandbox
from sandboxd.types import Command
from sandboxd_client.box import Box
from sandboxd_client.calls import MethodCall
from sandboxd_client.client import Client
from sandboxd_proto.errors import PolicyNotSupported


def test_a_box_runs_commands_and_names_what_it_has_not(unsandboxed: WindowsDaemon) -> None:
    """The control is a command in the same sandbox. The backend is another one than AppContainer,
    which Wine has not; the refusal is the same code."""
    with (
        Client(unsandboxed.pipe) as client,
        Box(client, manifest={"env": unsandboxed.env}) as box,
    ):
        for method, params in OPERATIONS.items():
            call: MethodCall[Any] = MethodCall(method, {"sandbox": box.sandbox, **params}, Any)
            with pytest.raises(PolicyNotSupported, match="none") as refused:
                client._ask(call)
            assert refused.value.field == "sandbox"
        program = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
        ran = box.run([sys.executable, "-c", program], merge=True)
        assert ran.stdout.text.split() == ["out", "err"]


def test_a_detached_command_is_attached_to(unsandboxed: WindowsDaemon) -> None:
    manifest = {"env": unsandboxed.env}
    with Client(unsandboxed.pipe) as client:
        argv = [sys.executable, "-c", "print('said')"]
        started = client.start(argv, manifest=manifest)
        client.wait(started.execution_id)
    with Client(unsandboxed.pipe) as other, other.attach(started.execution_id) as running:
        assert "".join(getattr(event, "data", "") for event in running).split() == ["said"]


def test_appcontainer_is_named_in_the_refusal() -> None:
    backend = cast(AppContainer, AppContainer.__new__(AppContainer))
    held: Any = None
    place = PersistentSandbox(held, held, backend, held, AsyncExitStack(), 1.0, held)
    with pytest.raises(PolicyNotSupported, match="appcontainer") as refused:
        place.files()
    assert (refused.value.field, refused.value.remedy) == (
        "sandbox", "use a command, or another backend",
    )  # fmt: skip


def test_appcontainer_has_no_terminal() -> None:
    sandbox = AppContainerSandbox(WindowsSupport(""), AppIdentity("S-1", frozenset()), "")
    command = Command(argv=("x",), env=(), cwd="/", limits=Limits(), syscall_policy="inherit")

    async def work() -> None:
        with pytest.raises(PolicyNotSupported) as refused:
            await sandbox.spawn(command, None)
        assert refused.value.field == "pty"

    anyio.run(work)
