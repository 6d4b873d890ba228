"use strict"

const fs = require("node:fs")
const path = require("node:path")
const { SandboxdError, TimeoutExpired } = require("./errors.cjs")
const { checkOptions } = require("./options.cjs")
const local = require("./transfer.cjs")

const MOST_ENTRIES = 100000
const MAKE_LINKS = 'while [ $# -gt 0 ]; do ln -sfn -- "$1" "$2" || exit; shift 2; done'

/** A persistent sandbox: commands, files and ports inside it. */
class Box {
  constructor(client, sandbox, made = false) {
    this._client = client
    this._made = made
    this.sandbox = sandbox
  }

  /** Use a sandbox that exists already, by its id or name; it stays when the Box is closed. */
  static attach(client, name) {
    return new Box(client, name)
  }

  /** Run a command to its end; a line runs as `/bin/sh -c` inside. */
  async run(command, { cwd, env, timeout, stdin, merge, signal } = {}) {
    const result = await this._client.execute(argvOf(command), {
      ...this._options({ cwd, env, timeout }),
      ...(stdin === undefined ? {} : { stdin }),
      ...(merge ? { stderr: "stdout" } : {}),
      signal,
    })
    if (result.outcome === "timeout") throw new TimeoutExpired(result)
    return result
  }

  /** Run a command in the background; iterate over it for its output. */
  start(command, { cwd, env, timeout, signal } = {}) {
    return this._client.stream(argvOf(command), {
      ...this._options({ cwd, env, timeout }), stdin_open: true, signal,
    })
  }

  /** The file, or a part of it, as a Buffer. */
  async read(path, { offset = 0, length } = {}) {
    const pieces = []
    await this._each(path, offset, length, async (data) => { pieces.push(data) })
    return Buffer.concat(pieces)
  }

  async readText(path) {
    return (await this.read(path)).toString("utf8")
  }

  /** Replace a file, or append to it; large data goes in pieces. */
  async write(path, data, { mode, append = false } = {}) {
    const bytes = Buffer.from(data)
    for (let at = 0; at === 0 || at < bytes.length; at += local.PIECE) {
      const [first, last] = [at === 0 && !append, at + local.PIECE >= bytes.length]
      await this._writePiece(path, bytes.subarray(at, at + local.PIECE), mode, first, last)
    }
  }

  /** The entries of a folder, by name. Without `limit` an answer that is not whole is an error. */
  async list(path = ".", { recursive = false, limit } = {}) {
    const found = await this._fs("list", { path, recursive, limit: limit ?? MOST_ENTRIES })
    if (found.truncated && limit === undefined) {
      throw new SandboxdError(`${path} has more than ${found.entries.length} entries`, {
        kind: "FileError", code: -32014, remedy: "give a limit, or list its folders", errno: "EOVERFLOW", path,
      })
    }
    return found.entries
  }

  stat(path, { follow = true } = {}) {
    return this._fs("stat", { path, follow })
  }

  mkdir(path, { parents = true } = {}) {
    return this._fs("mkdir", { path, parents })
  }

  remove(path, { recursive = false } = {}) {
    return this._fs("remove", { path, recursive })
  }

  rename(from, to) {
    return this._fs("rename", { from, to })
  }

  copy(from, to, { recursive = false } = {}) {
    return this._fs("copy", { from, to, recursive })
  }

  async realpath(path) {
    return (await this._fs("realpath", { path })).path
  }

  /**
   * A file or a folder of this machine into the sandbox. `progress(done, total)` gets bytes. A link
   * that leads out of the folder is an UnsafeLink, or left out with `links: "skip"`.
   */
  async upload(source, target, { progress, links = "refuse" } = {}) {
    const status = fs.statSync(source)
    if (!status.isDirectory()) {
      const real = fs.realpathSync(source)
      const add = local.counter(progress, status.size)
      return this._uploadFile(path.dirname(real), path.basename(real), target, status.mode & 0o777, add)
    }
    await local.pinned(source, async (root) => {
      const entries = local.scan(root).filter((entry) => local.isKept(entry, links))
      const add = local.counter(progress, entries.reduce((sum, entry) => sum + entry.size, 0))
      await this.mkdir(target)
      for (const { name, type, mode } of entries) {
        const place = path.posix.join(target, name)
        if (type === "dir") await this.mkdir(place)
        else if (type === "file") await this._uploadFile(root, name, place, mode, add)
      }
      await this._makeLinks(target, entries.filter((entry) => entry.type === "symlink"))
    })
  }

  /** A file or a folder of the sandbox to this machine; nothing is written outside `target`. */
  async download(source, target, { progress, links = "refuse" } = {}) {
    const status = await this.stat(source)
    if (status.type !== "dir") {
      fs.mkdirSync(path.dirname(path.resolve(target)), { recursive: true })
      const add = local.counter(progress, status.size)
      return this._downloadFile(source, path.dirname(path.resolve(target)), path.basename(target), status.mode, add)
    }
    const entries = []
    for (const entry of await this._tree(source)) {
      local.checkName(entry.name)
      if (entry.masked) continue // an empty file would take the place of a secret
      if (entry.type === "symlink") {
        entry.target = (await this.stat(path.posix.join(source, entry.name), { follow: false })).target ?? ""
      }
      if (local.isKept(entry, links)) entries.push(entry)
    }
    const files = entries.filter((entry) => entry.type === "file")
    const add = local.counter(progress, files.reduce((sum, entry) => sum + entry.size, 0))
    fs.mkdirSync(target, { recursive: true })
    await local.pinned(target, async (root) => {
      for (const { name, type, mode, target: to } of entries) {
        if (type === "dir") local.makeFolder(root, name)
        else if (type === "file") await this._downloadFile(path.posix.join(source, name), root, name, mode, add)
        else if (type === "symlink") local.makeLink(root, name, to)
      }
    })
  }

  /** Reach a server inside: `{ forward, endpoint }`. */
  forward(port, { listen = "unix" } = {}) {
    return this._client.call("sandbox/forward", { sandbox: this.sandbox, port, listen })
  }

  unforward(forward) {
    return this._client.call("sandbox/unforward", { sandbox: this.sandbox, forward })
  }

  /** End the sandbox, if this Box made it. */
  async close() {
    if (this._made) await this.destroy()
  }

  destroy() {
    return this._client.call("sandbox/destroy", { sandbox: this.sandbox })
  }

  async [Symbol.asyncDispose ?? Symbol.for("nodejs.asyncDispose")]() {
    await this.close()
  }

  async _each(path, offset, length, take) {
    for (let left = length ?? Infinity; left > 0;) {
      const piece = await this._fs("read", { path, offset, length: Math.min(left, local.PIECE) })
      await take(Buffer.from(piece.data, piece.encoding === "base64" ? "base64" : "utf8"))
      offset += piece.bytes
      left = left === Infinity ? piece.size - offset : left - piece.bytes // a file that grows ends, too
      if (piece.eof || piece.bytes === 0) return
    }
  }

  /** Before the last piece the file stays writable, whatever its mode will be. */
  _writePiece(path, data, mode, first, last) {
    if (mode !== undefined && !last) mode |= 0o600
    const base64 = data.toString("base64")
    return this._fs("write", { path, base64, append: !first, ...(mode === undefined ? {} : { mode }) })
  }

  async _uploadFile(root, name, target, mode, add) {
    for await (const { data, first, last } of local.pieces(root, name)) {
      await this._writePiece(target, data, mode, first, last)
      add(data.length)
    }
  }

  /** What has this name here is replaced once the file could be read. */
  async _downloadFile(source, root, name, mode, add) {
    let fd
    try {
      await this._each(source, 0, undefined, async (data) => {
        fd ??= local.create(root, name, mode)
        await local.writeAll(fd, data)
        add(data.length)
      })
    } finally {
      if (fd !== undefined) fs.closeSync(fd)
    }
  }

  /** By a command: there is no method that makes a link. */
  async _makeLinks(target, links) {
    for (let at = 0; at < links.length; at += 500) {
      const words = links.slice(at, at + 500).flatMap((link) => [link.target, path.posix.join(target, link.name)])
      const result = await this.run(["/bin/sh", "-c", MAKE_LINKS, "sh", ...words])
      if (result.exit_code !== 0) throw new Error(`links could not be made: ${result.stderr.data}`)
    }
  }

  /** Everything below a folder; folder by folder where one answer cannot hold it. */
  async _tree(folder) {
    const found = await this._fs("list", { path: folder, recursive: true, limit: MOST_ENTRIES })
    if (!found.truncated) return found.entries
    const entries = []
    for (const entry of await this.list(folder)) {
      entries.push(entry)
      if (entry.type !== "dir" || entry.masked) continue
      const below = await this._tree(path.posix.join(folder, entry.name))
      entries.push(...below.map((one) => ({ ...one, name: `${entry.name}/${one.name}` })))
    }
    return entries
  }

  _fs(operation, params) {
    return this._client.call(`fs/${operation}`, { sandbox: this.sandbox, ...params })
  }

  _options({ cwd, env, timeout }) {
    return { sandbox: this.sandbox, env, timeout, ...(cwd === undefined ? {} : { cwd }) }
  }
}

const OPTIONS = {
  run: ["cwd", "env", "timeout", "stdin", "merge", "signal"], start: ["cwd", "env", "timeout", "signal"],
  read: ["offset", "length"], write: ["mode", "append"], list: ["recursive", "limit"], stat: ["follow"],
  mkdir: ["parents"], remove: ["recursive"], copy: ["recursive"], upload: ["progress", "links"],
  download: ["progress", "links"], forward: ["listen"],
}
for (const [name, known] of Object.entries(OPTIONS)) {
  const method = Box.prototype[name]
  const at = Math.max(method.length, 1) // options come last; the path of `list` has a default
  Box.prototype[name] = function (...args) {
    try {
      checkOptions(`box.${name}`, args[at], known)
    } catch (refused) {
      if (name === "start") throw refused // the others answer with a promise
      return Promise.reject(refused)
    }
    return method.apply(this, args)
  }
}

function argvOf(command) {
  return typeof command === "string" ? ["/bin/sh", "-c", command] : command
}
module.exports = { Box }
