"""An image that the engine lacks is fetched, and those who wait for it are told how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import small_registry
from support.backends import running_backend
from support.engine import IMAGE, TestEngine
from support.rpc import Connection

CONFIG = "[docker]\npull = true\n[pool]\nenabled = false\n"


@pytest.fixture
def image(engine: TestEngine, tmp_path: Path) -> Iterator[str]:
    """One that only the registry has: the base image as one layer of its own."""
    container = engine.docker("create", IMAGE, "true").stdout.strip()
    tree, saved = tmp_path / "tree.tar", tmp_path / "saved.tar"
    engine.docker("export", "--output", str(tree), container)
    engine.docker("rm", container)
    engine.docker("import", str(tree), "sandboxd/pulled:local")
    engine.docker("save", "--output", str(saved), "sandboxd/pulled:local")
    engine.docker("rmi", "sandboxd/pulled:local")
    with small_registry.serving(saved) as address:
        yield f"{address}/pulled:local"
        engine.docker("rmi", f"{address}/pulled:local", check=False)


def progress(connection: Connection) -> list[dict[str, Any]]:
    found = [n["params"] for n in connection.notifications if n["method"] == "execution/progress"]
    connection.notifications.clear()
    assert {one["phase"] for one in found} == {"image"}
    assert (found[0]["done"], found[0]["total"]) == (0, None)
    assert found[-1]["done"] == found[-1]["total"]
    return found


def test_a_missing_image_is_pulled_and_its_progress_told(
    engine: TestEngine, image: str, eventually: Callable[[Callable[[], bool]], bool]
) -> None:
    with running_backend("docker", config=CONFIG) as daemon, daemon.connect() as connection:
        params = {"argv": ["true"], "manifest": {"image": image}, "stream": True}
        ran = connection.call("execute", {**params, "execution_id": "first"})
        assert ran["exit_code"] == 0
        assert {one["execution_id"] for one in progress(connection)} == {"first"}
        # The container of the command may still be on its way out.
        assert eventually(lambda: engine.docker("rmi", image, check=False).returncode == 0)
        given = {"manifest": {"image": image}, "name": "pulled"}
        connection.call("sandbox/create", given)
        assert {one["sandbox"] for one in progress(connection)} == {"pulled"}
        connection.call("sandbox/destroy", {"sandbox": "pulled"})
