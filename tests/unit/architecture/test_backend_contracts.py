"""The import contracts about backends name every backend's package."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sandboxd.backends.registry import BACKENDS

PYPROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
CONTRACTS = {one["name"]: one for one in PYPROJECT["tool"]["importlinter"]["contracts"]}


@pytest.mark.parametrize(
    ("name", "key"),
    [("backends are independent of one another", "modules"),
     ("no backend is imported by name", "forbidden_modules")],
)  # fmt: skip
def test_every_package_of_the_registry_is_in_the_contract(name: str, key: str) -> None:
    packages = {".".join(entry.package.split(".")[:3]) for entry in BACKENDS if entry.package}
    assert set(CONTRACTS[name][key]) == packages
