"""What is hidden by default on macOS besides `secrets`: below every home folder, with reasons."""

from __future__ import annotations

from sandboxd.policy.data.secrets import SecretGroup, _group

HOME: tuple[SecretGroup, ...] = (
    _group("keychains: passwords, keys and certificates", "Library/Keychains/"),
    _group(
        "browser profiles: cookies are logins",
        "Library/Cookies/ Library/HTTPStorages/ Library/Safari/ Library/WebKit/",
        "Library/Application Support/Firefox/", "Library/Application Support/Arc/",
        "Library/Application Support/Google/", "Library/Application Support/Chromium/",
        "Library/Application Support/BraveSoftware/", "Library/Application Support/Microsoft Edge/",
        "Library/Application Support/Vivaldi/",
        "Library/Application Support/com.operasoftware.Opera/",
        "Library/Application Support/zen/", "Library/Application Support/LibreWolf/",
    ),
    _group(
        "password managers",
        "",
        "Library/Application Support/1Password/", "Library/Application Support/Bitwarden/",
        "Library/Application Support/KeePassXC/",
    ),
    _group(
        "mail, messages, contacts, calendars and what applications keep for themselves",
        """Library/Mail/ Library/Messages/ Library/Calendars/ Library/Accounts/ Library/Containers/
        Library/IdentityServices/ Library/HomeKit/ Library/Suggestions/ Library/Reminders/
        Library/PersonalizationPortrait/""",
        "Library/Group Containers/", "Library/Application Support/AddressBook/",
        "Library/Application Support/CallHistoryDB/", "Library/Application Support/MobileSync/",
        "Library/Application Support/Knowledge/", "Library/Application Support/com.apple.TCC/",
    ),
    _group("files in clouds", "Library/CloudStorage/", "Library/Mobile Documents/"),
    _group(
        "tokens of editors, chats and container engines; their sockets are root on the machine",
        "",
        "Library/Application Support/Code/User/globalStorage/",
        "Library/Application Support/Cursor/User/globalStorage/",
        "Library/Application Support/Slack/", "Library/Application Support/discord/",
        "Library/Application Support/Docker Desktop/", "Library/Application Support/Postman/",
        "Library/Application Support/gcloud/", "Library/Application Support/io.github.cli/",
    ),
    _group("wallets", "", "Library/Application Support/Bitcoin/", "Library/Ethereum/",
           "Library/Application Support/Exodus/", "Library/Application Support/Ledger Live/"),
    _group("what was typed", ".zsh_sessions/ .bash_sessions/"),
)  # fmt: skip
