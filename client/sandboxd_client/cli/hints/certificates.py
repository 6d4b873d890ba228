"""After a certificate that a program did not accept: the user's variables for an authority of their
own (a company's proxy) are not passed."""

from __future__ import annotations

import os
import re

from sandboxd_client.cli.hints.tools import program_words
from sandboxd_client.cli.plain_text import quote
from sandboxd_client.cli.workspace import inside, shown_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandboxd_client.cli.parse import Options

_VARIABLES = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO", "PIP_CERT", "CARGO_HTTP_CAINFO",
)  # fmt: skip
# OpenSSL with its users, Node, Go, rustls, GnuTLS.
_REFUSED = re.compile(
    rb"certificate verify failed|CERTIFICATE_VERIFY_FAILED|certificate problem"
    rb"|self[- ]signed certificate|SELF_SIGNED_CERT|UNABLE_TO_(?:GET_ISSUER|VERIFY)"
    rb"|local issuer cert|unable to verify the first certificate|unknown authority|Unknown ?Issuer"
    rb"|issuer is unknown|certificate verification failed",
    re.IGNORECASE,
)
_CURL_FAILED = 60  # its exit code for this
_SYSTEM = ("/etc", "/usr")  # shown in every sandbox


def unpassed(options: Options, code: int) -> str | None:
    words = program_words(options.operands)
    is_curl = words[:1] == ["curl"] and code == _CURL_FAILED
    if not is_curl and not _REFUSED.search(options.errors or b""):
        return None
    if any(map(options.has, ("--env-all", "--sandbox", "--manifest"))):
        return None
    given = [word.partition("=")[0] for word in options.all("--env")]
    given += [name for word in options.all("--env-pass") for name in word.split(",")]
    names = [name for name in _VARIABLES if os.environ.get(name) and name not in given]
    if not names:
        return None
    shown = (*shown_folders(options), *_SYSTEM)
    paths = dict.fromkeys(map(os.path.abspath, (os.environ[name] for name in names)))
    flags = [f"-e {name}" for name in names]
    flags += [f"--read {quote(p)}" for p in paths if not any(inside(p, one) for one in shown)]
    return (
        "a certificate was not accepted, and your variables for other authorities are not passed: "
        f"add {' '.join(flags)}"
    )
