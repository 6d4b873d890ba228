"use strict"

const { randomUUID } = require("node:crypto")
const { Box } = require("./box.cjs")
const { InvalidParams, NotFound } = require("./errors.cjs")
const { Execution } = require("./execution.cjs")
const { CLIENT, checkOptions } = require("./options.cjs")
const { withReadableStreams } = require("./output.cjs")
const { policyOf } = require("./policy.cjs")
const { Transport, defaultSocket } = require("./transport.cjs")

const INPUT_PIECE = 1024 * 1024

/** Input in the request if it is small; `rest` is written after it: a request has a limit. */
function inputOf(stdin) {
  const bytes = Buffer.from(stdin)
  if (bytes.length <= INPUT_PIECE) {
    return { params: { stdin: typeof stdin === "string" ? stdin : { base64: bytes.toString("base64") } } }
  }
  return { params: { stdin_open: true, execution_id: `js-${randomUUID()}` }, rest: bytes }
}

/** `SANDBOXD_SESSION=se-…:TOKEN`: the session that this process belongs to. */
function sessionOfEnvironment() {
  const name = "SANDBOXD_SESSION"
  const given = process.env[name]
  if (!given) return undefined
  const colon = given.indexOf(":")
  const session = given.slice(0, Math.max(colon, 0))
  const token = given.slice(colon + 1)
  if (!session || !token) {
    throw new InvalidParams(`${name} is not a session with its token`, {
      kind: "InvalidParams", field: name, remedy: `give ${name} as se-…:TOKEN, or leave it out`,
    })
  }
  return { session, token }
}

/** One connection to the daemon; it carries any number of requests. */
class Client {
  constructor(transport) {
    this._transport = transport
  }

  /**
   * Connect; the daemon is started when none listens, unless `autostart` is false. The connection
   * belongs to the session that $SANDBOXD_SESSION names, unless `joinSession` is false.
   */
  static async connect(options = {}) {
    checkOptions("Client.connect", options, CLIENT.connect)
    const { socket = defaultSocket(), autostart = true, joinSession = true } = options
    const attach = joinSession ? sessionOfEnvironment() : undefined
    const client = new Client(await Transport.open(socket, autostart))
    if (attach) {
      try {
        await client.call("session/attach", attach)
      } catch (error) {
        client.close()
        throw error
      }
    }
    return client
  }

  /** `listener(method, params)` gets notifications of sessions, approvals, budgets, events and progress. */
  onNotice(listener) {
    this._transport.onNotice = listener
  }

  /** Any method of the protocol, with its params as in openrpc.json. */
  call(method, params = {}) {
    return this._transport.call(method, params)
  }

  /** Run a command to its end. An aborted `signal` ends it: its outcome is then `cancelled`. */
  async execute(argv, given = {}) {
    checkOptions("client.execute", given, CLIENT.execute)
    const { signal, stdin, ...options } = given
    signal?.throwIfAborted()
    const input = stdin === undefined ? { params: {} } : inputOf(stdin)
    const request = this._transport.send("execute", { argv, ...policyOf(options), ...input.params })
    const abort = () => this._transport.notify("$/cancelRequest", { id: request.id })
    signal?.addEventListener("abort", abort, { once: true })
    try {
      if (input.rest) await this._writeInput(input, request)
      return withReadableStreams(await request.answer)
    } finally {
      signal?.removeEventListener("abort", abort)
    }
  }

  /** Until it is written, or the command has ended: the answer says how. */
  async _writeInput({ params: { execution_id }, rest }, request) {
    request.answer.catch(() => {}) // awaited by the caller
    try {
      for (let at = 0; at < rest.length; at += INPUT_PIECE) {
        const base64 = rest.subarray(at, at + INPUT_PIECE).toString("base64")
        await this.call("execution/write", { execution_id, base64 })
      }
      await this.call("execution/close_stdin", { execution_id })
    } catch (error) {
      if (!(error instanceof NotFound || error instanceof InvalidParams)) throw error
    }
  }

  /** Run a command that survives this connection; `attach` and `wait` find it again. */
  async start(argv, options = {}) {
    checkOptions("client.start", options, CLIENT.start)
    return this.call("execute", { argv, ...policyOf(options), detach: true })
  }

  async wait(executionId) {
    return withReadableStreams(await this.call("execution/wait", { execution_id: executionId }))
  }

  /** Follow a detached command: iterate over what it says from now on, and what is kept of before. */
  attach(executionId, options = {}) {
    checkOptions("client.attach", options, CLIENT.attach)
    const { stdin = false, after, signal } = options
    return Execution.attach(this._transport, executionId, { stdin, ...(after ? { after } : {}) }, signal)
  }

  /** Run a command and iterate over its output while it runs. */
  stream(argv, given = {}) {
    checkOptions("client.stream", given, CLIENT.stream)
    const { signal, stdin, ...options } = given
    signal?.throwIfAborted()
    const input = stdin === undefined ? { params: {} } : inputOf(stdin)
    const execution = new Execution(this._transport, { argv, ...policyOf(options), ...input.params }, signal)
    if (input.rest) this._writeInput(input, { answer: execution.result }).catch(() => {}) // the result says it
    return execution
  }

  /** A sandbox that outlives one command. It ends with this connection, unless `scope` says else. */
  async box(options = {}) {
    checkOptions("client.box", options, CLIENT.box)
    const made = await this.call("sandbox/create", { scope: "connection", ...policyOf(options) })
    return new Box(this, made.sandbox, true)
  }

  status() {
    return this.call("status")
  }

  async check(options = {}) {
    checkOptions("client.check", options, CLIENT.check)
    return this.call("manifest/check", policyOf(options))
  }

  close() {
    this._transport.close()
  }

  async [Symbol.asyncDispose ?? Symbol.for("nodejs.asyncDispose")]() {
    this.close()
  }
}

module.exports = { Client }
