"""The part of a request that says what may be touched, the same for every method that has it."""

from __future__ import annotations

from sandboxd.policy.resolve import Wish
from sandboxd_proto.manifest import Manifest
from sandboxd_proto.messages.execute import ExecuteParams
from sandboxd_proto.messages.sandbox import SandboxCreateParams
from sandboxd_proto.messages.server import CheckParams


def wish_of(params: ExecuteParams | CheckParams | SandboxCreateParams) -> Wish:
    return Wish(
        manifest=params.manifest or Manifest(),
        preset=params.preset,
        workspace=params.workspace,
        cwd=None if isinstance(params, SandboxCreateParams) else params.cwd,
        backend=params.backend,
        manifest_given=params.manifest is not None,
    )
