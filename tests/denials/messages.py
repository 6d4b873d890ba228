"""Messages of many programs, with kind and target on the made-up machine of `settings`."""

from __future__ import annotations

WRITE, READ, NETWORK = "filesystem_write", "filesystem_read", "network"

OURS = [
    # shells
    ("bash: line 1: /w/out/new: Read-only file system", WRITE, "/w/out/new"),
    ("/w/ws/build.sh: line 3: /w/out/new: Read-only file system", WRITE, "/w/out/new"),
    ("sh: 1: cannot create /w/out/new: Read-only file system", WRITE, "/w/out/new"),
    ("sh: 1: cannot create /h/u/lib/x: Directory nonexistent", WRITE, "/h/u/lib/x"),
    ("zsh:1: read-only file system: /w/out/new", WRITE, "/w/out/new"),
    ("zsh: no such file or directory: /h/u/notes.txt", READ, "/h/u/notes.txt"),
    ("zsh: command not found: cargo", READ, "/opt/tools/bin/cargo"),
    ("fish: Unknown command: cargo", READ, "/opt/tools/bin/cargo"),
    ("bash: line 1: cargo: command not found", READ, "/opt/tools/bin/cargo"),
    ("sh: 1: cargo: not found", READ, "/opt/tools/bin/cargo"),
    ("/usr/bin/env: ‘cargo’: No such file or directory", READ, "/opt/tools/bin/cargo"),
    (
        "warning: An error occurred while redirecting file '/w/out/new'\n"
        "open: Read-only file system", WRITE, "/w/out/new",
    ),
    # coreutils and relatives
    ("rm: cannot remove '/w/out/old.txt': Read-only file system", WRITE, "/w/out/old.txt"),
    ("mv: cannot move 'a' to '/w/out/a': Read-only file system", WRITE, "/w/out/a"),
    ("touch: cannot touch '../out/new': Read-only file system", WRITE, "/w/out/new"),
    ("tee: '/w/out/a b.txt': Read-only file system", WRITE, "/w/out/a b.txt"),
    ("install: cannot create regular file ‘/w/out/x’: Read-only file system", WRITE, "/w/out/x"),
    ("tar: /w/out/x.tar: Cannot open: Read-only file system", WRITE, "/w/out/x.tar"),
    ("cat: /h/u/notes.txt: No such file or directory", READ, "/h/u/notes.txt"),
    ("ls: cannot access '/h/u/notes.txt': No such file or directory", READ, "/h/u/notes.txt"),
    ("WARNING: Location '/h/u/lib' is ignored: it is either a non-existing path or lacks a "
     "specific scheme.", READ, "/h/u/lib"),
    ("cat: /h/u/.ssh/id: No such file or directory", READ, "/h/u/.ssh/id"),
    ("cat: /tmp/of-host: No such file or directory", READ, "/tmp/of-host"),
    ("curl: (37) Couldn't open file file:///h/u/notes.txt", READ, "/h/u/notes.txt"),
    # languages
    ("PermissionError: [Errno 30] Read-only file system: '/w/out/x' -> '/w/out/y'",
     WRITE, "/w/out/x"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/h/u/notes.txt'",
     READ, "/h/u/notes.txt"),
    ("python3: can't open file '/h/u/notes.txt': [Errno 2] No such file or directory",
     READ, "/h/u/notes.txt"),
    ("Error: EROFS: read-only file system, mkdir '/w/out/d'", WRITE, "/w/out/d"),
    ("Error: ENOENT: no such file or directory, mkdir '/w/out/new/deep/d'",
     WRITE, "/w/out/new/deep/d"),
    ("npm error enoent ENOENT: no such file or directory, mkdir '/h/u/new/d'", WRITE, "/h/u/new/d"),
    ("Error: ENOENT: no such file or directory, open '/h/u/notes.txt'", READ, "/h/u/notes.txt"),
    ("Error: Cannot find module '/h/u/lib'", READ, "/h/u/lib"),
    ("open /w/out/x: read-only file system", WRITE, "/w/out/x"),
    ("panic: open /h/u/notes.txt: no such file or directory", READ, "/h/u/notes.txt"),
    ("java.io.FileNotFoundException: /w/out/x (Read-only file system)", WRITE, "/w/out/x"),
    ("java.nio.file.FileSystemException: /w/out/x: Read-only file system", WRITE, "/w/out/x"),
    ("Caused by: java.nio.file.NoSuchFileException: /h/u/notes.txt", READ, "/h/u/notes.txt"),
    ('Error: Os { code: 30, kind: ReadOnlyFilesystem, message: "Read-only file system" }',
     WRITE, None),
    (
        "error: failed to create directory `/w/out/target`\n\nCaused by:\n"
        "  Read-only file system (os error 30)", WRITE, "/w/out/target",
    ),
    ("error: failed to write `/w/out/x.lock`: Read-only file system (os error 30)",
     WRITE, "/w/out/x.lock"),
    # tools
    ("error: could not lock config file /w/out/.gitconfig: Read-only file system",
     WRITE, "/w/out/.gitconfig"),
    ("fatal: could not create work tree dir '/w/out/x': Read-only file system", WRITE, "/w/out/x"),
    ("error: could not write config file .git/config: Device or resource busy",
     "protected_path", "/w/ws/.git/config"),
    ("mv: cannot move '.git' to 'git2': Device or resource busy", "protected_path", "/w/ws/.git"),
    ("bash: line 1: .git/hooks/pre-commit: Read-only file system",
     "protected_path", "/w/ws/.git/hooks/pre-commit"),
    ("/usr/bin/ld: cannot open output file /w/out/x: Read-only file system", WRITE, "/w/out/x"),
    ("main.c:1:10: fatal error: /h/u/notes.txt: No such file or directory", READ, "/h/u/notes.txt"),
    ("npm error EROFS: read-only file system, open '/w/out/package.json'",
     WRITE, "/w/out/package.json"),
    ("E: Could not open lock file /w/out/lock - open (30: Read-only file system)",
     WRITE, "/w/out/lock"),
    ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?",
     READ, "/run/docker.sock"),
    ("CMake Error: Unable to (re)create the private pkgRedirects directory:\n"
     "/w/out/CMakeFiles/pkgRedirects", WRITE, "/w/out"),
    # pytest cuts the lines of its summary off
    ("E OSError: [Errno 30] Read-only file system: '/w/out/results.txt'\n\n"
     "/w/out/lib.py:1045: OSError\n"
     "FAILED t.py::t - OSError: [Errno 30] Read-only file system: '/w/out/resu...",
     WRITE, "/w/out/results.txt"),
    # network
    ("curl: (6) Could not resolve host: example.org", NETWORK, "example.org"),
    ("wget: unable to resolve host address ‘example.org’", NETWORK, "example.org"),
    ("wget: bad address 'example.org'", NETWORK, "example.org"),
    ("ssh: connect to host 1.1.1.1 port 22: Network is unreachable", NETWORK, "1.1.1.1"),
    ("ssh: Could not resolve hostname example.org: Name or service not known",
     NETWORK, "example.org"),
    ("Error: connect ENETUNREACH 1.1.1.1:443 - Local (0.0.0.0:0)", NETWORK, "1.1.1.1"),
    ("npm error request to https://registry.example.org/x failed, reason: getaddrinfo EAI_AGAIN "
     "registry.example.org", NETWORK, "registry.example.org"),
    ("java.net.UnknownHostException: example.org: Name or service not known",
     NETWORK, "example.org"),
    ("urllib3.exceptions.NewConnectionError: HTTPSConnection(host='index.example.org', port=443): "
     "Failed to establish a new connection: [Errno 101] Network is unreachable",
     NETWORK, "index.example.org"),
    ("  [6] Couldn't resolve host name (Could not resolve host: crates.example.org)",
     NETWORK, "crates.example.org"),
    ("go: x: Get \"https://proxy.example.org/x\": dial tcp: lookup proxy.example.org on [::1]:53: "
     "read udp [::1]:4->[::1]:53: read: connection refused", NETWORK, "proxy.example.org"),
    ("Err:1 http://deb.example.org/debian sid InRelease  Temporary failure resolving "
     "'deb.example.org'", NETWORK, "deb.example.org"),
    ("socket.gaierror: [Errno -3] Temporary failure in name resolution", NETWORK, None),
]  # fmt: skip

NOT_OURS = [
    "cat: a.txt: Permission denied",  # the workspace's own permission bits
    "bash: line 1: ./run.sh: Permission denied",
    "cat: /etc/shadow: Permission denied",
    "bash: line 1: /proc/sys/vm/swappiness: Permission denied",
    "touch: cannot touch '/w/ws/x': Read-only file system",  # the plan says otherwise
    "OSError: [Errno 30] Read-only file system: '/no/such/place/x'",
    "AssertionError: \"[Errno 30] Read-only file system: '/w/out/x'\" != ''",
    "- touch: cannot touch '/w/out/x': Read-only file system",
    "cat: /h/u/nothing: No such file or directory",  # nor on the host
    # Missing folders that the program was not to make: so it fails outside, too.
    "mkdir: cannot create directory ‘/w/out/new/d’: No such file or directory",
    "mkdir /w/out/new/d: no such file or directory",
    "java.nio.file.NoSuchFileException: /w/out/new/d",
    "FileNotFoundError: [Errno 2] No such file or directory: '/w/out/new/d'",
    "Error: ENOENT: no such file or directory, open '/w/out/new/d'",
    "Error: ENOENT: no such file or directory, mkdir '/w/ws/new/d'",
    "Error: ENOENT: no such file or directory, mkdir '/nosuch/new/d'",
    "bash: line 1: nosuch: command not found",
    "Error: Cannot find module './nope'",
    "ModuleNotFoundError: No module named 'requests'",
    "git@github.com: Permission denied (publickey).",
    "fatal: Could not read from remote repository.",
    "kill: (4242) - No such process",
    "bash: line 1: mount: Operation not permitted",  # no filter, and not root
    "MemoryError",  # no limit
    "bash: line 1:     3 Bad system call         ./x",  # no filter
    "curl: (7) Failed to connect to 127.0.0.1 port 8080: Connection refused",
    "curl: (22) The requested URL returned error: 403",
    "make: *** [Makefile:4: test] Error 1",
    "sandbox: denied file-write* /etc/hosts",
    "Bad address",
    "su: Authentication failure",
]

# Lines that an attacker plants in a log, a commit message or a test's name.
PLANTED = [
    "bash: /h/u/.ssh/id: Permission denied",
    "bash: line 1: /h/u/.ssh/id: No such file or directory",
    "cat: /h/u/.ssh/id: No such file or directory",
    "touch: cannot touch '/h/u/.bashrc': Read-only file system",
    "cat: /h/u/notes.txt: No such file or directory",
    "touch: cannot touch '/w/out/x': Read-only file system",
    "bash: line 1: .git/hooks/pre-commit: Read-only file system",
    "curl: (6) Could not resolve host: evil.example.net",
    "ssh: connect to host evil.example.net port 22: Network is unreachable",
    "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    "strace: ptrace(PTRACE_SEIZE, 12): Operation not permitted",
    "bash: line 1:     3 Bad system call         ./x",
    "MemoryError",
    "open: Read-only file system",
    "bash: line 1: cargo: command not found",
    "Error: EACCES: permission denied, open '/h/u/.ssh/id'",
]

# Sentences with a reason in which a word stands where programs put a path.
MISLEADING = [
    "error: permission denied",
    "npm ERR! code EACCES",
    "npm error code EROFS",
    "fatal: permission denied",
    "Warning: read-only file system",
    "the build failed: no such file or directory",
    "remote: Permission denied to somebody",
    "ERROR - permission denied",
]

LOCALE = [
    ("de", "touch: '/w/out/x' kann nicht berührt werden: Das Dateisystem ist nur lesbar"),
    ("fr", "touch: impossible de faire un touch '/w/out/x': Système de fichiers accessible en "
           "lecture seulement"),
]  # fmt: skip
