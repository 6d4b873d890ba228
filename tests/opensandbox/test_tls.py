"""A server behind TLS: it is used with the right certificate, and sent nothing otherwise."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fake_opensandbox import KEY, running_fake
from support.rpc import RpcError
from support.runs import Runner

INHERIT = {"network": "inherit"}


def certificate(folder: Path, names: str, days: int) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    made, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", key, "-out", made, "-days", str(days), "-subj", "/CN=tests",
         "-addext", f"subjectAltName={names}"],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key


@pytest.mark.parametrize(
    ("names", "trusted", "works"),
    [
        ("IP:127.0.0.1", True, True),
        ("IP:127.0.0.1", False, False),
        ("DNS:example.org", True, False),
    ],
    ids=["right", "unknown authority", "another host"],
)
def test_the_servers_certificate_is_verified(
    tmp_path: Path, daemon_on: Callable[..., Any], names: str, trusted: bool, works: bool
) -> None:
    made, key = certificate(tmp_path, names, 2)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    options = {"ca_file": str(made)} if trusted else {}
    with running_fake(context) as fake, daemon_on(fake.url, **options) as daemon:
        runner = Runner(daemon)
        if works:
            ran = runner.shell("echo out; exit 3", manifest=INHERIT)
            assert (ran.exit_code, ran.stdout) == (3, "out\n")
            assert any(key == KEY for _, _, key in fake.requests)
        else:
            with pytest.raises(RpcError, match="certificate verify failed") as refused:
                runner.run("true", manifest=INHERIT)
            assert refused.value.kind == "SandboxUnavailable"
            assert not fake.requests
        runner.close()
