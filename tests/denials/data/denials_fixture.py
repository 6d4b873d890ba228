"""Lay out the files that the commands of denials.jsonl were recorded on.

usage: denials_fixture.py ROOT      (makes ROOT/ws, ROOT/out, ROOT/sec, ROOT/home; replaces ROOT)

The recorded commands name ROOT as /home/user/corpus. Run as the user who runs the commands.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile

_GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")
_OUTSIDE = {
    "existing.txt": "hello\n",
    "readme.md": "outside readme\n",
    "mod.js": "module.exports=1\n",
    "lib.py": "X=1\n",
}
_SECRETS = {"credentials": "[default]\nkey=CANARY\n", "dir/token": "CANARY\n"}
_WORKSPACE = {
    "a.txt": "aaa\n",
    "main.c": "int main(){return 0;}\n",
    "bad.c": "int main({return 0;}\n",
    "g/main.go": "package main\nfunc main(){}\n",
    "g/go.mod": "module x\n\ngo 1.19\n",
    "npm-debug.log": (
        "npm ERR! code EACCES\nnpm ERR! syscall mkdir\nnpm ERR! path /usr/lib/node_modules\n"
        "npm ERR! errno -13\n"
        "npm ERR! Error: EACCES: permission denied, mkdir '/usr/lib/node_modules'\n"
    ),
    "test_perm.py": """
import unittest, errno
class T(unittest.TestCase):
    def test_handles_eperm(self):
        e = OSError(errno.EPERM, "Operation not permitted", "/etc/shadow")
        self.assertEqual(str(e), "handled")
unittest.main()""",
    "test_rofs.py": (
        'import sys\nsys.stderr.write("FAIL: expected write to raise OSError: [Errno 30] '
        "Read-only file system: '/mnt/ro/x'\\nAssertionError: no exception raised\\n\"); "
        "sys.exit(1)\n"
    ),
    "package.json": (
        '{"name":"x","version":"1.0.0","scripts":{"test":'
        '"echo \\"Error: EPERM: operation not permitted, rename\\" && exit 1"}}\n'
    ),
    "pkg/package.json": '{"name":"pkg","version":"1.0.0"}\n',
}
_WHEEL = {
    "tiny.py": "x=1\n",
    "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    "tiny-1.0.dist-info/WHEEL": (
        "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    ),
}


def lay_out(root: str) -> None:
    if os.path.isdir(root):
        subprocess.run(["chmod", "-R", "u+rwX", root], check=True)
        shutil.rmtree(root)
    ws, out, sec = (os.path.join(root, name) for name in ("ws", "out", "sec"))
    for folder in (ws, out, sec, os.path.join(root, "home")):
        os.makedirs(folder)
    for folder, files in ((out, _OUTSIDE), (sec, _SECRETS), (ws, _WORKSPACE)):
        for name, text in files.items():
            _write(os.path.join(folder, name), text)
    _write(f"{out}/tool.sh", "#!/bin/sh\necho tool ran\n", 0o755)
    made = f"out:\n\tcp a.txt {out}/made.txt\nfail:\n\t@echo building; exit 1\n"
    _write(f"{ws}/Makefile", made)
    _write(f"{ws}/locked.txt", "secret of the user\n", 0o000)
    _write(f"{ws}/noexec.sh", "#!/bin/sh\necho hi\n", 0o644)
    _wheel(f"{ws}/tiny-1.0-py3-none-any.whl")
    for folder in (f"{out}/repo", f"{ws}/repo"):
        _repository(folder)
    subprocess.run(["tar", "cf", f"{ws}/t.tar", "-C", ws, "a.txt"], check=True)


def _write(path: str, text: str, mode: int | None = None) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    if mode is not None:
        os.chmod(path, mode)


def _wheel(path: str) -> None:
    record = "tiny-1.0.dist-info/RECORD"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in _WHEEL.items():
            archive.writestr(name, text)
        archive.writestr(record, "".join(f"{name},,\n" for name in (*_WHEEL, record)))


def _repository(folder: str) -> None:
    os.makedirs(folder)
    subprocess.run([*_GIT, "init", "-q", folder], check=True)
    _write(f"{folder}/f", "1\n")
    subprocess.run([*_GIT, "-C", folder, "add", "f"], check=True)
    subprocess.run([*_GIT, "-C", folder, "commit", "-qm", "one"], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lay_out(os.path.abspath(sys.argv[1]))
