"""`--env-all` and `--env-pass`: which of the caller's variables go into the sandbox."""

from __future__ import annotations

from sandboxd_client.cli.parse import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# A part of a name that holds a secret, or leads to what a sandbox must not use.
_SECRET = (
    "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY", "API_KEY",
    "ACCESS_KEY", "PRIVATE_KEY", "_KEY", "_PAT", "_DSN", "COOKIE", "AUTH",
)  # fmt: skip
_NEVER = ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "XAUTHORITY", "SUDO_COMMAND")
_OURS = "SANDBOXD"


def select_variables(
    names: list[str], everything: bool, caller: Mapping[str, str]
) -> dict[str, str]:
    found: dict[str, str] = {}
    if everything:
        found |= {name: value for name, value in caller.items() if not is_secret(name)}
    for name in [part for item in names for part in item.split(",") if part]:
        if name.endswith("*"):
            start = name[:-1]
            found |= {key: value for key, value in caller.items() if key.startswith(start)}
        elif name in caller:
            found[name] = caller[name]
        else:
            raise UsageError(
                f"--env-pass {name}: you have no such variable", f"write --env {name}=VALUE"
            )
    return found


def is_secret(name: str) -> bool:
    upper = name.upper()
    return upper in _NEVER or upper.startswith(_OURS) or any(part in upper for part in _SECRET)
