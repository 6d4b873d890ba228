"""A registry of one image, as `docker save` writes it, on a port of this machine's loopback."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@contextmanager
def serving(saved: Path) -> Iterator[str]:
    """`127.0.0.1:PORT`; every name and tag is the saved image."""
    blobs: dict[str, bytes] = {}

    def blob(kind: str, content: bytes) -> dict[str, object]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        blobs[digest] = content
        return {"mediaType": kind, "size": len(content), "digest": digest}

    with tarfile.open(saved) as archive:
        (image,) = json.loads(_content(archive, "manifest.json"))
        config = blob(CONFIG, _content(archive, image["Config"]))
        layers = [
            blob(LAYER, gzip.compress(_content(archive, name), 1)) for name in image["Layers"]
        ]
    described = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
    manifest = json.dumps(described).encode()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            what = self.path.split("/")
            if self.path == "/v2/":
                self._say(b"{}", "application/json")
            elif "manifests" in what:
                self._say(manifest, MANIFEST)
            else:
                self._say(blobs[what[-1]], "application/octet-stream")

        do_HEAD = do_GET  # noqa: N815

        def _say(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()
