"""`sandboxctl image build`: the docker backend's base image, from this machine's own programs."""

from __future__ import annotations

import os
import shutil
import tempfile

from sandboxd_client.cli.connect import print_json
from sandboxd_client.cli.parse import Options
from sandboxd_client.cli.screen import say
from sandboxd_client.docker_import import engine_url, import_image
from sandboxd_client.image_content import SEARCH, write

DEFAULT_TAG = "sandboxd/base:local"


def main(options: Options) -> int:
    tag = options.one("--tag") or DEFAULT_TAG
    url = engine_url(options.one("--host"), os.environ)
    with tempfile.TemporaryFile() as tar:
        write(tar, _programs(options))
        identity = import_image(url, tag, tar, os.environ)
    if options.has("--json"):
        print_json({"image": tag, "id": identity, "engine": url})
    else:
        say(f"{tag} is on the engine at {url}")
    return 0


def _programs(options: Options) -> list[str]:
    """Includes Python if it is installed: agents use it more than any other program."""
    named = options.all("--with")
    if options.has("--bare") or shutil.which("python3", path=SEARCH) is None:
        return named
    return ["python3", *(name for name in named if name != "python3")]
