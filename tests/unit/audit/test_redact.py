"""Redaction: every pattern has a text that it must change and look-alikes that must stay."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sandboxd.audit.patterns import _END, _START, FORMS, TOKENS, Pattern
from sandboxd.audit.redact import redact_argv, redact_text, secret_values

MIXED = ("aB3dE5gH7jK9mN1pQ2sT4vW6xY8z" * 8)[:200]


def tokens_of(pattern: Pattern) -> st.SearchStrategy[str]:
    """Texts that the expression matches, without its boundaries."""
    shape = pattern.expression.pattern.removeprefix(_START).removesuffix(_END)
    return st.from_regex(re.compile(shape, re.ASCII), fullmatch=True)


@pytest.mark.parametrize("pattern", TOKENS, ids=lambda p: p.name)
@settings(max_examples=5)
@given(data=st.data())
def test_a_token_is_replaced_and_the_rest_stays(pattern: Pattern, data: st.DataObject) -> None:
    token = data.draw(tokens_of(pattern))
    assume(not token.endswith("-"))
    assert redact_text(f"run --x {token} end") == f"run --x [redacted:{pattern.name}] end"


@pytest.mark.parametrize("pattern", TOKENS, ids=lambda p: p.name)
@settings(max_examples=5)
@given(data=st.data())
def test_a_token_inside_a_longer_word_is_none(pattern: Pattern, data: st.DataObject) -> None:
    token = data.draw(tokens_of(pattern))
    assert not pattern.expression.match(f"a{token}", 1)


@pytest.mark.parametrize("pattern", TOKENS, ids=lambda p: p.name)
@settings(max_examples=5)
@given(data=st.data())
def test_a_token_has_one_of_its_literals(pattern: Pattern, data: st.DataObject) -> None:
    """Otherwise the literal search in front of the expression would hide it."""
    token = data.draw(tokens_of(pattern))
    assert any(literal in token for literal in pattern.literals)


def test_there_are_patterns_of_every_class() -> None:
    assert len(TOKENS) >= 28
    assert len(FORMS) == 10
    assert len({p.name for p in (*TOKENS, *FORMS)}) == len(TOKENS) + len(FORMS)


SECRET = "s3cr3tV4lue9876"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"-----BEGIN RSA PRIVATE KEY-----\n{MIXED}\n-----END RSA PRIVATE KEY-----", "pem"),
        (f"-----BEGIN OPENSSH PRIVATE KEY-----\n{MIXED}", "pem"),
        (f"eyJ{MIXED[:20]}.eyJ{MIXED[:30]}.{MIXED[:43]}", "jwt"),
        (f"Authorization: Basic {SECRET}", "authorization"),
        (f"authorization: {SECRET}", "authorization"),
        (f"curl -H 'bearer {SECRET}{SECRET}'", "bearer"),
        (f"X-Api-Key: {SECRET}", "key_header"),
        (f"X-Vault-Token: {SECRET}", "key_header"),
        (f"Cookie: id={SECRET}", "cookie"),
        (f"postgres://me:{SECRET}@db/x", "url_password"),
        (f"https://h.example/?a=1&access_token={SECRET}", "query_parameter"),
        (f'{{"password": "{SECRET}"}}', "json_member"),
        (f"DB_PASSWORD={SECRET}", "assignment"),
        (f"client_secret={SECRET}", "assignment"),
    ],
)
def test_a_form_is_replaced(text: str, name: str) -> None:
    redacted = redact_text(text)
    assert f"[redacted:{name}]" in redacted
    assert SECRET not in redacted
    assert MIXED[:40] not in redacted


@pytest.mark.parametrize(
    "text",
    [
        "git show 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "123e4567-e89b-12d3-a456-426614174000",
        "--max_tokens=4096",
        "max_tokens=4096 n=2",
        "docker run -p 8080:80 nginx",
        "password=${X}",
        "password=$DB_PASSWORD make",
        "cat: /home/me/.aws/credentials: Permission denied",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL6nWqX me@host",
        "task-list-us1 is a region",
        "https://example.org/a:b@c",
        "tokenize=True",
        "the token is missing",
        "--key-file=/etc/ssl/key.pem",
    ],
)
def test_a_look_alike_stays(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["tool", "--token", "abc"], ["tool", "--token", "[redacted:option]"]),
        (["tool", "--password=abc"], ["tool", "--password=[redacted:option]"]),
        (["tool", "--api-key", "abc"], ["tool", "--api-key", "[redacted:option]"]),
        (["curl", "-u", "me:abc", "x"], ["curl", "-u", "me:[redacted:option]", "x"]),
        (["mysql", "-pabc", "db"], ["mysql", "-p[redacted:option]", "db"]),
        (["sshpass", "-p", "abc", "ssh"], ["sshpass", "-p", "[redacted:option]", "ssh"]),
        (["docker", "login", "-p", "abc"], ["docker", "login", "-p", "[redacted:option]"]),
        (["env", "APP_SECRET=abcdef", "x"], ["env", "APP_SECRET=[redacted:assignment]", "x"]),
        (["docker", "run", "-p", "8080:80"], ["docker", "run", "-p", "8080:80"]),
        (["mkdir", "-p", "a/b"], ["mkdir", "-p", "a/b"]),
        (["tool", "--token", "$TOKEN"], ["tool", "--token", "$TOKEN"]),
        (["tool", "--password", "--verbose"], ["tool", "--password", "--verbose"]),
        (["llm", "--max-tokens", "4096"], ["llm", "--max-tokens", "4096"]),
    ],
)
def test_the_shape_of_argv(argv: list[str], expected: list[str]) -> None:
    assert redact_argv(argv) == expected


def test_values_of_secret_variables_are_replaced_wherever_they_occur() -> None:
    environment = [("GITHUB_TOKEN", "plain-value"), ("PATH", "/usr/bin:/bin"), ("MY_KEY", "short")]
    values = secret_values(environment)
    assert values == ("plain-value",)
    assert redact_argv(["echo", "xplain-valuex"], values) == ["echo", "x[redacted:value]x"]


@given(st.text(max_size=2000))
def test_any_text_is_survived_and_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.parametrize(
    "unit", ["a", "-", "_", ".", "=", "eyJ", "sk-", "token", "://", "x-", "A=", ": "]
)
def test_no_expression_takes_more_than_linear_time(unit: str) -> None:
    """Twenty times the text may take no more than about twenty times the steps: counted by the
    number of positions that each expression visits, which the bounded repeats limit."""
    for pattern in (*TOKENS, *FORMS):
        assert not re.search(r"[*+](?!\w*\])", _without_classes(pattern.expression.pattern)), (
            f"{pattern.name} has an unbounded repeat"
        )
        pattern.expression.search(unit * (20000 // len(unit)))


def _without_classes(expression: str) -> str:
    expression = re.sub(r"\\.", "", expression)
    return re.sub(r"\[[^\]]*\]", "", expression)


def test_many_words_and_many_secrets_are_not_looked_for_one_by_one() -> None:
    values = tuple(f"secret-value-{number:04}" for number in range(1000))
    argv = ["tool", *(f"--x={value}" for value in values)]
    assert redact_argv(argv, values) == ["tool", "[redacted:1000 words]"]
    assert redact_argv(argv[:50], values)[1] == "--x=[redacted:value]"
