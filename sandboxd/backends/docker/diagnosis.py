"""Explain an engine's refusal, with a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd.backends.docker.engine import EngineError
from sandboxd.linux.init_client.launch import LaunchFailed
from sandboxd_proto.errors import PathDenied, PolicyNotSupported, SandboxdError, SandboxUnavailable

DEFAULT_IMAGE = "sandboxd/base:local"
_NO_SOURCE = re.compile(r"bind source path does not exist: ?(.*)")


@contextmanager
def in_words(image: str) -> Iterator[None]:
    """Map errors of the engine and of the init to protocol errors."""
    try:
        yield
    except EngineError as error:
        raise explain_error(error, image) from None
    except LaunchFailed as failed:
        raise SandboxUnavailable(
            f"the container did not come up: {failed}",
            remedy="`sandboxctl doctor` says more; is the image for this machine's processor?",
        ) from None


def explain_error(error: EngineError, image: str) -> SandboxdError:
    said = error.message
    if error.status == 404 and "image" in said.lower():
        return _missing(image)
    missing = _NO_SOURCE.search(said)
    if missing is not None:
        return PathDenied(
            f"the engine does not have {missing[1] or 'a path of the manifest'}",
            field="manifest",
            remedy="the paths of a manifest are those of the machine that the engine runs on",
        )
    if "Range of CPUs" in said:
        return PolicyNotSupported(f"the engine refused max_cpus: {said}", field="max_cpus")
    return SandboxUnavailable(f"the engine refused the container: {said}")


def is_foreign(error: EngineError) -> bool:
    """Whether the engine has other files, or another processor, than this machine."""
    words = ("bind source path", "mounts denied", "exec format error", "no such file or directory")
    return any(word in error.message for word in words)


def _missing(image: str) -> SandboxUnavailable:
    how = (
        "build it: sandboxctl image build"
        if image == DEFAULT_IMAGE
        else f"get it: docker pull {image} (or set [docker] pull = true in the config)"
    )
    return SandboxUnavailable(f"the image {image} is not on the engine", remedy=how)
