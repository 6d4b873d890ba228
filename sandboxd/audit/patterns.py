"""Shapes of secrets, as data: an issuer's tokens, and the forms in which any secret is written.

Each pattern names literals of which one must occur before the expression is tried, so that text
without secrets costs a few substring searches. Expressions have a fixed prefix, bounded repeats
and boundaries on both sides; none nests repeats, so none backtracks more than linearly.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Pattern(NamedTuple):
    """`group`: which group of the expression is the secret; what is around it stays."""

    name: str
    literals: tuple[str, ...]
    expression: re.Pattern[str]
    group: int = 0


_START, _END = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"


def _token(name: str, literals: str, shape: str) -> Pattern:
    return Pattern(name, tuple(literals.split()), re.compile(f"{_START}(?:{shape}){_END}"))


def _form(name: str, literals: str, expression: str) -> Pattern:
    """Literals of a form are compared in lower case."""
    return Pattern(name, tuple(literals.split()), re.compile(expression, re.IGNORECASE), 1)


CLOUD = (
    _token("aws_access_key", "AKIA ASIA ABIA ACCA", r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}"),
    _token("google_api_key", "AIza", r"AIza[\w-]{35}"),
    _token("google_access_token", "ya29.", r"ya29\.[\w-]{30,1024}"),
    _token("google_client_secret", "GOCSPX-", r"GOCSPX-[\w-]{28}"),
    _token("azure_storage_key", "AccountKey=", r"AccountKey=[A-Za-z0-9+/]{86}=="),
    _token("azure_sas_signature", "sig=", r"sig=[A-Za-z0-9%]{40,60}%3[Dd]"),
    _token("azure_client_secret", "8Q~ 7Q~", r"[\w~.-]{3}[78]Q~[\w~.-]{31,34}"),
    _token("digitalocean_token", "doo_v1_ dop_v1_ dor_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _token("alibaba_access_key", "LTAI", r"LTAI[A-Za-z0-9]{20}"),
    _token("cloudflare_origin_key", "v1.0-", r"v1\.0-[a-f0-9]{24}-[a-f0-9]{146}"),
    _token("heroku_key", "HRKU-", r"HRKU-[\w-]{36,64}"),
)
CODE_HOSTS = (
    _token("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36}"),
    _token("github_fine_grained", "github_pat_", r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _token("gitlab_token", "glpat-", r"glpat-[\w-]{20}"),
    _token("bitbucket_app_password", "ATBB", r"ATBB[A-Za-z0-9]{32}"),
)
REGISTRIES = (
    _token("npm_token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _token("pypi_token", "pypi-AgE", r"pypi-AgE[\w-]{50,512}"),
    _token("rubygems_key", "rubygems_", r"rubygems_[a-f0-9]{48}"),
    _token("docker_token", "dckr_pat_", r"dckr_pat_[\w-]{27}"),
    _token("crates_token", "cio", r"cio[A-Za-z0-9]{32}"),
    _token("nuget_key", "oy2", r"oy2[a-z0-9]{43}"),
)
MODELS = (
    _token("anthropic_key", "sk-ant-", r"sk-ant-[a-z]{3,8}\d\d-[\w-]{80,120}"),
    _token("openrouter_key", "sk-or-v1-", r"sk-or-v1-[a-f0-9]{64}"),
    _token("openai_key", "T3BlbkFJ", r"sk-(?:[a-z]{4,8}-)?[\w-]{20,100}T3BlbkFJ[\w-]{20,100}"),
    _token("deepseek_key", "sk-", r"sk-[a-f0-9]{32}"),
    _token("huggingface_token", "hf_", r"hf_[A-Za-z0-9]{34}"),
    _token("replicate_token", "r8_", r"r8_[A-Za-z0-9]{37}"),
    _token("groq_key", "gsk_", r"gsk_[A-Za-z0-9]{52}"),
    _token("xai_key", "xai-", r"xai-[A-Za-z0-9]{80}"),
    _token("perplexity_key", "pplx-", r"pplx-[A-Za-z0-9]{48}"),
)
PRODUCTS = (
    _token("slack_token", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs-",
           r"xox[abeoprs]-[A-Za-z0-9-]{20,256}"),
    _token("slack_app_token", "xapp-", r"xapp-\d-[A-Z0-9]{8,16}-\d{8,16}-[a-f0-9]{64}"),
    _token("telegram_bot_token", ":AA", r"\d{8,10}:AA[\w-]{33}"),
    _token("stripe_key", "sk_live_ sk_test_ rk_live_ rk_test_",
           r"[rs]k_(?:live|test)_[A-Za-z0-9]{24,99}"),
    _token("twilio_key", "SK", r"SK[a-f0-9]{32}"),
    _token("sendgrid_key", "SG.", r"SG\.[\w-]{22}\.[\w-]{43}"),
    _token("mailgun_key", "key-", r"key-[a-f0-9]{32}"),
    _token("mailchimp_key", "-us", r"[a-f0-9]{32}-us\d{1,2}"),
    _token("shopify_token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[a-f0-9]{32}"),
    _token("newrelic_key", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
    _token("sentry_token", "sntrys_", r"sntrys_[\w+/=]{60,300}"),
    _token("linear_key", "lin_api_", r"lin_api_[A-Za-z0-9]{40}"),
    _token("figma_token", "figd_", r"figd_[\w-]{40}"),
    _token("grafana_token", "glsa_", r"glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}"),
    _token("postman_key", "PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    _token("atlassian_token", "ATATT3", r"ATATT3[\w=-]{170,250}"),
)  # fmt: skip
SECRET_STORES = (
    _token("vault_token", "hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{24,300}"),
    _token("doppler_token", "dp.pt. dp.st. dp.ct. dp.sa.", r"dp\.(?:pt|st|ct|sa)\.[\w.-]{40,64}"),
    _token("onepassword_token", "ops_eyJ", r"ops_eyJ[\w+/=-]{100,2048}"),
    _token("age_key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _token("pulumi_token", "pul-", r"pul-[a-f0-9]{40}"),
    _token("terraform_token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,70}"),
)
# A reference to a secret, or a placeholder, is no secret: ${X}, $X, $(…), <…>, {{…}}, ***.
_NO_REFERENCE = r"(?![$<{*%]|\[redacted)"
_SECRET_NAME = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|auth[_-]?key|client[_-]?secret|signing[_-]?key|encryption[_-]?key|credentials?)"
)
_SECRET_LITERALS = "pass pwd secret token key credential"
FORMS = (
    _form("pem", "private key-----",
          r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[^-]{0,65536}"
          r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----)?)"),
    _form("jwt", "eyj", r"(?<![\w.-])(eyJ[\w-]{8,4096}\.eyJ[\w-]{8,8192}\.[\w-]{8,2048})(?![\w-])"),
    _form("authorization", "authorization", r"authorization\s{0,8}[:=]\s{0,8}['\"]?"
          rf"(?:(?:basic|bearer|token|digest|negotiate)\s{{1,8}})?{_NO_REFERENCE}([^\s'\"]{{6,4096}})"),
    _form("bearer", "bearer", rf"\bbearer\s{{1,8}}{_NO_REFERENCE}([\w.~+/=-]{{16,4096}})"),
    _form("key_header", "x-", r"\bx-[a-z0-9-]{0,40}(?:key|token|secret|auth)\s{0,8}:\s{0,8}"
          rf"{_NO_REFERENCE}([^\s'\"]{{6,4096}})"),
    _form("cookie", "cookie",
          rf"\b(?:set-)?cookie\s{{0,8}}:\s{{0,8}}{_NO_REFERENCE}([^\r\n'\"]{{4,4096}})"),
    _form("url_password", "://", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{0,256}:"
          rf"{_NO_REFERENCE}([^\s/@'\"]{{1,256}})@"),
    _form("query_parameter", _SECRET_LITERALS + " sig",
          rf"[?&](?:[a-z0-9_.-]{{0,40}}{_SECRET_NAME}|sig|signature)="
          rf"{_NO_REFERENCE}([^\s&#'\"]{{4,4096}})"),
    _form("json_member", _SECRET_LITERALS,
          rf"[\"'][a-z0-9_.-]{{0,40}}{_SECRET_NAME}[\"']\s{{0,8}}:\s{{0,8}}"
          rf"[\"']{_NO_REFERENCE}([^\"']{{4,4096}})[\"']"),
    _form("assignment", _SECRET_LITERALS,
          rf"(?<![a-z0-9])(?:[a-z0-9.-]{{1,40}}_|_{{1,3}}|[a-z0-9.-]{{0,40}})"
          rf"{_SECRET_NAME}\s?=\s?['\"]?{_NO_REFERENCE}([^\s'\"&,;]{{4,4096}})"),
)  # fmt: skip

TOKENS: tuple[Pattern, ...] = (
    *CLOUD, *CODE_HOSTS, *REGISTRIES, *MODELS, *PRODUCTS, *SECRET_STORES,
)  # fmt: skip
