"""Hosts where everyone can publish content under a trustworthy name. Data with reasons.

Allowing one of these as a whole allows every customer's part of it: data can be left there for
others to fetch. So each can be allowed by exact host only.

`TENANTS`: every customer has a name below the suffix; the suffix itself and wildcards are refused.
`HOSTS`: customers share the host itself; it can be named, a wildcard above it does not cover it.
"""

from __future__ import annotations

from collections.abc import Iterator

TENANTS: dict[str, tuple[str, ...]] = {
    "object storage": (
        "amazonaws.com", "amazonaws.com.cn", "core.windows.net", "storage.googleapis.com",
        "r2.cloudflarestorage.com", "r2.dev", "digitaloceanspaces.com", "backblazeb2.com",
        "wasabisys.com", "linodeobjects.com", "aliyuncs.com", "myqcloud.com", "supabase.co",
        "firebaseio.com", "firebasestorage.app",
    ),
    "serverless and preview domains": (
        "workers.dev", "pages.dev", "vercel.app", "now.sh", "netlify.app", "herokuapp.com",
        "fly.dev", "onrender.com", "railway.app", "deno.dev", "glitch.me", "repl.co",
        "replit.app", "replit.dev", "surge.sh", "web.app", "firebaseapp.com", "appspot.com",
        "run.app", "cloudfunctions.net", "azurewebsites.net", "azurestaticapps.net",
        "on.aws", "github.io", "gitlab.io", "codeberg.page", "stackblitz.io", "webcontainer.io",
        "csb.app", "val.run", "hf.space", "streamlit.app",
    ),
    "content delivery networks": (
        "cloudfront.net", "azureedge.net", "azurefd.net", "fastly.net", "edgekey.net",
        "akamaihd.net", "b-cdn.net",
    ),
    "tunnels": (
        "ngrok.io", "ngrok.app", "ngrok.dev", "ngrok-free.app", "ngrok-free.dev",
        "trycloudflare.com", "loca.lt", "localtunnel.me", "serveo.net", "localhost.run",
        "lhr.life", "pagekite.me", "devtunnels.ms", "tunnelmole.net", "bore.pub", "pinggy.link",
        "zrok.io", "ts.net",
    ),
    "out-of-band canaries": (
        "burpcollaborator.net", "oastify.com", "interact.sh", "oast.pro", "oast.live",
        "oast.site", "oast.online", "oast.fun", "oast.me", "requestbin.com", "requestbin.net",
        "webhook.site", "pipedream.net", "beeceptor.com", "hookbin.com", "requestcatcher.com",
        "canarytokens.com", "canarytokens.org", "dnslog.cn", "ceye.io", "bxss.in",
    ),
    "names that resolve to any address": (
        "nip.io", "sslip.io", "xip.io", "localtest.me", "lvh.me", "rbndr.us",
    ),
}  # fmt: skip

HOSTS: dict[str, tuple[str, ...]] = {
    "paste and raw-code sites": (
        "pastebin.com", "paste.ee", "paste.rs", "dpaste.com", "dpaste.org", "hastebin.com",
        "ghostbin.com", "rentry.co", "ix.io", "sprunge.us", "termbin.com", "0bin.net",
        "privatebin.net", "controlc.com", "justpaste.it", "gist.github.com",
        "gist.githubusercontent.com", "raw.githubusercontent.com", "telegra.ph",
    ),
    "file drops": (
        "transfer.sh", "file.io", "0x0.st", "temp.sh", "gofile.io", "anonfiles.com", "catbox.moe",
        "litter.catbox.moe", "bashupload.com", "oshi.at", "wetransfer.com", "pixeldrain.com",
    ),
    "chat webhooks": (
        "discord.com", "discordapp.com", "hooks.slack.com", "api.telegram.org",
    ),
}  # fmt: skip


def _by_name(groups: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: category for category, names in groups.items() for name in names}


_TENANT = _by_name(TENANTS)
_HOST = _by_name(HOSTS)


def platform_of(name: str) -> str | None:
    """The category of the shared platform that `name` belongs to."""
    for suffix in _at_and_above(name):
        found = _TENANT.get(suffix) or _HOST.get(suffix)
        if found is not None:
            return found
    return None


def is_tenant_suffix(name: str) -> bool:
    return name in _TENANT


def _at_and_above(name: str) -> Iterator[str]:
    labels = name.split(".")
    for index in range(len(labels)):
        yield ".".join(labels[index:])
