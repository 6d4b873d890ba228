"""`python -m macos.stand_in.daemon`: sandboxd as on macOS, with the stand-in for sandbox-exec.

Everything of the product runs as it would there; what macOS itself would do is a double. Nothing is
isolated, so the backend says "none" for files and network.
"""

from __future__ import annotations

import os
import sys

from macos.stand_in import as_macos

as_macos.become_macos()

from macos.stand_in.census import NamespaceCensus, notes_folder  # noqa: E402

from sandboxd.backends import macos_context  # noqa: E402
from sandboxd.cli import main  # noqa: E402
from sandboxd.macos import process  # noqa: E402
from sandboxd.macos.system import MacSystem  # noqa: E402


def stand_in_system() -> MacSystem:
    notes = notes_folder()
    return MacSystem(
        NamespaceCensus(notes),
        sandboxed=lambda pid: False,
        sandbox_exec=str(notes / "sandbox-exec"),
        lifeline_module="macos.stand_in.lifeline",
        on_disk=lambda path: path,
        log_command=("tail", "-n", "+1", "-F", str(notes / "log")),
        isolates=False,
        layer="a stand-in for sandbox-exec that isolates nothing",
    )


if __name__ == "__main__":
    import sandboxd.daemon.daemon  # noqa: F401  (the doubles go into what it has imported)

    as_macos.install_doubles()
    macos_context.mac_system = stand_in_system
    if "SANDBOXD_TEST_START_S" in os.environ:
        process.START_S = float(os.environ["SANDBOXD_TEST_START_S"])
    sys.exit(main())
