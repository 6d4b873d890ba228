"""Messages to the init, read by its own code in C, built with the sanitizers."""

from __future__ import annotations

import atexit
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fuzz.driver import Target

from sandboxd.linux.init_client import codec
from sandboxd.linux.init_client import messages as wire

HERE = Path(__file__).parent
INIT = Path(codec.__file__).parents[1] / "init"
SOURCES = ("wire.c", "memory.c", "messages.c", "evidence/dns_query.c")
FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
         "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
         "-fno-strict-aliasing")  # fmt: skip
ARGV, ENV = ("/bin/true", "argument", ""), (("NAME", "value"), ("PATH", "/usr/bin"))
QUERY = struct.pack("!HHHHHH", 7, 256, 1, 0, 0, 0) + b"\7example\3org\0\0\1\0\1"


@cache
def harness(*more_flags: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="sandboxd-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sources = [str(HERE / "init_messages.c"), *(str(INIT / name) for name in SOURCES)]
    command = ["cc", *FLAGS, *more_flags, f"-I{INIT}", *sources, "-o", str(folder / "harness")]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder / "harness"


def seeds() -> Sequence[bytes]:
    """The first two bytes are the harness's: how many descriptors, and where the payload is."""
    return [bytes((fds, in_fd)) + data for fds, in_fd, data, _ in known()]


def known() -> list[tuple[int, int, bytes, str]]:
    """(descriptors, payload in one, message, what the init must read in it)."""
    check = wire.Check(path="/usr", device=1, inode=2)
    ruled = wire.Setup(
        flags=wire.SetupFlag.HAS_RULESET, checks=[check, check],
        rules=[wire.LandlockRule(path="/tmp", access=3)],
    )  # fmt: skip
    command = wire.Exec(
        argv=ARGV, env=ENV, cwd="/work", rlimits=[wire.Rlimit(resource=7, soft=64, hard=64)]
    )
    made = codec.encode(command).message
    in_fd = made[:1] + bytes((codec.HeaderFlag.PAYLOAD_IN_FD,)) + made[2:]
    clone = codec.encode(wire.CloneRequest()).message
    enter = codec.encode(wire.EnterRequest()).message
    return [
        (0, 0, codec.encode(wire.Setup()).message, "setup ok 0 0 0"),
        (1, 0, codec.encode(ruled).message, "setup ok 2 1 12"),
        (0, 0, codec.encode(ruled).message, "setup no ruleset with SETUP"),
        (4, 0, made, f"exec ok {len(ARGV)} {len(ENV)} 5 1"),
        (5, 1, in_fd, f"exec ok {len(ARGV)} {len(ENV)} 5 1"),
        (0, 0, made, "exec descriptors missing with EXEC"),
        (0, 0, codec.encode(wire.Signal(number=15)).message, "signal ok"),
        (0, 0, codec.encode(wire.Kill()).message, "other"),
        (1, 0, clone, "clone ok"),
        (0, 0, clone, "clone not one descriptor with CLONE or ENTER"),
        (2, 0, clone, "clone not one descriptor with CLONE or ENTER"),
        (1, 0, clone[:4] + struct.pack("<I", 1) + b"x", "clone malformed CLONE or ENTER"),
        (1, 0, enter, "enter ok"),
        (0, 0, enter, "enter not one descriptor with CLONE or ENTER"),
        (1, 0, enter[:4] + struct.pack("<I", 1) + b"x", "enter malformed CLONE or ENTER"),
        (0, 0, QUERY, "malformed"),
    ]


def answers(inputs: Sequence[bytes], *more_flags: str) -> list[str]:
    """One line for each input. AssertionError when a sanitizer complains."""
    records = b"".join(
        struct.pack("<IBB", len(data) - 2, data[0] % 10, data[1] & 1) + data[2:]
        if len(data) >= 2 else struct.pack("<IBB", 0, 0, 0)
        for data in inputs
    )  # fmt: skip
    ran = subprocess.run(
        [harness(*more_flags)], input=records, capture_output=True, check=False, timeout=300,
        env={"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"},
    )  # fmt: skip
    complaint = ran.stderr.decode(errors="replace")
    assert (ran.returncode, complaint) == (0, ""), complaint[:4000]
    lines = ran.stdout.decode().splitlines()
    assert len(lines) == len(inputs)
    return lines


TARGET = Target(
    "init_messages", seeds, lambda data: answers([data]), check_many=answers,
    words=(b"\xff\xff\xff\xff", b"\0\0\0\x80", struct.pack("<I", 4), b"A=b", b"=b", QUERY),
)  # fmt: skip
