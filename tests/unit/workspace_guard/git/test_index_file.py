"""The index parser sees what git sees, refuses what git reads in two ways, and stays linear."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.policy.protected import git_index_parser
from sandboxd.policy.protected.git_index_parser import GitIndexError, merge, parse

Prepare = Callable[[Path], None]


def git(repo: Path, *arguments: str, data: bytes | None = None) -> bytes:
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        **{
            f"GIT_{who}_{what}": "x"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    return subprocess.run(
        ["git", *arguments], cwd=repo, env=environment, input=data, capture_output=True, check=True
    ).stdout


def repository(folder: Path, *, object_format: str = "sha1") -> Path:
    repo = folder / "repo"
    repo.mkdir()
    git(repo, "init", "-q", f"--object-format={object_format}")
    for name in ("a", "dir/b", "dir/sub/c", "dir/sub/d", "x" * 200, "other/ü\n"):
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (repo / "a").chmod(0o755)
    (repo / "link").symlink_to("a")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "x")
    return repo


def by_git(repo: Path, *options: str, threads: str = "1") -> list[tuple[bytes, int, int, bytes]]:
    command = ("-c", f"index.threads={threads}", "ls-files", "--stage", "-z", *options)
    records = git(repo, *command).split(b"\0")[:-1]
    found = []
    for record in records:
        about, _, path = record.partition(b"\t")
        mode, oid, stage = about.split()
        found.append((path, int(mode, 8), int(stage), bytes.fromhex(oid.decode())))
    return sorted(found)


def by_us(repo: Path, hash_bytes: int = 20) -> list[tuple[bytes, int, int, bytes]]:
    index = parse((repo / ".git/index").read_bytes(), hash_bytes)
    entries = index.entries
    if index.shared is not None:
        shared = repo / ".git" / f"sharedindex.{index.shared.decode()}"
        entries = merge(index, parse(shared.read_bytes(), hash_bytes))
    return sorted((e.path, e.mode, e.stage, e.oid) for e in entries)


def intent_to_add(repo: Path) -> None:
    (repo / "later").write_text("x")
    git(repo, "add", "-N", "later")
    git(repo, "update-index", "--skip-worktree", "dir/b")


def version_4(repo: Path) -> None:
    git(repo, "update-index", "--index-version", "4")


def version_4_extended(repo: Path) -> None:
    version_4(repo)
    intent_to_add(repo)


def conflict(repo: Path) -> None:
    git(repo, "checkout", "-qb", "other")
    (repo / "dir/b").write_text("theirs")
    git(repo, "commit", "-qam", "theirs")
    git(repo, "checkout", "-q", "-")
    (repo / "dir/b").write_text("ours")
    git(repo, "commit", "-qam", "ours")
    with pytest.raises(subprocess.CalledProcessError):
        git(repo, "merge", "other")


def gitlink(repo: Path) -> None:
    oid = git(repo, "rev-parse", "HEAD").decode().strip()
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{oid},module")


def split(repo: Path) -> None:
    git(repo, "config", "splitIndex.maxPercentChange", "100")
    git(repo, "update-index", "--split-index")
    (repo / "dir/b").write_text("replaced in the base")
    (repo / "new").write_text("new")
    git(repo, "add", "dir/b", "new")
    git(repo, "rm", "-q", "--cached", "dir/sub/c")


def split_untouched(repo: Path) -> None:
    git(repo, "update-index", "--split-index")


def split_version_4(repo: Path) -> None:
    version_4(repo)
    split(repo)


def untracked_cache(repo: Path) -> None:
    git(repo, "update-index", "--force-untracked-cache")
    git(repo, "status")


def offsets(repo: Path) -> None:
    git(repo, "config", "index.threads", "2")
    lines = "".join(f"100644 {'1' * 40}\tbulk/{n:05}\n" for n in range(300))
    git(repo, "update-index", "--index-info", data=lines.encode())
    git(repo, "-c", "index.threads=3", "update-index", "--force-write-index")


def offsets_version_4(repo: Path) -> None:
    version_4(repo)
    offsets(repo)


CASES: list[Prepare] = [
    lambda repo: None,
    intent_to_add,
    version_4,
    version_4_extended,
    conflict,
    gitlink,
    split,
    split_untouched,
    split_version_4,
    untracked_cache,
    offsets,
    offsets_version_4,
]
NAMES = [getattr(case, "__name__", "") for case in CASES]


@pytest.mark.parametrize("prepare", CASES, ids=NAMES)
def test_the_entries_are_those_of_git(tmp_path: Path, prepare: Prepare) -> None:
    repo = repository(tmp_path)
    prepare(repo)
    assert by_us(repo) == by_git(repo)


@pytest.mark.parametrize("prepare", [CASES[0], version_4_extended, split, gitlink])
def test_sha256(tmp_path: Path, prepare: Prepare) -> None:
    repo = repository(tmp_path, object_format="sha256")
    prepare(repo)
    assert by_us(repo, 32) == by_git(repo)
    with pytest.raises(GitIndexError):
        parse((repo / ".git/index").read_bytes(), 20)


def test_versions_are_what_the_cases_say(tmp_path: Path) -> None:
    """Otherwise the comparison above would try version 2 twelve times."""
    found = {}
    for name, prepare in zip(NAMES, CASES, strict=True):
        (tmp_path / name).mkdir()
        repo = repository(tmp_path / name)
        prepare(repo)
        data = (repo / ".git/index").read_bytes()
        index = parse(data)
        found[name] = (index.version, index.shared is not None, b"IEOT" in data, b"UNTR" in data)
    assert found["<lambda>"] == (2, False, False, False)
    assert found["intent_to_add"] == (3, False, False, False)
    assert found["version_4_extended"] == (4, False, False, False)
    assert found["split"][1]
    assert found["split_version_4"][:2] == (4, True)
    assert found["offsets_version_4"] == (4, False, True, False)
    assert found["untracked_cache"][3]


def test_sparse_folders(tmp_path: Path) -> None:
    repo = repository(tmp_path)
    git(repo, "sparse-checkout", "init", "--cone", "--sparse-index")
    git(repo, "sparse-checkout", "set", "other")
    index = parse((repo / ".git/index").read_bytes())
    assert index.sparse
    assert (b"dir/", git_index_parser.FOLDER) in [(e.path, e.mode) for e in index.entries]
    assert by_us(repo) == by_git(repo, "--sparse")


def test_an_index_without_a_checksum(tmp_path: Path) -> None:
    """index.skipHash leaves zeros."""
    repo = repository(tmp_path)
    data = (repo / ".git/index").read_bytes()
    assert parse(data[:-20] + bytes(20)).entries == parse(data).entries
    with pytest.raises(GitIndexError):
        parse(data[:-20] + b"\1" * 20)


def signed(data: bytes) -> bytes:
    return data + hashlib.sha1(data, usedforsecurity=False).digest()


def header(count: int, version: int = 2) -> bytes:
    return b"DIRC" + version.to_bytes(4, "big") + count.to_bytes(4, "big")


def entry(name: bytes, mode: int = 0o100644, *, length: int | None = None) -> bytes:
    size = len(name) if length is None else length
    fixed = bytes(24) + mode.to_bytes(4, "big") + bytes(12) + b"\1" * 20 + size.to_bytes(2, "big")
    return fixed + name + bytes(8 - (62 + len(name)) % 8)


def extension(name: bytes, data: bytes) -> bytes:
    return name + len(data).to_bytes(4, "big") + data


def test_hand_made_is_read() -> None:
    index = parse(signed(header(2) + entry(b"a") + entry(b"b/c", 0o160000)))
    assert [(e.path, e.mode) for e in index.entries] == [(b"a", 0o100644), (b"b/c", 0o160000)]


SHIFTED = b"\0\0\0\1" + (13).to_bytes(4, "big") + (1).to_bytes(4, "big")
BLOCKS = b"\0\0\0\1" + (12).to_bytes(4, "big") + (1).to_bytes(4, "big")


@pytest.mark.parametrize(
    "data",
    [
        header(1, 5) + entry(b"a"),
        header(2) + entry(b"a"),
        header(0xFFFF_FFFF) + entry(b"a"),
        header(1) + entry(b"a\0../x", length=1),
        header(1) + entry(b"a", length=9),
        header(1) + entry(b"abc", length=1),
        header(1) + entry(b"a") + extension(b"abcd", b""),
        header(1) + entry(b"a") + extension(b"TREE", b"")[:-1],
        header(1) + entry(b"a") + extension(b"TREE", b"") * 2,
        header(1) + entry(b"a") + extension(b"EOIE", bytes(24)),
        header(1) + entry(b"a") + extension(b"IEOT", BLOCKS[:-1] + b"\2"),
        header(2) + entry(b"a") + entry(b"b") + extension(b"IEOT", BLOCKS),
        header(1) + entry(b"a") + extension(b"IEOT", SHIFTED),
        header(1) + entry(b"a") + extension(b"link", b"\1" * 19),
        header(1) + entry(b"a") + extension(b"link", b"\1" * 20 + b"\xff" * 12),
    ],
)  # fmt: skip
def test_what_git_does_not_write_is_refused(data: bytes) -> None:
    with pytest.raises(GitIndexError):
        parse(signed(data))


def test_threads_of_git_read_entries_where_a_table_says(tmp_path: Path) -> None:
    """One file, two lists of entries: one for readers from the start, one for threads."""
    repo = repository(tmp_path)
    hidden = entry(b"../x", 0o160000)
    entries = header(1) + entry(b"a")
    other = extension(b"ABCD", hidden)
    at = len(entries) + 8
    blocks = b"\0\0\0\1" + at.to_bytes(4, "big") + (1).to_bytes(4, "big")
    table = extension(b"IEOT", blocks)
    names = hashlib.sha1(other[:8] + table[:8], usedforsecurity=False).digest()
    end = extension(b"EOIE", len(entries).to_bytes(4, "big") + names)
    data = signed(entries + other + table + end)
    (repo / ".git/index").write_bytes(data)
    assert [path for path, *_ in by_git(repo, threads="1")] == [b"a"]
    assert [path for path, *_ in by_git(repo, threads="4")] == [b"../x"]
    with pytest.raises(GitIndexError, match="offset"):
        parse(data)


def test_the_table_of_offsets_may_agree() -> None:
    """The control of the refusals above."""
    parse(signed(header(1) + entry(b"a") + extension(b"IEOT", BLOCKS)))


def test_a_replacement_has_the_name_of_what_it_replaces(tmp_path: Path) -> None:
    """Its own name is empty: a mode alone would hide which path became a repository."""
    repo = repository(tmp_path)
    split_untouched(repo)
    oid = git(repo, "rev-parse", "HEAD").decode().strip()
    git(repo, "config", "splitIndex.maxPercentChange", "100")
    git(repo, "update-index", "--cacheinfo", f"160000,{oid},dir/b")
    index = parse((repo / ".git/index").read_bytes())
    assert {e.path for e in index.entries if e.mode == git_index_parser.GITLINK} == {b""}
    assert (b"dir/b", git_index_parser.GITLINK) in [
        (path, mode) for path, mode, _, _ in by_us(repo)
    ]


def steps(data: bytes) -> int:
    """How many lines of the parser ran. It may raise `GitIndexError` only."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        parse(data)
    except GitIndexError:
        pass
    finally:
        sys.settrace(before)
    return count


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, bytes]]:
    """Repositories, and the index of each."""
    found = []
    for prepare in CASES:
        repo = repository(tmp_path_factory.mktemp("sample"))
        prepare(repo)
        found.append((repo, (repo / ".git/index").read_bytes()))
    return found


Edit = tuple[float, bytes, int]
edits = st.lists(
    st.tuples(st.floats(0, 1), st.binary(max_size=8), st.integers(0, 8)), min_size=1, max_size=6
)
Samples = list[tuple[Path, bytes]]


def damaged(data: bytes, edits: list[Edit], *, sign: bool) -> bytes:
    data = data[:-20]
    for where, inserted, removed in edits:
        at = int(where * len(data))
        data = data[:at] + inserted + data[at + removed :]
    return signed(data) if sign else data + bytes(20)


@settings(max_examples=300)
@given(which=st.integers(0, len(CASES) - 1), edits=edits, sign=st.booleans())
def test_a_damaged_index(samples: Samples, which: int, edits: list[Edit], sign: bool) -> None:
    data = damaged(samples[which][1], edits, sign=sign)
    assert steps(data) < 500 + 4 * len(data)


@settings(max_examples=60)
@given(
    which=st.integers(0, len(CASES) - 1),
    where=st.floats(0, 1),
    byte=st.binary(min_size=1, max_size=1),
    threads=st.sampled_from(["1", "4"]),
)
def test_what_is_accepted_means_the_same_to_git(
    samples: Samples, which: int, where: float, byte: bytes, threads: str
) -> None:
    """One byte differs from what git wrote. Git may refuse more, and never see other entries."""
    repo, original = samples[which]
    (repo / ".git/index").write_bytes(damaged(original, [(where, byte, 1)], sign=True))
    try:
        ours = by_us(repo)
        theirs = by_git(repo, threads=threads)
    except (GitIndexError, FileNotFoundError, subprocess.CalledProcessError):
        return
    # ls-files shows an empty path as the current folder.
    assert sorted((path or b"./", *rest) for path, *rest in ours) == theirs


@settings(max_examples=200)
@given(st.binary(max_size=300), st.integers(0, 5), st.integers(2, 4))
def test_noise(noise: bytes, count: int, version: int) -> None:
    data = header(count, version) + noise + bytes(20)
    assert steps(data) < 500 + 4 * len(data)


@pytest.mark.parametrize("count", [100, 1000])
def test_work_is_linear_in_the_number_of_entries(count: int) -> None:
    data = header(count) + b"".join(entry(b"%08d" % n) for n in range(count)) + bytes(20)
    assert steps(data) < 500 + 30 * count


def test_long_names_in_sum_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 4 expands: each entry repeats the name before it with one byte more."""
    monkeypatch.setattr(git_index_parser, "MAX_NAME_BYTES", 10_000)
    entries = b""
    for n in range(1, 200):
        fixed = bytes(24) + (0o100644).to_bytes(4, "big") + bytes(12) + bytes(20)
        entries += fixed + n.to_bytes(2, "big") + b"\0x\0"
    with pytest.raises(GitIndexError, match="in sum"):
        parse(header(199, 4) + entries + bytes(20))
    monkeypatch.undo()
    assert parse(header(199, 4) + entries + bytes(20)).entries[-1].path == b"x" * 199
