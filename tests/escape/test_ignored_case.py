"""A file system that ignores case, over FUSE: the kernel has an entry for each spelling.

A mount on `.git/hooks` does not cover `.GIT/hooks` there. exFAT has one time for a file's changes,
which a command can set back.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.attacks import Box
from support.backends import LINUX, product_name, running_backend
from support.daemon import Daemon
from support.git_attacks import HOW, attack, git, is_reported, make_repository
from support.rpc import RpcError
from support.runs import Ran

pytestmark = [
    pytest.mark.isolation,
    pytest.mark.requires("git", "root", "losetup", "mount.exfat-fuse", "mkfs.exfat"),
]


@pytest.fixture(scope="module", params=[name for name in LINUX if name != "docker"])
def exfat_box(request: pytest.FixtureRequest) -> Iterator[Box]:
    with running_backend(request.param) as daemon:
        box = Box(product_name(request.param), daemon)
        yield box
        box.close()


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("exfat").resolve()
    image, place = folder / "image", folder / "mounted"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.exfat", str(image)], check=True, capture_output=True)
    attach = ["losetup", "--find", "--show", str(image)]
    device = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    # In the foreground, so that it ends here: other mount namespaces may hold the mount for longer.
    serve = ["mount.exfat-fuse", "-d", device, str(place)]
    with subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 30
            while not place.is_mount():
                assert time.monotonic() < deadline
                assert server.poll() is None
                time.sleep(0.05)
            yield place
        finally:
            subprocess.run(["umount", "--lazy", str(place)], check=False)
            server.terminate()
            server.wait()
            subprocess.run(["losetup", "--detach", device], check=True)


# Each leaves a mark in a file that runs code.
ATTACKS = {
    "a hook": ("echo evil > .GIT/HOOKS/PRE-COMMIT", ".git/hooks/pre-commit"),
    "a new hook": ("echo evil > .Git/hooks/Post-Commit", ".git/hooks/post-commit"),
    "the config": ("echo '# evil' >> .giT/CONFIG", ".git/config"),
    "settings of an editor": ("echo evil > .VSCODE/tasks.json", ".vscode/tasks.json"),
    "a new file": ("echo evil > .ENVRC", ".envrc"),
    "HEAD with its time set back": (
        "cp -p .git/HEAD keep; echo 'ref: nowhere/at/evil' > .git/head; touch -r keep .git/head",
        ".git/HEAD",
    ),
    "a hook with its time set back": (
        "cp -p .git/hooks/pre-commit keep; printf evil > .GIT/hooks/pre-commit; "
        "touch -r keep .GIT/hooks/pre-commit",
        ".git/hooks/pre-commit",
    ),
}


def is_hit(repository: Path, name: str) -> bool:
    path = repository / name
    if not path.exists():
        return False
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return b"evil" in file.read()


def make(folder: Path) -> Path:
    repository = make_repository(folder)
    (repository / ".git/hooks/pre-commit").write_text("true")
    (repository / ".vscode").mkdir()
    (repository / ".vscode/tasks.json").write_text("{}")
    return repository


def attack_alone(daemon: Daemon, backend: str, how: str, repository: Path, script: str) -> Ran:
    box = Box(backend, daemon)
    try:
        return attack(box, how, repository, ("sh", "-c", script))
    finally:
        box.close()


@pytest.mark.parametrize("how", HOW)
def test_another_spelling_leads_to_no_protected_file(
    exfat_box: Box, mounted: Path, how: str
) -> None:
    """Side by side, each in a repository of its own: every command there waits for the kernel."""
    backend, daemon = exfat_box.backend, exfat_box.daemon
    places = {name: f"{backend}-{at}-{how}" for at, name in enumerate(ATTACKS)}
    attacked = {name: make(mounted / place) for name, place in places.items()}
    controls = {name: make(mounted / f"control-{place}") for name, place in places.items()}
    with ThreadPoolExecutor(len(ATTACKS)) as threads:
        begun = {
            name: threads.submit(attack_alone, daemon, backend, how, attacked[name], script)
            for name, (script, _) in ATTACKS.items()
        }
        ran = {name: future.result() for name, future in begun.items()}
    for name, (script, _) in ATTACKS.items():
        subprocess.run(["sh", "-c", script], cwd=controls[name], check=True)
    time.sleep(1.5)  # until then the kernel may show a file as it was
    for name, (_, path) in ATTACKS.items():
        assert not is_hit(attacked[name], path), f"{name}: {ran[name].story}"
        assert is_hit(controls[name], path), name


def test_work_goes_on(exfat_box: Box, mounted: Path) -> None:
    repository = make(mounted / f"{exfat_box.backend}-work")
    script = "echo x > made && git add made && git -c user.name=t -c user.email=t commit -qnm made"
    ran = attack(exfat_box, "cold", repository, ("sh", "-c", script))
    assert ran.exited(0), ran.story
    assert not is_reported(ran), ran.story
    assert git(repository, "log", "-1", "--format=%s") == "made\n"


def test_what_cannot_be_hidden_is_refused(exfat_box: Box, mounted: Path) -> None:
    place = mounted / f"{exfat_box.backend}-secret"
    place.mkdir()
    (place / "token").write_text("secret")
    assert (place / "TOKEN").read_text() == "secret"
    params = {"fs_read_allow": [str(place)], "fs_deny": [str(place / "token")]}
    with pytest.raises(RpcError, match="ignores case"):
        exfat_box.run("cat", str(place / "TOKEN"), manifest=params)
