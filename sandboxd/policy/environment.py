"""The command's environment: exactly the pairs that the manifest names, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sandboxd_proto.errors import ManifestInvalid

Pairs = tuple[tuple[str, str], ...]

# Without a network a retry is only a wait: npm takes 70 s to give up, cargo 11, pip 8.
FAIL_FAST: Pairs = (
    ("npm_config_fetch_retries", "0"),
    ("CARGO_NET_RETRY", "0"),
    ("PIP_RETRIES", "0"),
    ("UV_HTTP_RETRIES", "0"),
)
# The gate's refusals are final too, but an allowed host may fail for a moment: few retries, soon.
FEW_RETRIES: Pairs = (
    ("npm_config_fetch_retry_mintimeout", "500"),
    ("npm_config_fetch_retry_maxtimeout", "1000"),
    ("CARGO_NET_RETRY", "1"),
    ("PIP_RETRIES", "2"),
    ("UV_HTTP_RETRIES", "1"),
)


def environment(env: list[tuple[str, str]] | Mapping[str, str] | None) -> Pairs:
    if env is None:
        return ()
    pairs: Iterable[tuple[str, str]] = env.items() if isinstance(env, Mapping) else env
    seen: dict[str, str] = {}
    for index, (name, value) in enumerate(pairs):
        _check(name, value, f"env[{index}]")
        if name in seen:
            raise ManifestInvalid(
                f"the variable {name} is given twice", field=f"env[{index}]",
                remedy="give each variable once",
            )  # fmt: skip
        seen[name] = value
    return tuple(seen.items())


def _check(name: str, value: str, field: str) -> None:
    if not name:
        raise ManifestInvalid("a variable has an empty name", field=field)
    if "=" in name or "\0" in name or "\0" in value:
        raise ManifestInvalid(
            f"the variable {name!r} has '=' or NUL in its name, or NUL in its value",
            field=field,
            remedy='write it as a pair, for example ["LANG", "C.UTF-8"]',
        )


def overlay(base: Pairs, *more: Pairs) -> Pairs:
    """Later pairs replace earlier ones of the same name."""
    merged: dict[str, str] = dict(base)
    for pairs in more:
        merged.update(pairs)
    return tuple(merged.items())
