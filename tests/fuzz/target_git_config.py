"""Git's config files: what is called harmless must be so for git itself."""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.driver import Target

from sandboxd.policy.protected import git_config

_RUNS = ("fsmonitor", "hookspath", "sshcommand", "pager", "editor", "helper", "textconv", "smudge",
         "clean", "process", "driver", "command", "program", "include", "worktree", "gitproxy",
         "askpass", "alternaterefscommand", "uploadpack", "receivepack", "vcs")  # fmt: skip


def seeds() -> Sequence[bytes]:
    return [
        b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n",
        b'[remote "origin"]\n\turl = https://example.org/x.git\n\tfetch = +refs/*:refs/o/*\n',
        b'[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n[user]\n\tname = A\n',
        b"[core]\n\tfsmonitor = ./run\n", b"[core]\n\thooksPath = x\n[include]\n\tpath = y\n",
        b'[filter "x"]\n\tclean = "run \\"me\\""\n', b"[alias]\n\tst = !run\n",
        b"[core] editor = x\n",
    ]  # fmt: skip


def check(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    entries = git_config.entries(text)
    assert sum(len(key) + len(value) for key, value in entries) <= (len(text) + 8) ** 2
    if git_config.harmless(data):
        for key, value in entries:
            assert key.rpartition(".")[2] not in _RUNS, key
            assert "::" not in value


TARGET = Target(
    "git_config", seeds, check,
    words=(b"[core]\n", b"fsmonitor=x\n", b"\\\n", b"\r\n", b"[include]\n", b"path = x\n", b'"',
           b";", b"[core]fsmonitor=x\n", b"\xef\xbb\xbf"),
)  # fmt: skip
