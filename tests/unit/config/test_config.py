"""The daemon's config: what people write is understood, and what does nothing is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.config.config import Ceiling, Config, ConfigError
from sandboxd.config.loading import load
from sandboxd.policy.presets import check_presets


def loaded(tmp_path: Path, text: str, **env: str) -> Config:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return load(str(path), env, {}, required=True)


def test_amounts_as_people_write_them(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[ceiling]\nmax_memory_bytes = "4G"\nmax_timeout_secs = "5m"\n')
    assert config.ceiling.max_memory_bytes == 4 << 30
    assert config.ceiling.max_timeout_secs == 300


def test_connections_are_not_ended_by_their_age_unless_it_is_set(tmp_path: Path) -> None:
    assert loaded(tmp_path, "").egress.total_secs is None
    assert loaded(tmp_path, "").egress.idle_secs == 300
    assert loaded(tmp_path, "[egress]\ntotal_secs = 60\n").egress.total_secs == 60


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[masks]\nadd = ["secrets"]\n', "masks.add has 'secrets'"),
        ('[ceiling]\nroots = ["work"]\n', "ceiling.roots has 'work'"),
        ('[masks]\nadd = ["~/**/x.key"]\n', "there are no patterns; write each path of a file"),
        ('[masks]\nadd = ["**/x.key"]\n', "there are no patterns; write each path of a file"),
        ('[ceiling]\nroots = ["~/sr*"]\n', "there are no patterns; write each path of a file"),
        ('[protect]\nadd = ["*.key"]\n', "there are no patterns; write each file name"),
        ("[ceiling]\nmax_processes = -1\n", "ceiling.max_processes is -1"),
        (
            "[egress]\nidle_secs = 0\n",
            "egress.idle_secs is 0",
        ),
        ("[audit]\nretention_days = -1\n", "it is a number of 0 or more"),
        ("max_executions = -5\n", "max_executions is -5"),
        ("max_sandboxes = 4\n", "there is no field 'max_sandboxes'; it belongs into [pool]"),
        ("[celing]\nmax_processes = 1\n", "did you mean ceiling?"),
        ("[ceiling]\nmax_procesess = 1\n", "did you mean max_processes?"),
        ('[ceiling]\nmax_memory_bytes = "lots"\n', 'it is a size: 268435456 or "256M"'),
        ('[ceiling]\nnetwork = "deny"\n', "it is a list of inherit, deny, allow_hosts"),
        ('[egress]\ngroups = { m = "a.example" }\n', '[egress] a value of groups cannot be "a.ex'),
        ('[ceiling]\nnetwork = ["allow"]\n', "it is one of inherit, deny, allow_hosts"),
        ("[ceiling]\nmax_memory_bytes = 10\n", 'too little for any program; write "16M" or more'),
        ("[sessions]\ntmp_bytes = 10\n", "sessions.tmp_bytes is 10 bytes, too little"),
    ],
)
def test_what_does_nothing_is_an_error_that_says_what_would(
    tmp_path: Path, text: str, named: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, text)
    assert named in str(refused.value)
    assert "Expected `" not in str(refused.value)


def test_a_misspelt_variable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean SANDBOXD_BACKEND"):
        loaded(tmp_path, "", SANDBOXD_BACKNED="landlock")
    for name in ("SANDBOXD_SOCKET", "SANDBOXD_SESSION", "SANDBOXD_TEST_X"):
        loaded(tmp_path, "", **{name: "x"})


def test_an_error_names_where_the_value_was_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("max_executions = -1\n")
    for env, flags, source in (
        ({}, {}, str(path)),
        ({"SANDBOXD_MAX_EXECUTIONS": "-2"}, {}, "SANDBOXD_MAX_EXECUTIONS"),
        ({"SANDBOXD_MAX_EXECUTIONS": "2"}, {"max_executions": "-3"}, "--set max_executions"),
    ):
        with pytest.raises(ConfigError) as refused:
            load(str(path), env, flags, required=True)
        assert str(refused.value).startswith(f"{source}: max_executions is -")


def test_a_preset_that_does_not_exist_is_an_error() -> None:
    check_presets(Config(preset="read-only"))
    with pytest.raises(ConfigError, match="preset: there is no preset 'read-onyl'; did you mean"):
        check_presets(Config(preset="read-onyl"))
    with pytest.raises(ConfigError, match=r"ceiling\.presets: there is no preset 'zzz'; the p"):
        check_presets(Config(ceiling=Ceiling(presets=["zzz"])))
