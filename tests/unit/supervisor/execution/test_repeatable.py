"""Only what others changed before a command ran may be sent again."""

from __future__ import annotations

import pytest

from sandboxd.linux.openat import changed_error
from sandboxd.supervisor.execution.repeatable import before_the_command
from sandboxd_proto.errors import PathDenied


def test_a_changed_path_may_be_tried_again_before_the_command_only() -> None:
    with pytest.raises(PathDenied) as met, before_the_command():
        raise changed_error("/x", "it is gone")
    assert met.value.data()["again"] is True
    assert met.value.kind == "PathDenied"
    assert "again" not in changed_error("/x", "it is gone").data(), "it may have run"
    with pytest.raises(PathDenied) as met, before_the_command():
        raise PathDenied("no")
    assert "again" not in met.value.data()
