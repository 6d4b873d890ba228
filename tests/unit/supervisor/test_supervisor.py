"""Only what others changed before a command was started may be sent again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from sandboxd.supervisor.supervisor import Supervisor
from sandboxd.types import PathChanged
from sandboxd_proto.errors import PathDenied


class Refusing(Supervisor):
    def __init__(self, error: PathDenied) -> None:
        self._error = error

    async def _run_in_sandbox(self, execution: Any) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("error", "spawned", "again"),
    [
        (PathChanged("it is gone"), False, True),
        (PathChanged("it is gone"), True, None),
        (PathDenied("no"), False, None),
    ],
)
def test_a_changed_path_may_be_tried_again_before_the_command_only(
    error: PathDenied, spawned: bool, again: bool | None
) -> None:
    execution: Any = SimpleNamespace(
        spawned=spawned, recorded=False, request=SimpleNamespace(session=None)
    )
    with pytest.raises(PathDenied) as met:
        anyio.run(Refusing(error)._attempt, execution)
    assert met.value.data().get("again") == again
    assert met.value.kind == "PathDenied"
