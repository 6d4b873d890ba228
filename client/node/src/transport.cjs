"use strict"

const { execFile } = require("node:child_process")
const fs = require("node:fs")
const net = require("node:net")
const os = require("node:os")
const path = require("node:path")
const { ConnectionLost, InvalidParams, SandboxdError, fromWire } = require("./errors.cjs")

const MAX_FRAME = 16 * 1024 * 1024
const LONE_SURROGATE = /(?<!\\)(?:\\\\)*\\ud[89a-f][0-9a-f]{2}/
const STREAMED = new Set(["started", "output", "denial", "exited"].map((one) => `execution/${one}`))

/** Where the daemon of this user listens. */
function defaultSocket(env = process.env) {
  if (env.SANDBOXD_SOCKET) return env.SANDBOXD_SOCKET
  if (process.platform === "win32") return `\\\\.\\pipe\\sandboxd-${os.userInfo().username}`
  if (env.XDG_RUNTIME_DIR) return path.join(env.XDG_RUNTIME_DIR, "sandboxd", "sandboxd.sock")
  return `/tmp/sandboxd-${process.getuid()}/sandboxd.sock`
}

function notTrusted(message, remedy) {
  return new SandboxdError(message, { kind: "ServerNotTrusted", code: -32099, remedy })
}

/**
 * Another user must not answer in our name: the socket belongs to us, and no other user can replace
 * it in its folder. (Node has no way to ask for the uid of the process that listens; a socket's owner
 * is the user that bound it.)
 */
function checkOwner(socketPath) {
  if (process.platform === "win32") return
  const own = process.getuid()
  const real = fs.realpathSync(socketPath)
  const folder = fs.statSync(path.dirname(real))
  const shared = folder.mode & 0o022 && !(folder.mode & 0o1000)
  if (![own, 0].includes(folder.uid) || shared) {
    throw notTrusted(`the folder of ${real} can be changed by other users`, "make it yours alone (chmod 700)")
  }
  const { uid } = fs.lstatSync(real)
  if (uid !== own) {
    throw notTrusted(`${real} belongs to uid ${uid}, and not to you (${own})`, "start a sandboxd of your own")
  }
}

function connectOnce(socketPath) {
  return new Promise((resolve, reject) => {
    try {
      checkOwner(socketPath)
    } catch (error) {
      reject(error)
      return
    }
    const socket = net.connect(socketPath)
    socket.once("connect", () => {
      socket.removeAllListeners("error")
      resolve(socket)
    })
    socket.once("error", reject)
  })
}

function startDaemon(socketPath) {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, SANDBOXD_SOCKET: socketPath }
    execFile("sandboxctl", ["socket", "--start"], { env }, (error, _out, stderr) => {
      if (!error) resolve()
      else reject(new SandboxdError(`the daemon could not be started: ${stderr || error.message}`, {
        kind: "DaemonNotRunning", remedy: "install sandboxd, then run `sandboxctl status`",
      }))
    })
  })
}

async function connectSocket(socketPath, autostart) {
  try {
    return await connectOnce(socketPath)
  } catch (error) {
    if (!["ENOENT", "ECONNREFUSED"].includes(error.code)) throw error
    if (!autostart) {
      throw new SandboxdError(`no sandboxd listens on ${socketPath}`, {
        kind: "DaemonNotRunning", remedy: "run `sandboxctl status`, or connect with autostart",
      })
    }
    await startDaemon(socketPath)
    return connectOnce(socketPath)
  }
}

/** JSON-RPC over one connection, one message a line. */
class Transport {
  constructor(socket) {
    this._socket = socket
    this._next = 1
    this._waiting = new Map()
    this._listeners = new Map()
    this._unread = new Map()
    this._asked = 0
    this._buffer = []
    this._lost = null
    /** Called with what belongs to no stream: sessions, approvals, budgets, events, progress. */
    this.onNotice = null
    socket.setEncoding("utf8")
    socket.on("data", (text) => this._take(text))
    socket.on("error", (error) => this._end(error.message))
    socket.on("close", () => this._end("the daemon closed the connection"))
  }

  static async open(socketPath, autostart) {
    return new Transport(await connectSocket(socketPath, autostart))
  }

  /**
   * Send a request. `request.id` is its id, `request.answer` the promise of its result. `streams`: the
   * answer comes after output that has to be taken first.
   */
  send(method, params, streams = false) {
    if (this._lost) throw this._lost
    const id = this._next++
    const text = JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n"
    // JSON.stringify escapes surrogates that have no partner; the daemon refuses the whole message.
    if (LONE_SURROGATE.test(text)) {
      throw new InvalidParams("the request has text that is not Unicode", {
        code: -32602, kind: "InvalidParams", remedy: "send a Buffer, or text.toWellFormed()",
      })
    }
    if (Buffer.byteLength(text) > MAX_FRAME) {
      throw new InvalidParams("the request is larger than 16 MiB", {
        code: -32602, kind: "InvalidParams", remedy: "pass large input as stdin of execute, or write it in pieces",
      })
    }
    const answer = new Promise((resolve, reject) => this._waiting.set(id, { resolve, reject, streams }))
    if (!streams) this._asked += 1
    this._socket.write(text)
    this._flow()
    return { id, answer }
  }

  call(method, params = {}) {
    return this.send(method, params).answer
  }

  notify(method, params) {
    if (!this._lost) this._socket.write(JSON.stringify({ jsonrpc: "2.0", method, params }) + "\n")
  }

  /** Notifications whose params have this execution_id. */
  follow(executionId, listener) {
    this._listeners.set(executionId, listener)
  }

  unfollow(executionId) {
    this._listeners.delete(executionId)
  }

  /**
   * How much output of an execution nobody has taken: "some" stops reading, so that the daemon slows the
   * command down, unless a call waits for its answer; "most" stops it in any case.
   */
  holds(executionId, amount) {
    if (amount === this._unread.get(executionId)) return
    if (amount) this._unread.set(executionId, amount)
    else this._unread.delete(executionId)
    this._flow()
  }

  _flow() {
    const amounts = [...this._unread.values()]
    if (amounts.includes("most") || (amounts.length && this._asked === 0)) this._socket.pause()
    else this._socket.resume()
  }

  close() {
    this._end("the client was closed")
    this._socket.destroy()
  }

  _take(text) {
    const lines = text.split("\n")
    this._buffer.push(lines[0])
    for (const rest of lines.slice(1)) {
      const line = this._buffer.join("")
      this._buffer = [rest]
      if (line) this._dispatch(JSON.parse(line))
    }
  }

  _dispatch(message) {
    if (message.method !== undefined) {
      const listener = this._listeners.get(message.params?.execution_id)
      if (listener && message.method !== "execution/progress") listener(message)
      else if (!STREAMED.has(message.method)) this.onNotice?.(message.method, message.params)
      return
    }
    if (message.id === null) {
      // The daemon could not read a request and cannot say which: each call may be that one.
      for (const { reject } of this._waiting.values()) reject(fromWire(message.error))
      this._waiting.clear()
      this._asked = 0
      return
    }
    const waiting = this._waiting.get(message.id)
    this._waiting.delete(message.id)
    if (waiting && !waiting.streams) this._asked -= 1
    this._flow()
    if (message.error) waiting?.reject(fromWire(message.error))
    else waiting?.resolve(message.result)
  }

  _end(reason) {
    if (this._lost) return
    this._lost = new ConnectionLost(reason)
    for (const { reject } of this._waiting.values()) reject(this._lost)
    this._waiting.clear()
    for (const listener of this._listeners.values()) listener({ method: "lost", params: {} })
  }
}

module.exports = { Transport, defaultSocket }
