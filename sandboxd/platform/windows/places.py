"""Places of Windows that policy treats apart. The sibling of posix/places; paths are internal."""

from __future__ import annotations

import os

from sandboxd.platform.windows.paths import internal

_ROOT = internal(os.environ.get("SYSTEMROOT") or "C:\\Windows")
_DRIVE = _ROOT[:3]
_PROGRAMS = tuple(
    f"{_DRIVE}/{name}" for name in ("Program Files", "Program Files (x86)", "ProgramData")
)

SYSTEM_TREES: dict[str, str] = dict.fromkeys(
    (_ROOT, *_PROGRAMS, f"{_DRIVE}/$Recycle.Bin", f"{_DRIVE}/Recovery", f"{_DRIVE}/Boot",
     f"{_DRIVE}/EFI", f"{_DRIVE}/System Volume Information", f"{_DRIVE}/PerfLogs"),
    "the host runs what lies there",
)  # fmt: skip
TOO_WIDE: tuple[str, ...] = (
    *(f"/{letter}:" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    f"{_DRIVE}/Users",
)
SYSTEM_FOLDERS: tuple[str, ...] = (_ROOT, *_PROGRAMS[:2])
HOME_PARENTS = (f"{_DRIVE}/Users",)
SECRETS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "credentials that DPAPI protects, and the keys that open them",
        (
            "AppData/Roaming/Microsoft/Credentials", "AppData/Local/Microsoft/Credentials",
            "AppData/Roaming/Microsoft/Protect", "AppData/Roaming/Microsoft/Crypto",
            "AppData/Local/Microsoft/Vault", "AppData/Roaming/Microsoft/Vault",
            "AppData/Roaming/Microsoft/SystemCertificates", "AppData/Local/Microsoft/TokenBroker",
            "AppData/Local/Microsoft/OneAuth", "AppData/Local/.IdentityService",
        ),
    ),
    (
        "cloud accounts and deployment tools",
        (
            "AppData/Roaming/gcloud", "AppData/Roaming/GitHub CLI", "AppData/Roaming/glab-cli",
            "AppData/Roaming/rclone", "AppData/Roaming/doctl", "AppData/Roaming/hcloud",
            "AppData/Roaming/com.vercel.cli", "AppData/Roaming/netlify", "AppData/Local/heroku",
            "AppData/Roaming/xdg.config", "AppData/Roaming/Docker",
        ),
    ),
    (
        "package registries' tokens",
        (
            "AppData/Roaming/NuGet", "AppData/Roaming/pip", "pip", "AppData/Roaming/pypoetry",
            "AppData/Roaming/Composer/auth.json", "AppData/Local/uv/credentials",
            "AppData/Roaming/uv/credentials", "AppData/Local/pnpm/config",
        ),
    ),
    (
        "browser profiles: cookies, saved passwords",
        (
            "AppData/Local/Google/Chrome", "AppData/Local/Microsoft/Edge",
            "AppData/Local/BraveSoftware", "AppData/Local/Chromium", "AppData/Local/Vivaldi",
            "AppData/Roaming/Opera Software", "AppData/Roaming/Mozilla",
            "AppData/Local/Mozilla", "AppData/Roaming/Thunderbird", "AppData/Local/Packages",
        ),
    ),
    (
        "sessions of chat, mail and password programs",
        (
            "AppData/Roaming/Slack", "AppData/Roaming/discord", "AppData/Roaming/Signal",
            "AppData/Roaming/Telegram Desktop", "AppData/Local/1Password",
            "AppData/Roaming/Bitwarden", "AppData/Roaming/KeePass", "AppData/Local/Keybase",
            "AppData/Local/Microsoft/Outlook", "AppData/Roaming/WinSCP.ini",
            "AppData/Roaming/FileZilla", "AppData/Roaming/Code/User/globalStorage",
        ),
    ),
    (
        "command history, and profiles that a shell runs at its start",
        (
            "AppData/Roaming/Microsoft/Windows/PowerShell",
            "AppData/Roaming/Microsoft/Windows/Recent",
            "Documents/PowerShell", "Documents/WindowsPowerShell",
        ),
    ),
    (
        "what runs at the next logon",
        ("AppData/Roaming/Microsoft/Windows/Start Menu/Programs/Startup",),
    ),
    ("the user's registry hives", ("NTUSER.DAT", "AppData/Local/Microsoft/Windows/UsrClass.dat")),
)  # fmt: skip
DEFAULT_TIMEOUT_S = 60.0
START_FOLDER = _ROOT
