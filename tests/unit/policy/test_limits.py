"""Where a sandbox is made with its limits, a plan for it has them; elsewhere each command does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandboxd.policy.limits import timeout
from sandboxd.policy.presets import PRESETS
from sandboxd.policy.request import Machine, PolicyRequest
from sandboxd.policy.resolve import plan_for
from sandboxd_proto import PRESET_NAMES
from sandboxd_proto.errors import ManifestInvalid
from sandboxd_proto.manifest import Manifest, manifest_from


def test_only_backends_that_limit_the_sandbox_get_limits_in_its_spec(
    machine_with: Callable[..., Machine],
) -> None:
    machine = machine_with(limit_sandboxes=frozenset({"hovercraft"}))
    manifest = Manifest(max_memory_bytes=64 << 20)
    asked = {"manifest": manifest, "manifest_given": True}
    with_limits = plan_for(PolicyRequest(backend="hovercraft", **asked), machine)
    assert with_limits.sandbox.limits is not None
    assert with_limits.sandbox.limits.memory_bytes == 64 << 20
    assert plan_for(PolicyRequest(**asked), machine).sandbox.limits is None
    assert plan_for(PolicyRequest(backend="other", **asked), machine).sandbox.limits is None


@pytest.mark.parametrize("field", ["max_memory_bytes", "tmp_bytes", "shm_bytes"])
def test_an_amount_too_small_for_any_program_is_refused(
    machine_with: Callable[..., Machine], field: str
) -> None:
    asked = PolicyRequest(manifest=manifest_from({field: 10}), manifest_given=True)
    machine = machine_with()
    with pytest.raises(ManifestInvalid) as refused:
        plan_for(asked, machine)
    assert refused.value.field == field
    assert "or more" in (refused.value.remedy or "")


def test_a_timeout_that_is_none_is_not_said_to_be_left_out() -> None:
    with pytest.raises(ManifestInvalid) as refused:
        timeout(manifest_from({"timeout": -1}), 30.0, None)
    assert refused.value.remedy == 'give seconds, a time like "5m", or "none" for no timeout'


def test_the_contract_names_the_presets() -> None:
    assert tuple(PRESETS) == PRESET_NAMES
