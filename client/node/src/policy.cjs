"use strict"

const path = require("node:path")

// Where programs are, who the user is, language, terminal and editor. Nothing that can be a secret.
const USUAL = new Set([
  "PATH", "HOME", "USER", "SHELL", "LANG", "TZ", "TERM", "COLORTERM",
  "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
  "EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR",
  // Where a program that PATH leads to finds the rest of itself.
  "RUSTUP_HOME", "JAVA_HOME", "GOROOT", "PYENV_ROOT", "DOTNET_ROOT",
])

function usual(caller) {
  return Object.fromEntries(Object.entries(caller).filter(([name]) => USUAL.has(name) || name.startsWith("LC_")))
}

/** `timeout` and `env` in the manifest; the caller's usual variables where nothing names others. */
function policyOf({ timeout, env, ...options }) {
  // As for the Python client it is relative to where the program runs; the daemon knows absolute paths only.
  if (typeof options.workspace === "string") options.workspace = path.resolve(options.workspace)
  if (options.sandbox != null && timeout === undefined && env === undefined) return options // it has its own
  const manifest = { ...options.manifest }
  if (timeout !== undefined) manifest.timeout = timeout
  if (manifest.env == null && options.sandbox == null) manifest.env = usual(process.env)
  if (env !== undefined) manifest.env = { ...asObject(manifest.env), ...env }
  return { ...options, manifest }
}

/** A manifest's `env` can be a list of pairs. */
function asObject(env) {
  return Array.isArray(env) ? Object.fromEntries(env) : env
}

module.exports = { policyOf }
