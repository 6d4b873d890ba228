"""What is hidden by default: secrets, and sockets that give control, each group with its reason.

Data only. A path ends in "/" when it is a folder by nature; that is for the reader, what counts is
what the host has there. Tools open several of these files unasked (.netrc, .npmrc,
.docker/config.json): masked, they read as empty, so the tool goes on without the secret.
"""

from __future__ import annotations

import msgspec


class SecretGroup(msgspec.Struct, frozen=True):
    """`links_in_folders`: symlinks lead from folders in these folders to secrets, too."""

    why: str
    paths: tuple[str, ...]
    links_in_folders: bool = False


def _group(why: str, paths: str, *with_spaces: str, links_in_folders: bool = False) -> SecretGroup:
    names = tuple(path.rstrip("/") for path in (*paths.split(), *with_spaces))
    return SecretGroup(why, names, links_in_folders)


# Below every home folder.
HOME: tuple[SecretGroup, ...] = (
    _group(
        "private keys, and authorized_keys lets others in",
        ".ssh/ .putty/ .tsh/ .config/step/",
        links_in_folders=True,
    ),
    _group(
        "secret keys, and the sockets of their agent",
        ".gnupg/ .config/age/ .config/sops/",
        links_in_folders=True,
    ),
    _group(
        "cloud accounts",
        """.aws/ .azure/ .config/gcloud/ .boto .gsutil/ .config/doctl/ .config/hcloud/ .oci/
        .aliyun/ .tccli/ .config/linode-cli .config/scw/ .config/exoscale/ .config/openstack/
        .ibmcloud/ .bluemix/ .s3cfg .config/s3cfg .mc/ .config/rclone/ .rclone.conf .passwd-s3fs""",
        links_in_folders=True,
    ),
    _group(
        "platforms that deploy what they are told to",
        """.config/gh/ .config/glab-cli/ .config/hub .config/tea/ .netlify/ .config/netlify/
        .vercel/ .local/share/com.vercel.cli/ .fly/ .config/heroku/ .cloudflared/
        .config/.wrangler/ .wrangler/ .config/configstore/ .railway/ .supabase/ .config/stripe/
        .ngrok2/ .config/ngrok/ .config/travis/ .travis/ .circleci/ .config/sentry/ .sentryclirc""",
    ),
    _group(
        "clusters and what administers them",
        """.kube/ .minikube/ .k3d/ .helm/ .config/helm/ .config/argocd/ .talos/
        .terraform.d/ .terraformrc .pulumi/ .vault-token .vault_pass .chef/ .config/nomad/
        .consul/""",
        links_in_folders=True,
    ),
    _group(
        "registry logins, and sockets of container engines: root on the host for each client",
        """.docker/ .dockercfg .config/containers/ .local/share/containers/ .colima/ .lima/ .rd/
        .orbstack/ .config/lxc/ .config/skopeo/""",
    ),
    _group(
        "package registries' tokens; tools open these files unasked",
        """.npmrc .yarnrc .yarnrc.yml .config/npm/ .config/pnpm/rc .bunfig.toml .pypirc
        .config/pip/pip.conf .pip/pip.conf .config/pypoetry/auth.toml
        .local/share/uv/credentials/ .config/hatch/ .condarc .cargo/credentials
        .cargo/credentials.toml .gem/credentials .local/share/gem/credentials .bundle/config
        .composer/auth.json .config/composer/auth.json .m2/settings.xml .m2/settings-security.xml
        .gradle/gradle.properties .ivy2/.credentials .sbt/.credentials
        .nuget/NuGet/NuGet.Config .config/NuGet/ .hex/hex.config .pub-cache/credentials.json
        .config/dart/pub-credentials.json .opam/plugins/opam-publish/
        .cache/huggingface/token .cache/huggingface/stored_tokens .huggingface/token
        .kaggle/ .config/kaggle/""",
    ),
    _group(
        "passwords for hosts; curl, git, ftp and others open these files unasked",
        ".netrc _netrc .authinfo .authinfo.gpg .git-credentials .config/git/credentials .curlrc "
        ".wgetrc .subversion/auth/ .fetchmailrc .msmtprc .config/msmtp/ .mbsyncrc .offlineimaprc "
        ".muttrc .config/neomutt/ .smbcredentials .davfs2/ .config/lftp/ .local/share/lftp/",
    ),
    _group(
        "databases",
        ".pgpass .my.cnf .mylogin.cnf .mongorc.js .mongodb/ .config/redis/ .rediscli .snowsql/ "
        ".config/snowflake/ .databrickscfg .dbt/ .config/dbeaver/ .local/share/DBeaverData/",
    ),
    _group(
        "password stores and keyrings",
        """.password-store/ .local/share/gopass/ .config/gopass/ .local/share/keyrings/
        .gnome2/keyrings/ .local/share/kwalletd/ .kde/share/apps/kwallet/ .config/keepassxc/
        .cache/keepassxc/ .config/Bitwarden/ .config/op/ .op/
        .config/1Password/ .lastpass/ .local/share/lpass/ .config/lpass/ .pki/ .cert/ .krb5/
        .config/Yubico/ .yubico/ .authy/ .config/otpclient/""",
        ".config/Bitwarden CLI/",
        links_in_folders=True,
    ),
    _group("wallets", ".bitcoin/ .ethereum/ .electrum/ .config/solana/ .monero/ .bitmonero/"),
    _group(
        "browser profiles: cookies are logins",
        """.mozilla/ .librewolf/ .waterfox/ .zen/ .config/mozilla/ .config/google-chrome/
        .config/google-chrome-beta/ .config/google-chrome-unstable/ .config/chromium/
        .config/BraveSoftware/ .config/microsoft-edge/ .config/opera/ .config/vivaldi/
        .cache/mozilla/ .cache/google-chrome/ .cache/chromium/ .cache/BraveSoftware/
        .thunderbird/ .local/share/evolution/ .config/evolution/ .local/share/geary/
        .var/app/ snap/""",
    ),
    _group(
        "logins and messages of desktop programs",
        """.config/Slack/ .config/discord/ .config/Signal/ .config/Element/
        .local/share/TelegramDesktop/ .config/teams/ .config/Microsoft/ .zoom/
        .config/weechat/ .weechat/ .irssi/ .purple/
        .config/Postman/ .config/Insomnia/ .local/share/remmina/ .config/remmina/ .config/filezilla/
        .config/goa-1.0/ .local/share/Steam/config/""",
    ),
    _group(
        "settings, logins and transcripts of agents and editors: they run what is written there",
        """.claude/ .claude.json .config/claude/ .config/Claude/ .codex/ .gemini/ .cursor/
        .config/Cursor/ .config/cursor/ .windsurf/ .codeium/ .config/github-copilot/ .copilot/
        .aider.conf.yml .aider/ .continue/ .config/goose/ .local/share/goose/ .config/opencode/
        .local/share/opencode/ .config/crush/ .local/share/crush/ .qwen/ .kiro/ .amazonq/ .roo/
        .factory/ .config/amp/ .config/zed/ .local/share/zed/ .config/Code/ .vscode-server/
        .cursor-server/ .config/VSCodium/ .config/JetBrains/ .local/share/JetBrains/ .codewhale/
        .deepseek/ .wayland-core/ .config/openai/ .openai/ .config/anthropic/ .anthropic/
        .config/io.datasette.llm/ .ollama/id_ed25519 .config/mcp/ .mcp.json .mcp-auth/
        .config/sandboxd/""",
    ),
    _group(
        "what was typed, often with secrets in it",
        """.bash_history .zsh_history .zhistory .histfile .history .sh_history .ksh_history
        .bash_sessions/ .zsh_sessions/ .local/share/fish/fish_history .local/share/atuin/
        .local/share/mcfly/ .local/share/zoxide/ .config/nushell/history.txt
        .config/nushell/history.sqlite3 .python_history .ipython/ .node_repl_history
        .psql_history .mysql_history .sqlite_history .rediscli_history .mongosh/ .irb_history
        .pry_history .lesshst .viminfo .local/state/nvim/shada/ .local/state/bash/history
        .local/state/zsh/history .local/state/python_history .local/share/recently-used.xbel""",
    ),
    _group(
        "tickets for X11, sound and other sessions of the user",
        ".Xauthority .ICEauthority .config/pulse/cookie .pulse-cookie .esd_auth .vnc/ "
        ".config/tigervnc/ .dbus/",
    ),
    _group("VPNs", ".config/wireguard/ .wireguard/ .openvpn/ .config/tailscale/ .cisco/ .nordvpn/"),
)

# Below the root. Most are readable by root only: they count when the daemon runs as root.
SYSTEM: tuple[SecretGroup, ...] = (
    _group(
        "password hashes and who may become root",
        """/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/security/opasswd /etc/sudoers
        /etc/sudoers.d /etc/doas.conf /var/backups""",
    ),
    _group(
        "keys of this machine",
        """/etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key
        /etc/ssh/ssh_host_dsa_key /etc/ssl/private /etc/pki/tls/private /etc/letsencrypt
        /etc/krb5.keytab /etc/credstore /etc/credstore.encrypted
        /var/lib/systemd/credential.secret /var/lib/systemd/random-seed /etc/luks /etc/crypttab
        /etc/pacman.d/gnupg /var/lib/sss /var/lib/samba/private /etc/samba/private""",
    ),
    _group(
        "networks and VPNs",
        """/etc/NetworkManager/system-connections /etc/netplan /etc/wpa_supplicant /etc/wireguard
        /etc/openvpn /etc/ipsec.secrets /etc/ipsec.d/private /etc/swanctl/private
        /etc/ppp/chap-secrets /etc/ppp/pap-secrets /var/lib/NetworkManager /var/lib/iwd
        /var/lib/bluetooth /var/lib/tailscale""",
    ),
    _group(
        "container engines and clusters: their data, and sockets that make root of who connects",
        """/run/docker.sock /var/run/docker.sock /run/docker /run/containerd /run/crio /run/podman
        /run/buildkit /run/user /run/libvirt /run/lxd.socket /var/lib/docker /var/lib/containerd
        /var/lib/containers /var/lib/lxd /var/snap/lxd/common/lxd/unix.socket
        /var/lib/incus/unix.socket /var/lib/kubelet /etc/kubernetes /etc/rancher /var/lib/rancher
        /etc/docker/key.json /run/secrets /var/run/secrets""",
    ),
    _group(
        "the runtime directories: buses, agents, the daemon's own kind of socket",
        """/run/dbus /run/systemd/private /run/systemd/journal/socket /run/snapd.socket
        /run/snapd-snap.socket /run/acpid.socket /run/cups /run/gdm3 /run/lightdm /run/sshd
        /run/screen /run/tmux /run/sudo /run/faillock /run/credentials""",
    ),
    _group(
        "sockets of services that are kept outside /run",
        """/nix/var/nix/daemon-socket /nix/var/nix/gc-socket /var/lib/gssproxy
        /var/lib/nfs/rpc_pipefs /var/lib/libvirt/qemu
        """,
    ),
    _group(
        "the kernel's view of the host: its cgroups, traces, loaded programs and crash dumps",
        "/sys/fs/cgroup /sys/kernel/debug /sys/kernel/tracing /sys/fs/bpf /sys/fs/pstore",
    ),
    _group(
        "jobs that run later as other users, and other users' mail",
        """/var/spool/cron /var/spool/at /var/spool/anacron /var/spool/mail /var/mail
        /var/spool/postfix /var/spool/cups""",
    ),
    _group(
        "logs and first-boot data with secrets in them",
        "/var/log/journal /var/log/audit /var/log/auth.log /var/log/secure /var/log/btmp "
        "/var/lib/cloud /var/log/cloud-init-output.log /var/crash /var/lib/systemd/coredump",
    ),
    _group(
        "databases of the machine",
        "/var/lib/postgresql /var/lib/mysql /var/lib/mongodb /var/lib/redis /var/lib/private",
    ),
)
