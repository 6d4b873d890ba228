"""What runs later outside the sandbox if it is written inside: the names, each with its reason.

Data only. `[protect] add` in the config adds names.

A name is listed if a program runs it, or a program that it names, without being asked for that
file: on entering or opening the folder, at a git commit, at the start of an editor, a debugger or
an agent. A name is not listed, on purpose, if
- it runs when the user asks for it: Makefile, package.json, tests, build.rs, .cargo/config.toml;
- commands write it in their ordinary work: .npmrc, .env, .tool-versions, .direnv (the virtual
  environments of direnv), compile_commands.json;
- a listed file calls it in turn: .lintstagedrc from a git hook, flake.nix from .envrc;
- it is prose that agents read: AGENTS.md, .cursorrules.
"""

from __future__ import annotations

_ENTERED = {
    ".envrc": "direnv runs it on entering the folder",
    ".envrc.local": "an approved .envrc commonly sources it without asking again",
    ".envrc.private": "an approved .envrc commonly sources it without asking again",
    ".autoenv": "autoenv runs it on entering the folder",
    ".autoenv.leave": "autoenv runs it on leaving the folder",
    ".autoenv.zsh": "zsh-autoenv runs it on entering the folder",
    ".autoenv_leave.zsh": "zsh-autoenv runs it on leaving the folder",
    ".shadowenv.d": "shadowenv changes PATH on entering the folder",
    ".rvmrc": "RVM runs it on entering the folder",
    "bin/activate-hermit": "Hermit's shell hooks run it on entering the folder",
    "bin/hermit": "Hermit's shell hooks run it on entering the folder",
    "bin/hermit.hcl": "variables and programs that Hermit puts on PATH on entering the folder",
    **dict.fromkeys(
        (
            "mise.toml", "mise.local.toml", ".mise.toml", ".mise.local.toml", ".mise",
            "mise/config.toml", "mise/config.local.toml", ".config/mise.toml",
            ".config/mise.local.toml", ".config/mise", ".miserc.toml",
        ),
        "hooks and variables that mise applies on entering a trusted folder",
    ),
}  # fmt: skip

_LEFTHOOK = tuple(
    f"{name}{local}.{kind}"
    for name in ("lefthook", ".lefthook", ".config/lefthook")
    for local in ("", "-local")
    for kind in ("yml", "yaml", "toml", "json", "jsonc")
)

_HUSKYRC = (
    *(f".huskyrc{kind}" for kind in ("", ".json", ".yaml", ".yml", ".js", ".cjs")),
    "husky.config.js",
    "husky.config.cjs",
)

_VERSION_CONTROL = {
    ".gitmodules": "git fetches from and checks out where it says",
    ".husky": "git hooks of the project",
    **dict.fromkeys(_HUSKYRC, "commands that old versions of husky run as git hooks"),
    ".trunk": "actions that trunk runs as git hooks",
    ".rusty-hook.toml": "commands that rusty-hook runs as git hooks",
    "captainhook.json": "commands that CaptainHook runs as git hooks",
    **dict.fromkeys(("grumphp.yml", "grumphp.yml.dist"), "commands that GrumPHP runs as git hooks"),
    ".pre-commit-config.yaml": "commands that pre-commit runs at a git commit",
    ".pre-commit-config.yml": "commands that prek runs at a git commit",
    "prek.toml": "commands that prek runs at a git commit",
    **dict.fromkeys(_LEFTHOOK, "commands that lefthook runs as git hooks"),
    ".lefthook": "scripts that lefthook runs as git hooks",
    ".lefthook-local": "scripts that lefthook runs as git hooks",
    ".overcommit.yml": "commands that overcommit runs as git hooks",
    ".git-hooks": "scripts that overcommit runs as git hooks",
    ".hgsub": "hg loads the settings of the repositories that it names",
    ".hg/hgrc": "hooks, aliases and extensions that every hg command runs",
    ".hg/hgrc-not-shared": "as .hg/hgrc",
    ".hg/sharedpath": "where Mercurial looks for the repository and its hgrc",
    ".sl/config": "hooks, aliases and extensions that every sl command runs",
    ".sl/sharedpath": "where Sapling looks for the repository and its config",
    ".jj/repo/config.toml": "aliases, tools and the file monitor that jj runs",
    ".jj/workspace-config.toml": "as .jj/repo/config.toml",
    ".pijul/config": "hooks that pijul runs when it records",
    "_darcs/prefs/defaults": "hooks that darcs commands run",
}

_EDITORS = {
    ".vscode": "tasks that run when the folder is opened; paths of the tools that editors start",
    ".theia": "as .vscode, for Theia",
    ".idea": "run configurations and start-up tasks of JetBrains programs",
    ".fleet": "run configurations of Fleet",
    ".vs": "tasks and launch settings of Visual Studio",
    ".nova": "tasks and extensions of Nova",
    ".lapce": "language servers and tasks of Lapce",
    ".externalToolBuilders": "programs that Eclipse runs at each build of the project",
    ".kateproject": "language servers that Kate starts",
    ".local.vimrc": "localrc.vim runs it when a file is opened",
    ".lvimrc": "localvimrc runs it when a file is opened",
    ".zed": "tasks, and paths of the language servers that Zed starts",
    ".helix": "language servers and formatters that Helix starts",
    ".nvim.lua": "Neovim runs it with 'exrc'",
    ".nvimrc": "Neovim runs it with 'exrc'",
    ".exrc": "vi runs it with 'exrc'",
    ".vimrc": "Vim runs it with 'exrc'",
    ".gvimrc": "gVim runs it with 'exrc'",
    ".vim": "coc-settings.json names language servers that Vim starts",
    ".nvim": "settings of the project that Neovim's plugins run",
    ".lazy.lua": "lazy.nvim runs it at the start of Neovim",
    ".neoconf.json": "language servers that Neovim starts",
    ".luarc.json": "plugins that the Lua language server runs",
    ".luarc.jsonc": "plugins that the Lua language server runs",
    ".ycm_extra_conf.py": "YouCompleteMe runs it when a file is opened",
    ".lite_project.lua": "Lite XL runs it when the folder is opened",
    ".dir-locals.el": "Emacs evaluates it for every file below",
    ".dir-locals-2.el": "Emacs evaluates it for every file below",
    ".devcontainer": "initializeCommand runs on the host",
    ".devcontainer.json": "initializeCommand runs on the host",
}

_STARTED = {
    ".gdbinit": "gdb runs it at its start",
    ".lldbinit": "lldb runs it at its start",
    ".pdbrc": "Python's debugger runs it at its start",
    ".perldb": "Perl's debugger runs it at its start",
    ".Rprofile": "R runs it at its start",
    ".Renviron": "R takes variables from it, such as the profile that it runs",
    ".RData": "R loads it at its start and runs .First",
    **dict.fromkeys(
        (".irbrc", "irb.rc", "_irbrc", "$irbrc", ".config/irb"),
        "Ruby's shell runs it at its start",
    ),
    ".pryrc": "Ruby's Pry runs it at its start",
    ".ghci": "GHCi runs it at its start",
    ".ocamlinit": "OCaml's toplevel runs it at its start",
    ".iex.exs": "Elixir's shell runs it at its start",
    ".octaverc": "Octave runs it at its start",
    "startup.m": "MATLAB runs it at its start",
    ".ripgreprc": "--pre in it names a program that rg runs on every file",
}

# Agents: hooks, servers that they start, permissions that they give themselves.
_AGENTS = {
    ".agents": "skills, hooks and settings that several agents share",
    ".claude": "hooks and permissions of Claude Code",
    ".mcp.json": "programs that agents start as MCP servers",
    ".codex": "settings and MCP servers of Codex",
    ".cursor": "MCP servers and hooks of Cursor",
    ".gemini": "settings and MCP servers of Gemini CLI",
    ".qwen": "settings and MCP servers of Qwen Code",
    ".windsurf": "settings of Windsurf",
    ".continue": "MCP servers of Continue",
    ".continuerc.json": "settings of Continue",
    ".clinerules": "rules and hooks of Cline",
    ".cline": "MCP servers of Cline",
    ".roo": "MCP servers of Roo Code",
    ".kilocode": "MCP servers of Kilo Code",
    ".kiro": "hooks and MCP servers of Kiro",
    ".amazonq": "MCP servers and hooks of Amazon Q",
    ".factory": "hooks and MCP servers of Droid",
    ".augment": "settings and hooks of Augment",
    ".amp": "settings and MCP servers of Amp",
    ".junie": "MCP servers of Junie",
    ".trae": "MCP servers of Trae",
    ".openhands": "set-up scripts and hooks of OpenHands",
    ".vibe": "settings and MCP servers of Mistral Vibe",
    ".pi": "extensions of pi",
    ".copilot": "settings and MCP servers of GitHub Copilot",
    ".github/hooks": "hooks of GitHub Copilot",
    ".opencode": "plugins of opencode",
    "opencode.json": "MCP servers and permissions of opencode",
    "opencode.jsonc": "MCP servers and permissions of opencode",
    ".crush.json": "MCP and language servers of Crush",
    "crush.json": "MCP and language servers of Crush",
    ".aider.conf.yml": "lint and test commands that aider runs",
    ".codewhale": "settings of CodeWhale",
    ".wayland-core": "settings of Wayland",
    ".sandboxd": "settings of sandboxd",
}

# May be there and be worked in, but must not come: a file of this name leads to a repository
# elsewhere, whose settings count.
NOT_NEW = (".jj/repo",)

# What makes a folder a repository of another version control than git, with its program.
OTHER_REPOSITORIES = {".hg": "hg", ".sl": "sl", ".jj": "jj", ".pijul": "pijul", "_darcs": "darcs"}
# What is run from there.
OTHER_EXEC = tuple(
    name for name in _VERSION_CONTROL if name.partition("/")[0] in OTHER_REPOSITORIES
)

# In the workspace's top folder.
WORKSPACE: dict[str, str] = {
    **_ENTERED, **_VERSION_CONTROL, **_EDITORS, **_STARTED, **_AGENTS,
}  # fmt: skip

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
# Everything else that is no daily work of git's (see git_names.py) is kept as it is too.

# The state of operations under way. Their todo lists and options can name programs.
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
