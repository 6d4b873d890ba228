"""The keys of the daemon's config, with their defaults; `loading` reads them.

The string below a key is its reason, from which docs/config.md is generated.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Literal

import msgspec

from sandboxd_proto.manifest import NetworkKind

# Less is a forgotten unit: a shell alone takes more memory, and a file system in memory a page for
# each file.
LEAST_BYTES = {"max_memory_bytes": 16 << 20, "tmp_bytes": 1 << 16, "shm_bytes": 1 << 16}


class ConfigError(Exception):
    """The config cannot be used; the message names the key and what is accepted.

    `key`: whoever knows where the value was read (file, variable or flag) puts that in front.
    """

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


def check_known(name: str, known: Collection[str], key: str, what: str) -> None:
    """ConfigError where a key names something that does not exist."""
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the {what}s are {', '.join(known)}"
        raise ConfigError(f"{key}: there is no {what} {name!r}; {hint}", key=key)


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Ceiling(_Table, frozen=True, kw_only=True):
    """What no client may exceed. A key that is not set limits nothing."""

    roots: list[str] | None = None
    """Folders that `fs_*_allow` and workspaces must lie in, besides system folders."""
    network: list[NetworkKind] | None = None
    """The kinds of `network` that a request may have."""
    hosts: list[str] | None = None
    """The hosts that `allow_hosts` may name; patterns such as `*.example.org` too."""
    backends: list[str] | None = None
    """The backends that may run a command."""
    presets: list[str] | None = None
    """The presets that a request may name."""
    max_timeout_secs: float | None = None
    """The longest timeout. A request for no timeout is refused then; sandboxctl asks for
    this one where no flag names another."""
    max_memory_bytes: int | None = None
    """The most memory of one command's process tree."""
    max_cpu_secs: float | None = None
    """The most CPU time of one command's process tree."""
    max_processes: int | None = None
    """The most processes of one command."""
    max_file_bytes: int | None = None
    """The largest file that a command may write."""
    max_output_bytes: int | None = None
    """The most output before a command is ended."""


class Additions(_Table, frozen=True, kw_only=True):
    """Entries besides the built-in list: of masked paths, of protected names."""

    add: list[str] = msgspec.field(default_factory=list)
    """Paths (`[masks]`) or file names (`[protect]`) besides the built-in list; no patterns."""


class Pool(_Table, frozen=True, kw_only=True):
    """Warm sandboxes."""

    enabled: bool = True
    """Keep sandboxes ready for plans that were used before. Off: every command opens its own."""
    max_sandboxes: int = 48
    """The most warm sandboxes at once; each holds a few idle processes."""
    template: bool = True
    """Clone sandboxes from one process for each plan (bubblewrap), where the kernel allows it. Off:
    a bwrap for each."""


class Peers(_Table, frozen=True, kw_only=True):
    """Which clients are accepted, besides the check of the user."""

    allow_other_namespaces: bool = False
    """Accept clients in other pid or user namespaces (containers). They cannot be told from
    sandboxed commands, so the default refuses them."""


class Egress(_Table, frozen=True, kw_only=True):
    """The gate of `network = allow_hosts`."""

    allow: list[str] = msgspec.field(default_factory=list)
    """Hosts that every `allow_hosts` sandbox may reach besides its own."""
    groups: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Named lists of hosts; a manifest uses one as `group:NAME`."""
    exfil_rules: bool = True
    """Rules against exfiltration and shared platforms. False takes effect only together with the
    daemon's flag `--i-accept-exfil-risk`."""
    private_networks: list[str] = msgspec.field(default_factory=list)
    """Private networks (CIDR) that an allowed name may lead to. Others are refused, because a
    public name can point at an address of your network."""
    resolver: str | None = None
    """`address` or `address:port` of a name server to ask in place of the system's."""
    connect_secs: float = 30.0
    """How long connecting to an allowed host may take."""
    idle_secs: float = 300.0
    """A connection without traffic is closed after this time."""
    total_secs: float | None = None
    """The longest time that a connection may last; unset: as long as bytes move."""
    max_connections: int = 256
    """The most connections of one execution at once."""
    max_sent_bytes: int | None = None
    """The most bytes that one execution may send."""
    max_received_bytes: int | None = None
    """The most bytes that one execution may receive."""
    ask_secs: float = 60.0
    """How long a connection to a host that the manifest does not name waits for an approver."""


class DockerConfig(_Table, frozen=True, kw_only=True):
    """The docker backend."""

    image: str = "sandboxd/base:local"
    """The image of sandboxes; `sandboxctl image build` makes the default one."""
    pull: bool = False
    """Pull an image that is missing. Off: the request is refused, and nothing is downloaded."""
    host: str = ""
    """The engine, as in DOCKER_HOST, which it overrides: `unix://` or `tcp://`."""
    way: Literal["auto", "init", "attach"] = "auto"
    """`init`: with our init inside (an engine on this machine). `attach`: through the engine's
    attach API. `auto`: the first that works."""


class ApprovalsConfig(_Table, frozen=True, kw_only=True):
    """Who is asked, and for how long."""

    widest_mode: Literal["default", "auto_edit", "force"] = "force"
    """The widest mode that a session has without an approval. `default` makes approvals mandatory
    on the machine."""
    timeout_secs: float = 300.0
    """How long an approval waits for a decision."""
    grace_secs: float = 15.0
    """How long an approval waits while no approver is connected."""
    no_approver: Literal["deny", "wait"] = "deny"
    """What happens after `grace_secs` without an approver: deny, or wait for the whole time."""
    always_days: int = 90
    """How long a grant of scope `always` is valid."""
    notify: list[str] = msgspec.field(default_factory=list)
    """A command (argv) that gets a waiting approval as JSON on stdin."""


class SessionsConfig(_Table, frozen=True, kw_only=True):
    """Sessions, which several connections of one agent share."""

    linger_secs: float = 60.0
    """How long a session without connections and executions is kept."""
    max_sessions: int = 1024
    """The most sessions at once."""
    tmp_bytes: int = 1 << 30
    """The size of a session's own /tmp."""


class BudgetConfig(_Table, frozen=True, kw_only=True):
    """The limits of the user as a whole, above every session."""

    max_wall_time_secs: float | None = None
    """Time since the daemon's start or the session's opening."""
    max_tool_runtime_secs: float | None = None
    """The sum of the run times of all executions."""
    max_processes: int | None = None
    """Executions at once (a manifest's limit of this name counts processes)."""
    max_agent_depth: int | None = None
    """Depth of sessions; a session without a parent has depth 0."""
    max_tokens_in: int | None = None
    """Input tokens that clients report."""
    max_tokens_out: int | None = None
    """Output tokens that clients report."""
    max_cost_usd: float | None = None
    """Cost that clients report."""


class SessionCapConfig(_Table, frozen=True, kw_only=True):
    """Caps for each session, and for the user's day."""

    per_session_tokens: int | None = None
    """Tokens, in and out, of one session."""
    per_session_usd: float | None = None
    """Cost of one session."""
    per_user_daily_usd: float | None = None
    """Cost of all sessions of the user in one day (UTC)."""


class AuditConfig(_Table, frozen=True, kw_only=True):
    """The record of what ran, for whom and with what outcome."""

    folder: str = ""
    """Where the trail lies; empty: the state folder."""
    required: bool = False
    """Refuse to run what cannot be recorded."""
    sync_secs: float = 1.0
    """How often records are made durable (fdatasync). Decisions are durable at once."""
    max_file_bytes: int = 64 << 20
    """A file is rotated at this size, and every day."""
    max_bytes: int = 1 << 30
    """The oldest files are removed above this total."""
    retention_days: int = 90
    """Files older than this are removed."""


class OpenSandboxConfig(_Table, frozen=True, kw_only=True):
    """The opensandbox backend: a remote server that runs the sandboxes."""

    url: str = ""
    """The server's base URL; empty: the backend is off."""
    api_key_file: str = ""
    """A file that holds the API key, which only its owner can read (mode 0600)."""
    api_key: str = ""
    """The API key itself. Prefer the file: a variable or flag can be seen by other processes."""
    ca_file: str = ""
    """Certificates (PEM) to verify the server with; empty: the system's."""
    image: str = ""
    """The image of sandboxes; empty: each manifest names one."""
    way: Literal["auto", "init", "execd"] = "auto"
    """How commands run in a sandbox. `init`: below sandboxd's own init, which is uploaded into it:
    stdin, terminals, exact output and signals. `execd`: by the server's agent alone. `auto`: `init`
    on Linux."""
    via_server: bool = True
    """Reach sandboxes through the server. Off: at the addresses that it names."""
    host_volumes: bool = False
    """Mount granted folders into sandboxes by their paths. For a server on this machine only. Off:
    they are copied to the sandbox before a command, and what it changed is copied back after it."""
    copy_max_bytes: int = 256 << 20
    """The most that is copied, in either direction; more is refused."""
    copy_max_files: int = 50_000
    """The same for files, folders and links."""
    transfer_secs: float = 600.0
    """How long one copy may take, in each direction."""
    start_secs: float = 120.0
    """How long a sandbox may take to come up."""

    def __repr__(self) -> str:
        """Without the key: configs are logged and shown in errors."""
        return f"OpenSandboxConfig(url={self.url!r})"


class WindowsConfig(_Table, frozen=True, kw_only=True):
    """The appcontainer backend."""

    allow_elevated: bool = False
    """Run commands although the daemon has an administrator's rights."""
    active_processes: int = 64
    """The most processes of one sandbox, where the manifest names no limit."""


class Config(_Table, frozen=True, kw_only=True):
    backend: str = "auto"
    """`auto`: the strongest that works here (bubblewrap, then landlock). A name: that one or a
    refusal. `none`: no sandbox, together with `allow_no_sandbox`."""
    allow_no_sandbox: bool = False
    """The second key for running without a sandbox. One key alone refuses every request."""
    preset: str | None = None
    """The preset of requests without a preset and a manifest; unset: an empty manifest."""
    max_executions: int = 1024
    """The most executions at once in the daemon; more are answered Busy."""
    ceiling: Ceiling = Ceiling()
    masks: Additions = Additions()
    protect: Additions = Additions()
    pool: Pool = Pool()
    peers: Peers = Peers()
    egress: Egress = Egress()
    docker: DockerConfig = DockerConfig()
    opensandbox: OpenSandboxConfig = OpenSandboxConfig()
    windows: WindowsConfig = WindowsConfig()
    approvals: ApprovalsConfig = ApprovalsConfig()
    sessions: SessionsConfig = SessionsConfig()
    budget: BudgetConfig = BudgetConfig()
    session_cap: SessionCapConfig = SessionCapConfig()
    audit: AuditConfig = AuditConfig()


def variable_of(key: str) -> str:
    return f"SANDBOXD_{key.replace('.', '_').upper()}"


def all_keys() -> list[str]:
    """Every key as `key` or `table.key`."""
    keys: list[str] = []
    for item in msgspec.structs.fields(Config):
        if isinstance(item.type, type) and issubclass(item.type, msgspec.Struct):
            keys += [f"{item.name}.{sub.name}" for sub in msgspec.structs.fields(item.type)]
        else:
            keys.append(item.name)
    return keys
