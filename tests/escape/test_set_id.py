"""Set-id files: a program that a command leaves with the rights of the daemon's user."""

from __future__ import annotations

import json
import os
import platform
import shlex
import stat
import subprocess
from pathlib import Path

import pytest
from support.attacks import Box, freely, python, weakest

pytestmark = pytest.mark.isolation

ROOT = os.geteuid() == 0
X86 = platform.machine() == "x86_64"
POLICIES = ("inherit", "baseline", "strict")

# Runs pieces of code, each in a process and a folder of its own, and says how each ended.
_EACH = python("""
    import json
    pieces, mode, before = json.loads(args[0]), int(args[1], 8), args[2]
    def raw(number, *words):
        made = libc.syscall(ctypes.c_long(number), *[
            ctypes.c_long(w) if isinstance(w, int) else w for w in words])
        if made < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return made
    HERE, CREATE = -100, os.O_CREAT | os.O_WRONLY
    def ending(code):
        try:
            exec(before + code, globals())
        except OSError as error:
            return errno.errorcode[error.errno]
        except BaseException as error:
            return repr(error)
        return "worked"
    os.umask(0)
    ends = {}
    for name, code in pieces.items():
        os.mkdir(name)
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.chdir(name)
            os.write(writing, ending(code).encode())
            os._exit(0)
        os.close(writing)
        ends[name] = os.read(reading, 1000).decode()
        os.close(reading)
        os.wait()
    worked(json.dumps(ends))
""")
# Each makes `x` in the current folder with the mode in `mode`.
_PLAIN = "open('plain', 'w').close(); "
WAYS = {
    "chmod": "os.rename('plain', 'x'); os.chmod('x', mode)",
    "fchmod": "os.rename('plain', 'x'); os.fchmod(os.open('x', os.O_RDONLY), mode)",
    "fchmodat": "os.rename('plain', 'x'); os.chmod('x', mode, dir_fd=os.open('.', os.O_RDONLY))",
    "fchmodat2": "os.rename('plain', 'x'); raw(452, HERE, b'x', mode, 0)",
    "by proc": "os.rename('plain', 'x'); fd = os.open('x', os.O_RDONLY); "
    "os.chmod(f'/proc/self/fd/{fd}', mode)",
    "open": "os.open('x', CREATE, mode)",
    "open and rename": "os.open('y', CREATE, mode); os.rename('y', 'x')",
    "a file without a name": "fd = os.open('.', os.O_TMPFILE | os.O_WRONLY, mode); "
    "c('linkat', HERE, b'/proc/self/fd/%d' % fd, HERE, b'x', 0x400)",
    "openat2": "raw(437, HERE, b'x', struct.pack('QQQ', CREATE, mode, 0), 24)",
    "mknod": "os.mknod('x', mode | 0o100000)",
    "mknodat": "os.mknod('x', mode | 0o100000, dir_fd=os.open('.', os.O_RDONLY))",
    **({"open, creat": "raw(85, b'x', mode)", "mknod, raw": "raw(133, b'x', mode | 0o100000, 0)"}
       if X86 else {}),
}  # fmt: skip


def _control(folder: Path, mode: str) -> None:
    """Without a sandbox each of WAYS works that this kernel has."""
    folder.mkdir()
    ends = json.loads(freely(_EACH, json.dumps(WAYS), mode, _PLAIN, cwd=folder).words)
    for way, end in ends.items():
        if way == "fchmodat2" and end == "ENOSYS":
            continue
        assert end == "worked", way
        assert _mode(folder / way / "x") == int(mode, 8), way


def _in_box(
    box: Box, folder: Path, ways: dict[str, str], mode: str, before: str, policy: str = "inherit"
) -> dict[str, str]:
    folder.mkdir()
    manifest = weakest(folder, syscall_policy=policy)
    verdict = box.attack(_EACH, json.dumps(ways), mode, before, cwd=str(folder), manifest=manifest)
    ends: dict[str, str] = json.loads(verdict.words)
    assert list(ends) == list(ways)
    return ends


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else 0


@pytest.mark.parametrize("modes", [("4755", "6755", "4000"), ("2755",)], ids=["user", "group"])
def test_no_set_id_file_is_made(box: Box, tmp_path: Path, modes: tuple[str, ...]) -> None:
    _control(tmp_path / "control", modes[0])
    for policy in POLICIES:
        for mode in modes:
            work = tmp_path / f"{policy}-{mode}"
            ends = _in_box(box, work, WAYS, mode, _PLAIN, policy)
            assert set(ends.values()) <= {"EPERM", "ENOSYS"}, ends
            assert not any(path.stat().st_mode & 0o6000 for path in work.rglob("*"))


# Each gives the folder `d` in the current folder the mode `mode`.
FOLDER_WAYS = {
    "chmod": "os.chmod('d', mode)",
    "an absolute path": "os.chmod(os.path.abspath('d'), mode)",
    "through a link": "os.symlink('d', 'l'); os.chmod('l', mode)",
    "fchmod": "os.fchmod(os.open('d', os.O_RDONLY), mode)",
    "fchmodat": "os.chmod('d', mode, dir_fd=os.open('.', os.O_PATH))",
    "another current folder": "os.mkdir('e'); os.chdir('e'); os.chmod('../d', mode)",
    "by proc": "fd = os.open('d', os.O_PATH); os.chmod(f'/proc/self/fd/{fd}', mode)",
    "a thread": "import threading; t = threading.Thread(target=os.chmod, args=('d', mode)); "
    "t.start(); t.join()",
}


def test_a_folder_gets_the_bit_in_every_way(box: Box, tmp_path: Path) -> None:
    work = tmp_path / "work"
    ends = _in_box(box, work, FOLDER_WAYS, "2771", "os.mkdir('d'); ")
    assert set(ends.values()) == {"worked"}, ends
    for way in FOLDER_WAYS:
        assert _mode(work / way / "d") == 0o2771, way


def test_the_errors_of_chmod_stay_what_they_are(box: Box, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "d").mkdir(parents=True)
    for attempt, error in {
        "os.chmod('missing', 0o2755)": "ENOENT",
        "os.fchmod(99, 0o2755)": "EBADF",
        "os.chmod('plain', 0o2755)": "EPERM",
        "c('chmod', 1, 0o2755)": "EFAULT",
    }.items():
        program = python("open('plain', 'w').close()", attempt, "worked()")
        verdict = box.attack(program, cwd=str(work), manifest=weakest(work))
        assert verdict.blocked
        assert verdict.words in error, attempt


def test_a_file_that_is_a_folder_while_it_is_looked_at(box: Box, tmp_path: Path) -> None:
    """The path changes between file and folder all the time: only folders get the bit."""
    work = tmp_path / "work"
    work.mkdir()
    program = python("""
        open("file", "w").close()
        os.mkdir("folder")
        os.mkdir("links")
        swap = os.fork()
        for number in range(0 if swap else 20000):
            os.symlink("../file" if number % 2 else "../folder", "links/next")
            os.rename("links/next", "links/x")
        if swap == 0:
            os._exit(0)
        done = refused = 0
        while os.waitpid(swap, os.WNOHANG)[0] == 0:
            try:
                os.chmod("links/x", 0o2755)
                done += 1
            except OSError:
                refused += 1
        assert done and refused
        worked()
    """)
    verdict = box.attack(program, cwd=str(work), manifest=weakest(work))
    assert not verdict.blocked, verdict.words
    assert _mode(work / "folder") & 0o2000
    assert not _mode(work / "file") & 0o6000


def test_the_descriptors_of_the_init_are_not_reached(box: Box, tmp_path: Path) -> None:
    """A link into /proc/self is the caller's own, never that of the process that answers."""
    work = tmp_path / "work"
    work.mkdir()
    program = python("""
        os.symlink("/proc/self/fd", "fds")
        for number in range(3, 64):
            try:
                os.chmod(f"fds/{number}", 0o2755)
            except OSError:
                continue
            worked(number)
        blocked()
    """)
    assert box.attack(program, cwd=str(work), manifest=weakest(work)).blocked


def test_ordinary_modes_work_in_every_way(box: Box, tmp_path: Path) -> None:
    work = tmp_path / "work"
    for way, end in _in_box(box, work, WAYS, "755", _PLAIN).items():
        if end == "ENOSYS":
            assert way in ("openat2", "fchmodat2")
        else:
            assert end == "worked", way
            assert _mode(work / way / "x") == 0o755, way


def test_no_file_gets_capabilities(box: Box, tmp_path: Path) -> None:
    """security.capability: what set-user-ID is in small pieces. Root's technique."""
    attack = python("""
        open("x", "w").close()
        # Version 2: cap_setuid, permitted and effective.
        os.setxattr("x", "security.capability", struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0))
        worked()
    """)
    control, work = tmp_path / "control", tmp_path / "work"
    control.mkdir()
    work.mkdir()
    assert freely(attack, cwd=control).worked == ROOT
    verdict = box.attack(attack, cwd=str(work), manifest=weakest(work))
    assert verdict.blocked
    assert not os.listxattr(work / "x")


def _says(box: Box, work: Path, script: str) -> str:
    ran = box.run("/bin/sh", "-c", script, cwd=str(work), manifest=weakest(work))
    return f"{ran.exit_code} {ran.bytes_of('stderr').decode()}"


def test_tools_are_told_that_it_is_not_permitted(box: Box, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for script in (
        "touch x; chmod u+s x",
        "install -m 4755 /bin/true x",
        "cp /bin/true x; chmod 4755 x",
    ):
        said = _says(box, work, script)
        assert said.startswith("1 ")
        assert "Operation not permitted" in said
        assert not _mode(work / "x") & 0o6000
    original = work / "original"
    original.write_text("x")
    original.chmod(0o4755)
    said = _says(box, work, "cp -p original copy")
    assert "Operation not permitted" in said
    assert not _mode(work / "copy") & 0o6000


FOLDERS = {
    "mkdir": "mkdir -m 2775 x",
    "chmod": "mkdir x; chmod g+s x",
    "git": "git init -q --shared=group x; mv x y; mv y/.git x",
    "tar": "mkdir -m 2775 a; tar cf t a; rm -r a; tar xpf t; mv a x",
    "cp": "mkdir -m 2775 a; cp -rp a x",
    "rsync": "mkdir -m 2775 a; touch a/f; rsync -a a/ x/; test -f x/f",
    "install": "install -d -m 2775 x",
    "python": 'python3 -c \'import os; os.mkdir("x"); os.chmod("x", 0o2775)\'',
}


def test_set_group_id_folders_are_daily_life(box: Box, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    scripts = [f"mkdir {tool}; (cd {tool}; {script})" for tool, script in FOLDERS.items()]
    assert _says(box, work, "set -e; " + "; ".join(scripts)) == "0 "
    for tool in FOLDERS:
        assert _mode(work / tool / "x") & 0o2000, tool


@pytest.mark.requires("dpkg-deb")
def test_a_folder_keeps_its_bit_in_a_package(box: Box, tmp_path: Path) -> None:
    package = tmp_path / "work/p"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "DEBIAN/control").write_text(
        "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n"
    )
    (package / "folder").mkdir()
    (package / "folder").chmod(0o2775)
    script = "set -e; dpkg-deb -b p p.deb >/dev/null; mkdir out; dpkg-deb -x p.deb out"
    assert _says(box, tmp_path / "work", script) == "0 "
    assert _mode(tmp_path / "work/out/folder") & 0o2000


@pytest.mark.skipif(not X86, reason="int 0x80 exists on x86 only")
def test_the_other_entry_of_the_kernel(box: Box, tmp_path: Path) -> None:
    """int 0x80 has numbers of its own, which no rule for chmod would match."""
    source = tmp_path / "entry.c"
    source.write_text(
        'static char name[] = "x";\n'
        'int main(void) { long r; __asm__ volatile("int $0x80" : "=a"(r) : '
        '"a"(15), "b"((long)name), "c"(04755)); return r != 0; }\n'
    )
    program = tmp_path / "entry"
    flags = ["-static", "-no-pie", "-O1"]
    subprocess.run(["gcc", *flags, "-o", program, source], check=True)
    for folder in ("control", "work"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text("")
    done = subprocess.run([program], cwd=tmp_path / "control", check=False)
    assert done.returncode == 0
    assert _mode(tmp_path / "control/x") == 0o4755
    work = tmp_path / "work"
    manifest = weakest(work, fs_read_allow=[str(program)])
    box.run("/bin/sh", "-c", shlex.quote(str(program)), cwd=str(work), manifest=manifest)
    assert not _mode(work / "x") & 0o6000


@pytest.mark.parametrize("policy", ["inherit", "baseline"])
def test_a_persistent_sandbox_and_what_it_leaves_running(
    box: Box, tmp_path: Path, policy: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    manifest = weakest(work, syscall_policy=policy)
    made = box.connection.call("sandbox/create", {"manifest": manifest})
    try:
        script = (
            "touch a b; chmod 4755 a; echo $? >first;"
            " (trap '' HUP; chmod 4755 b; echo $? >second) & wait; cat first second"
        )
        ran = box.shell(script, sandbox=made["sandbox"], cwd=str(work))
        assert ran.stdout.split() == ["1", "1"], ran.story
    finally:
        box.connection.call("sandbox/destroy", {"sandbox": made["sandbox"]})
    assert not any(p.stat().st_mode & 0o6000 for p in work.iterdir())
