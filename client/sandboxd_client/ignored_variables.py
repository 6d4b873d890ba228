"""Variables of the caller that set nothing, because the daemon was started without them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Read by clients, or not to be shown.
_OF_CLIENTS = ("SANDBOXD_SOCKET", "SANDBOXD_SESSION")
_KEYS = ("SANDBOXD_BACKEND", "SANDBOXD_ALLOW_NO_SANDBOX")


def ignored_variables(caller: Mapping[str, str], answer: Mapping[str, Any]) -> list[str]:
    """One line for each setting that the daemon does not have. `answer`: of `initialize`."""
    of_daemon = answer.get("environment")
    if not isinstance(of_daemon, dict):
        return []  # an older daemon
    names = [
        name
        for name, value in caller.items()
        if name.startswith("SANDBOXD_") and name not in _OF_CLIENTS
        and not name.startswith("SANDBOXD_TEST_") and not name.endswith("_KEY")
        and value and of_daemon.get(name) != value
    ]  # fmt: skip
    setting = answer.get("backend_setting")
    keys = ignored_keys(caller) if setting != "none" else None
    if keys or caller.get("SANDBOXD_BACKEND") == setting:
        names = [name for name in names if name not in _KEYS]
    lines = [keys] if keys else []
    if names:
        shown = ", ".join(f"{name}={caller[name]}" for name in names)
        lines.append(
            f"{shown} has no effect on the daemon that runs: it was started with other settings; "
            "`sandboxctl restart` starts it with yours"
        )
    return lines


def unshared_variables(caller: Mapping[str, str], of_daemon: Mapping[str, str]) -> list[str]:
    """A line about settings that the daemon has from its environment, and the caller has not."""
    names = [
        name for name in of_daemon
        if name not in caller and name not in (*_OF_CLIENTS, "SANDBOXD_LOG")
        and not name.startswith("SANDBOXD_TEST_")
    ]  # fmt: skip
    shown = ", ".join(f"{name}={of_daemon[name]}" for name in sorted(names))
    said = f"the daemon was started with {shown}, which you do not set; `sandboxctl restart` "
    return [f"{said}starts one without"] if names else []


def ignored_keys(caller: Mapping[str, str]) -> str | None:
    """About the two keys of `none`, which a client hands to no daemon."""
    if not is_none(caller) and "SANDBOXD_ALLOW_NO_SANDBOX" not in caller:
        return None
    return (
        "SANDBOXD_BACKEND=none and SANDBOXD_ALLOW_NO_SANDBOX have no effect: they are not handed "
        "to a daemon that a client starts; put both keys into its config"
    )


def is_none(variables: Mapping[str, str]) -> bool:
    return variables.get("SANDBOXD_BACKEND", "").strip().lower() == "none"
