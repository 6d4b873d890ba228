"""What a server's refusal means, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd.backends.opensandbox.enforcement import UnsupportedField, unsupported_error
from sandboxd.backends.opensandbox.http_client import ApiError
from sandboxd_proto.errors import PathDenied, SandboxdError, SandboxUnavailable


@contextmanager
def in_words(image: str) -> Iterator[None]:
    """Errors of the server become ours."""
    try:
        yield
    except ApiError as error:
        raise explain_error(error, image) from None


def explain_error(error: ApiError, image: str) -> SandboxdError:
    text = error.message.lower()
    if "egress" in text or "networkpolicy" in text or "network_policy" in text:
        return unsupported_error(
            UnsupportedField(
                "network", f"the server says: {error.message}",
                "set [egress] image on the server, or ask for network = inherit, which is "
                "unrestricted there",
            )
        )  # fmt: skip
    if "HOST_PATH" in error.code.upper():
        return PathDenied(
            f"the server does not mount a path of the manifest: {error.message}", field="manifest",
            remedy="add it to [storage] allowed_host_paths of the server",
        )  # fmt: skip
    if "image" in text and error.status >= 400:
        return SandboxUnavailable(
            f"the server has no image {image}, or cannot use it: {error.message}",
            remedy="name another in [opensandbox] image or in the manifest, or give it to the "
            "server's runtime",
        )
    return SandboxUnavailable(f"the OpenSandbox server refused the sandbox: {error}")
