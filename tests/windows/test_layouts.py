"""Structures and constants are those of a compiler's headers (mingw)."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from sandboxd.windows import structures

COMPILER = "x86_64-w64-mingw32-gcc"
SKIPPED_FIELDS = {"BasicLimitInformation"}
LAYOUTS = [
    value for value in vars(structures).values()
    if isinstance(value, type) and issubclass(value, ctypes.Structure)
    and value is not ctypes.Structure
]  # fmt: skip
# Constants that mingw's headers may lack are compared where they exist.
CONSTANTS = [
    name for name, value in vars(structures).items()
    if isinstance(value, int) and name.isupper() and not name.startswith(("_", "MEDIUM"))
]  # fmt: skip


def program() -> str:
    lines = [
        "#define _WIN32_WINNT 0x0A00", "#include <stdio.h>", "#include <stddef.h>",
        "#include <windows.h>", "int main(void) {",
    ]  # fmt: skip
    for layout in LAYOUTS:
        name = layout.__name__
        lines.append(f'  _Static_assert(sizeof({name}) == {ctypes.sizeof(layout)}, "{name}");')
        for field in layout._fields_:
            if field[0] in SKIPPED_FIELDS or name == "OVERLAPPED":
                continue
            offset = getattr(layout, field[0]).offset
            lines.append(
                f'  _Static_assert(offsetof({name}, {field[0]}) == {offset}, "{name}.{field[0]}");'
            )
    for name in CONSTANTS:
        value = getattr(structures, name)
        lines += [f"#ifdef {name}", f'  _Static_assert({name} == {value}, "{name}");', "#endif"]
    return "\n".join([*lines, "  return 0; }", ""])


@pytest.mark.requires(COMPILER)
def test_layouts_are_the_compilers(tmp_path: Path) -> None:
    source = tmp_path / "layout.c"
    source.write_text(program())
    built = subprocess.run(
        [COMPILER, "-fsyntax-only", str(source)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr


@pytest.mark.requires(COMPILER)
def test_a_wrong_size_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "layout.c"
    source.write_text(program().replace("sizeof(IO_COUNTERS) == 48", "sizeof(IO_COUNTERS) == 8"))
    built = subprocess.run([COMPILER, "-fsyntax-only", str(source)], capture_output=True)
    assert built.returncode != 0


def test_the_known_sizes() -> None:
    sizes = {layout.__name__: ctypes.sizeof(layout) for layout in LAYOUTS}
    assert sizes["JOBOBJECT_EXTENDED_LIMIT_INFORMATION"] == 144
    assert sizes["STARTUPINFOEXW"] == 112
    assert sizes["SECURITY_CAPABILITIES"] == 24
    assert sizes["OVERLAPPED"] == 32
