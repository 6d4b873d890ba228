"""Build a PolicyRequest from the params of `execute`, `manifest/check` and `sandbox/create`."""

from __future__ import annotations

from sandboxd.config.loading import BACKEND_SYNONYMS
from sandboxd.policy.request import PolicyRequest
from sandboxd_proto.manifest import FIELDS, Manifest
from sandboxd_proto.messages.execute import ExecuteParams
from sandboxd_proto.messages.sandbox import SandboxCreateParams
from sandboxd_proto.messages.server import CheckParams


def policy_request_of(params: ExecuteParams | CheckParams | SandboxCreateParams) -> PolicyRequest:
    return PolicyRequest(
        manifest=params.manifest or Manifest(),
        preset=params.preset,
        workspace=params.workspace,
        cwd=None if isinstance(params, SandboxCreateParams) else params.cwd,
        backend=BACKEND_SYNONYMS.get(params.backend or "", params.backend),
        manifest_given=_says_what_may_be_touched(params.manifest),
    )


def _says_what_may_be_touched(manifest: Manifest | None) -> bool:
    """Variables and a timeout are not policy: with those alone the config's preset holds."""
    if manifest is None:
        return False
    return any(
        getattr(manifest, name) is not None for name in FIELDS if name not in ("env", "timeout")
    ) or (manifest.env is None and manifest.timeout is None)
