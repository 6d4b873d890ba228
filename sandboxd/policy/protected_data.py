"""What runs later outside the sandbox if it is written inside: the names, each with its reason.

Data only. `[protect] add` in the config adds names. Not listed, on purpose: files that run when
somebody asks for it (Makefile, package.json, tests), and prose that agents read (AGENTS.md).
"""

from __future__ import annotations

# In the workspace's top folder.
WORKSPACE: dict[str, str] = {
    ".gitmodules": "git fetches from and checks out where it says",
    ".envrc": "direnv runs it on entering the folder",
    ".autoenv": "autoenv runs it on entering the folder",
    ".autoenv.zsh": "zsh-autoenv runs it on entering the folder",
    ".vscode": "tasks that run when the folder is opened; paths of the tools that editors start",
    ".idea": "run configurations and start-up tasks of JetBrains programs",
    ".fleet": "run configurations of Fleet",
    ".zed": "tasks, and paths of the language servers that Zed starts",
    ".nvim.lua": "Neovim runs it with 'exrc'",
    ".nvimrc": "Neovim runs it with 'exrc'",
    ".exrc": "vi runs it with 'exrc'",
    ".vimrc": "Vim runs it with 'exrc'",
    ".dir-locals.el": "Emacs evaluates it for every file below",
    ".dir-locals-2.el": "Emacs evaluates it for every file below",
    ".husky": "git hooks of the project",
    ".devcontainer": "initializeCommand runs on the host",
    ".devcontainer.json": "initializeCommand runs on the host",
    ".gdbinit": "gdb runs it at its start",
    ".lldbinit": "lldb runs it at its start",
    ".pdbrc": "Python's debugger runs it at its start",
    # Agents: hooks, servers that they start, permissions that they give themselves.
    ".claude": "hooks and permissions of Claude Code",
    ".mcp.json": "programs that agents start as MCP servers",
    ".codex": "settings and MCP servers of Codex",
    ".cursor": "MCP servers and hooks of Cursor",
    ".gemini": "settings and MCP servers of Gemini CLI",
    ".qwen": "settings and MCP servers of Qwen Code",
    ".windsurf": "settings of Windsurf",
    ".continue": "MCP servers of Continue",
    ".roo": "MCP servers of Roo Code",
    ".kiro": "hooks and MCP servers of Kiro",
    ".amazonq": "MCP servers and hooks of Amazon Q",
    ".factory": "hooks and MCP servers of Droid",
    ".opencode": "plugins of opencode",
    "opencode.json": "MCP servers and permissions of opencode",
    "opencode.jsonc": "MCP servers and permissions of opencode",
    ".crush.json": "MCP and language servers of Crush",
    "crush.json": "MCP and language servers of Crush",
    ".aider.conf.yml": "lint and test commands that aider runs",
    ".codewhale": "settings of CodeWhale",
    ".wayland-core": "settings of Wayland",
    ".sandboxd": "ours",
}

# In a home folder, when the workspace is one or contains one.
HOME: dict[str, str] = {
    **dict.fromkeys(
        (
            ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
            ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".zsh",
            ".oh-my-zsh", ".cshrc", ".tcshrc", ".login", ".logout", ".kshrc", ".mkshrc",
            ".config/fish", ".config/nushell", ".config/bash", ".config/zsh", ".inputrc",
            ".config/direnv", ".config/starship.toml",
        ),
        "shells run it at their start",
    ),
    **dict.fromkeys(
        (
            ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".xserverrc",
            ".pam_environment", ".config/environment.d", ".config/autostart",
            ".config/autostart-scripts", ".config/systemd", ".local/share/systemd",
            ".config/plasma-workspace", ".config/i3", ".config/sway", ".config/hypr",
            ".local/share/applications", ".local/share/dbus-1", ".config/upstart",
        ),
        "runs at login or with the desktop",
    ),
    **dict.fromkeys(
        (
            ".local/bin", "bin", ".bin", ".cargo/bin", "go/bin", ".local/lib", ".local/pipx",
            ".local/share/pipx", ".local/share/uv", ".local/share/mise", ".pyenv", ".nvm",
            ".volta", ".asdf", ".rustup", ".bun", ".deno", ".sdkman", ".rbenv", ".nodenv",
        ),
        "on people's PATH, or imported by every start of an interpreter",
    ),
    **dict.fromkeys(
        (".gitconfig", ".config/git", ".hgrc", ".config/hg", ".config/jj", ".jjconfig.toml"),
        "version control runs commands that it names",
    ),
    **dict.fromkeys(
        (
            ".ssh", ".gnupg", ".npmrc", ".config/pip", ".pip", ".pydistutils.cfg",
            ".config/uv", ".cargo/config", ".cargo/config.toml", ".gemrc", ".gradle/init.d",
            ".gradle/init.gradle", ".m2/settings.xml", ".docker", ".kube", ".aws/config",
            ".terraformrc", ".curlrc", ".wgetrc",
        ),
        "names programs to run, where to fetch code, or who may log in",
    ),
    **dict.fromkeys(
        (
            ".config/nvim", ".vim", ".gvimrc", ".emacs", ".emacs.d", ".config/emacs",
            ".config/Code", ".config/VSCodium", ".vscode-server", ".config/zed", ".tmux.conf",
            ".config/tmux", ".screenrc", ".pythonrc", ".pythonstartup", ".ipython", ".irbrc",
            ".pryrc", ".psqlrc", ".sqliterc", ".Rprofile", ".lesskey", ".lessfilter", ".mailcap",
            ".config/htop", ".config/lf", ".config/ranger", ".claude.json",
        ),
        "programs of the user run what it says",
    ),
}  # fmt: skip

# In a git dir. Each has been used to run code at the next git command of the user.
GIT_DIR: dict[str, str] = {
    "hooks": "git runs them",
    "config": "core.fsmonitor, core.sshCommand, aliases, filters: commands that git runs",
    "config.worktree": "as config",
    "commondir": "where config and hooks are looked for",
}
# Looked at and left writable, because git runs nothing that they name by themselves:
# info/attributes (chooses among filters that a protected config defines, as .gitattributes does),
# info/exclude, info/sparse-checkout, objects/info/alternates (objects are data), HEAD, index, refs.

# Their todo lists hold `exec` lines; git makes and removes them while it rebases.
REBASE_STATE = ("rebase-merge", "rebase-apply", "sequencer")

# Names that git calls in a hooks folder, for a core.hooksPath that is too wide to be read-only.
HOOKS = (
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit",
    "prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "post-checkout",
    "post-merge", "pre-push", "pre-receive", "update", "proc-receive", "post-receive",
    "post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc", "post-rewrite",
    "sendemail-validate", "fsmonitor-watchman", "p4-changelist", "p4-prepare-changelist",
    "p4-post-changelist", "p4-pre-submit", "post-index-change",
)  # fmt: skip
