"""The list that `strict` has to carry, and the Debian packages that it takes."""

from __future__ import annotations

from strict.compilers import COMPILERS
from strict.runtimes import RUNTIMES
from strict.tools import FILES, GIT, SHELLS

PROGRAMS = (*SHELLS, *FILES, *GIT, *RUNTIMES, *COMPILERS)

PACKAGES = tuple(sorted({package for program in PROGRAMS for package in program.packages}))
