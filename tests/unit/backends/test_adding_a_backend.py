"""A backend is one package and one line of the registry: nothing else has a list of names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType

import pytest

import sandboxd
from sandboxd.backends.interface import (
    Available,
    BackendContext,
    Capabilities,
    Enforcement,
    Probe,
)
from sandboxd.backends.registry import (
    BACKENDS,
    BackendEntry,
    Registry,
    check_names,
    programs,
    registry,
)
from sandboxd.backends.select import candidates, select
from sandboxd.config.config import Ceiling, Config, ConfigError
from sandboxd.policy.plan import Limits, NetworkRule, Plan, SandboxSpec
from sandboxd.types import Sandbox
from sandboxd_proto.errors import CeilingExceeded, InvalidParams

PACKAGE = "a_backend_that_nothing_else_names"
ENTRY = BackendEntry("hovercraft", PACKAGE, automatic=True, programs=("sh", "no-such-program"))
ENTRIES = (ENTRY, *(entry for entry in BACKENDS if not entry.is_here))


class Hovercraft:
    name = "hovercraft"
    capabilities = Capabilities(mounts=True, limits_sandbox=True)

    async def probe(self) -> Probe:
        return Available(("air",))

    def enforcement(self, plan: Plan) -> Enforcement:
        return dict.fromkeys(plan.asked, "enforced")

    def command_line(self, plan: Plan) -> list[str]:
        return ["hovercraft"]

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType(PACKAGE)
    module.make = lambda context: Hovercraft()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, PACKAGE, module)
    return


def plan(backend: str | None = None) -> Plan:
    spec = SandboxSpec(base="minimal", network=NetworkRule("deny"))
    return Plan(
        sandbox=spec, syscall_policy="baseline", timeout_s=1.0, limits=Limits(), env=(), cwd="/",
        asked=frozenset({"network"}), backend=backend,
    )  # fmt: skip


def test_no_mistake_is_taken_for_running_without_a_sandbox() -> None:
    class Bare(Hovercraft):
        name = "none"

    made = Registry([Hovercraft(), Bare()])
    for name in ("nope", "non", "nome"):
        with pytest.raises(InvalidParams) as refused:
            next(iter(select(plan(name), Config(), made)))
        assert "did you mean" not in (refused.value.remedy or "")


def test_it_is_made_listed_and_selected() -> None:
    for config in (Config(), Config(backend="hovercraft")):
        check_names(config, ENTRIES)
        made = registry(BackendContext(config, "/run/sock"), ENTRIES)
        assert made.names()[0] == "hovercraft"
        assert [one.name for one in candidates(config, made)] == ["hovercraft"]
        assert [one.name for one, _ in select(plan("hovercraft"), config, made)] == ["hovercraft"]
    assert made.limit_sandboxes() == {"hovercraft"}
    assert made.use_of("hovercraft") == "automatic"
    assert {made.use_of(name) for name in made.names()} == {"automatic", "elsewhere"}


def test_a_name_that_has_no_entry_is_refused_everywhere() -> None:
    with pytest.raises(ConfigError):
        check_names(Config(backend="hovercraft"))
    with pytest.raises(ConfigError):
        check_names(Config(ceiling=Ceiling(backends=["eels"])), ENTRIES)
    made = registry(BackendContext(Config(), "/run/sock"), ENTRIES)
    with pytest.raises(InvalidParams) as refused:
        next(iter(select(plan("eels"), Config(), made)))
    assert "hovercraft" in (refused.value.remedy or "")


def test_the_ceiling_holds_for_it() -> None:
    config = Config(ceiling=Ceiling(backends=["docker"]))
    made = registry(BackendContext(config, "/run/sock"), ENTRIES)
    assert candidates(config, made) == []
    with pytest.raises(CeilingExceeded):
        next(iter(select(plan("hovercraft"), config, made)))


def test_its_programs_are_the_daemons_own() -> None:
    found = programs(ENTRIES)
    assert [Path(path).name for path in found] == ["sh"]


# Each name may stand in its own package, in the registry, and in the words of protocols and files
# that are called the same.
_ELSEWHERE = {
    ("config/loading.py", "bubblewrap"),  # `bwrap` in other tools' configs
    ("rpc/handlers/server.py", "bubblewrap"),  # `bwrap_available` of the status
    ("denials/explain/needs.py", "landlock"),  # a layer of the kernel, not the backend
    ("denials/rules/filesystem.py", "landlock"),
    ("macos/status.py", "sandbox-exec"),  # the program that the launcher starts
}


def test_no_other_module_has_the_names() -> None:
    root = Path(sandboxd.__file__).parent
    names = {entry.name for entry in BACKENDS} - {"none"}
    packages = [entry.package for entry in BACKENDS if entry.package is not None]
    own = tuple(f"{name.replace('.', '/')}/" for name in packages)
    found = set()
    for path in root.rglob("*.py"):
        if str(path.relative_to(root.parent)).startswith(own):
            continue
        where = str(path.relative_to(root))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in names:
                found.add((where, node.value))
    assert found - _ELSEWHERE == {("backends/registry.py", name) for name in names}
