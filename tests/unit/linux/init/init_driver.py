"""The daemon's side of the init's wire, for tests: a real init, real sockets, no event loop."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from support.users import as_user, unprivileged_user

from sandboxd.linux.init_client import codec
from sandboxd.linux.init_client import messages as wire

INIT_FOLDER = Path(codec.__file__).parents[1] / "init"
BINARY = INIT_FOLDER / "sandboxd-init"
PATIENCE_S = 30.0
PATH = "/usr/local/bin:/usr/bin:/bin"
BWRAP = ["bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--cap-drop", "ALL"]
OWN = ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
HOST = ["--ro-bind", "/", "/"]
MINIMAL = ["--ro-bind", "/usr", "/usr"]
for _link in ("/bin", "/lib", "/lib64"):
    if Path(_link).is_symlink():
        MINIMAL += ["--symlink", f"usr{_link}", _link]


def build_init(binary: Path, *words: str) -> None:
    """Build another init than the released one, as fast as the compiler's checks allow."""
    command = ["make", "-s", "-C", str(INIT_FOLDER), "OPTIMIZE=-O1", f"OUT={binary}", *words]
    subprocess.run(command, check=True)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an init runs: with or without a pid namespace, as this user or an unprivileged one."""

    bwrap: bool = False
    unprivileged: bool = False
    minimal: bool = False
    mounts: tuple[str, ...] = ()

    def words(self) -> list[str]:
        user = as_user(unprivileged_user()) if self.unprivileged else []
        root = [*(MINIMAL if self.minimal else HOST), *OWN, *self.mounts]
        return [*user, *([*BWRAP, *root, "--"] if self.bwrap else [])]


def places() -> list[Place]:
    users = [False, True] if os.geteuid() == 0 else [False]
    return [Place(bwrap=bwrap, unprivileged=user) for bwrap in (False, True) for user in users]


def name_of(place: Place) -> str:
    return f"{'bwrap' if place.bwrap else 'plain'}-{'user' if place.unprivileged else 'self'}"


@dataclass(kw_only=True)
class Ended:
    """Everything that the daemon hears of one command."""

    messages: list[wire.Channel]
    stdout: bytes
    stderr: bytes

    def only(self, kind: type[Any]) -> Any:
        (found,) = [message for message in self.messages if isinstance(message, kind)]
        return found

    @property
    def kinds(self) -> list[str]:
        return [type(message).__name__ for message in self.messages]

    @property
    def code(self) -> int | None:
        code: int | None = self.only(wire.ExitedMessage).code
        return code

    @property
    def signal(self) -> int | None:
        number: int | None = self.only(wire.ExitedMessage).signal
        return number


@dataclass(kw_only=True)
class Command:
    channel: socket.socket
    stdin: int = -1
    stdout: IO[bytes] | None = None
    stderr: IO[bytes] | None = None
    master: int = -1
    messages: list[wire.Channel] = field(default_factory=list)

    def receive(self) -> wire.Channel | None:
        """The next message; None when the channel has ended.

        A command that ended before it had read our last message leaves one ECONNRESET, ahead of
        its own queued messages.
        """
        try:
            data, fds, _, _ = socket.recv_fds(self.channel, codec.MESSAGE_MAX, 4)
        except ConnectionResetError:
            data, fds, _, _ = socket.recv_fds(self.channel, codec.MESSAGE_MAX, 4)
        if not data:
            return None
        if fds:
            (self.master,) = fds
        message = codec.decode_channel(data)
        self.messages.append(message)
        return message

    def started(self) -> wire.StartedMessage:
        message = self.receive()
        assert isinstance(message, wire.StartedMessage), message
        return message

    def send(self, request: wire.Signal | wire.Kill) -> None:
        self.channel.send(codec.encode(request).message)

    def close_stdin(self) -> None:
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def wait(self) -> Ended:
        """Until the channel ends, which is after GONE or EXEC_FAILED."""
        self.close_stdin()
        while self.receive() is not None:
            pass
        return self.ended()

    def ended(self) -> Ended:
        return Ended(
            messages=self.messages, stdout=_content(self.stdout), stderr=_content(self.stderr)
        )


def _content(file: IO[bytes] | None) -> bytes:
    if file is None:
        return b""
    file.seek(0)
    return file.read()


class Init:
    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, stack: ExitStack):
        self.process = process
        self.control = control
        self._stack = stack

    def send(self, request: wire.Request, fds: Sequence[int] = ()) -> None:
        encoded = codec.encode(request)
        self.send_raw(encoded.message, fds, payload=encoded.payload)

    def send_raw(
        self, message: bytes, fds: Sequence[int] = (), payload: bytes | None = None
    ) -> None:
        if payload is None:
            socket.send_fds(self.control, [message], list(fds))
            return
        with tempfile.TemporaryFile() as file:
            file.write(payload)
            file.flush()
            socket.send_fds(self.control, [message], [file.fileno(), *fds])

    def receive(self) -> wire.Control | None:
        data = self.control.recv(codec.MESSAGE_MAX)
        return codec.decode_control(data) if data else None

    def setup(self, *fds: int, **fields: Any) -> wire.Control | None:
        self.send(wire.Setup(**fields), fds)
        return self.receive()

    def exec(self, *argv: str, filter_fd: int | None = None, **fields: Any) -> Command:
        """Stdout and stderr go to files: nothing that a test forgets to read can block."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._stack.enter_context(ours)
        ours.settimeout(PATIENCE_S)
        command = Command(channel=ours)
        fields.setdefault("cwd", "/")
        fields.setdefault("env", [("PATH", PATH)])
        request = wire.Exec(argv=argv, **fields)
        fds = [theirs.fileno(), *([] if filter_fd is None else [filter_fd])]
        with theirs:
            if request.flags & wire.ExecFlag.PTY:
                self.send(request, fds)
                return command
            reader, command.stdin = os.pipe()
            self._stack.callback(command.close_stdin)
            command.stdout, command.stderr = self._file(), self._file()
            self.send(request, [*fds, reader, command.stdout.fileno(), command.stderr.fileno()])
            os.close(reader)
        return command

    def _file(self) -> IO[bytes]:
        file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        return self._stack.enter_context(file)

    def shell(self, script: str, **fields: Any) -> Command:
        return self.exec("/bin/sh", "-c", script, **fields)

    def python(self, script: str, **fields: Any) -> Command:
        return self.exec("/usr/bin/python3", "-I", "-c", script, **fields)

    def close(self) -> int:
        """What the daemon's death does; the init's exit code."""
        self.control.close()
        return self.process.wait(PATIENCE_S)


@contextmanager
def started_init(
    place: Place, binary: Path = BINARY, env: dict[str, str] | None = None
) -> Iterator[Init]:
    """An init before SETUP. Nothing of it is left afterwards."""
    with ExitStack() as stack:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(ours)
        ours.settimeout(PATIENCE_S)
        with theirs, open(binary, "rb") as executable:
            passed = (executable.fileno(), theirs.fileno())
            process = subprocess.Popen(
                [*place.words(), f"/proc/self/fd/{passed[0]}", str(passed[1])],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": PATH, **(env or {})},
            )
        init = Init(process, ours, stack)
        try:
            yield init
        finally:
            ours.close()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise


@contextmanager
def ready_init(place: Place, **fields: Any) -> Iterator[Init]:
    """As the daemon has it: with a prefork for the first command."""
    with started_init(place) as init:
        fields["flags"] = fields.get("flags", 0) | wire.SetupFlag.PREFORK
        answer = init.setup(**fields)
        assert isinstance(answer, wire.Ready), answer
        yield init
