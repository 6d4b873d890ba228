"use strict"

const { randomUUID } = require("node:crypto")
const { readable, withReadableStreams } = require("./output.cjs")

const SOME = 1 << 20
const MOST = 16 << 20
const SMALL = 1024 // what an event costs besides its data

/** A running command. Iterate over it for its output; `result` is the promise of its end. */
class Execution {
  constructor(transport, params, signal) {
    const executionId = params.execution_id ?? `js-${randomUUID()}`
    this._begin(transport, executionId)
    this._follow(transport.send("execute", { ...params, stream: true, execution_id: executionId }, true), signal)
  }

  /** A detached one, followed from what is kept of its output on. */
  static attach(transport, executionId, params, signal) {
    const execution = Object.create(Execution.prototype)
    execution._begin(transport, executionId)
    const attached = transport.send("execution/attach", { execution_id: executionId, ...params })
    const waiting = transport.send("execution/wait", { execution_id: executionId }, true)
    const answer = attached.answer.then(() => waiting.answer).then((result) => execution._untilExited(result))
    waiting.answer.catch(() => {})
    execution._follow({ answer }, signal)
    return execution
  }

  _begin(transport, executionId) {
    this._transport = transport
    this.executionId = executionId
    this._events = []
    this._unread = 0
    this._wake = null
    this._ended = false
    this._dropped = false
    this._seenEnd = false
    this._exited = null
    transport.follow(executionId, (message) => this._push(message))
  }

  _follow(request, signal) {
    const transport = this._transport
    const abort = () => this.cancel().catch(() => {})
    signal?.addEventListener("abort", abort, { once: true })
    this.result = request.answer.then(withReadableStreams).finally(() => {
      signal?.removeEventListener("abort", abort)
      transport.unfollow(this.executionId)
      this._ended = true
      transport.holds(this.executionId, null)
      this._wake?.()
    })
    this.result.catch(() => {}) // a caller that awaits it sees it too
  }

  /** `{ stream, data, text, raw }` for each piece of output; `data` is a Buffer where it is no UTF-8. */
  async *[Symbol.asyncIterator]() {
    while (true) {
      while (this._events.length) {
        const event = this._events.shift()
        this._count(-event.data.length - SMALL)
        yield event
      }
      if (this._ended) break
      await new Promise((resolve) => { this._wake = resolve })
    }
    await this.result
  }

  write(data) {
    const body = typeof data === "string" ? { data } : { base64: Buffer.from(data).toString("base64") }
    return this._transport.call("execution/write", { execution_id: this.executionId, ...body })
  }

  closeStdin() {
    return this._transport.call("execution/close_stdin", { execution_id: this.executionId })
  }

  signal(signal) {
    return this._transport.call("execution/signal", { execution_id: this.executionId, signal })
  }

  cancel() {
    this._dropped = true // what it still prints is little, and must not be in the way of its end
    this._count(0)
    return this._transport.call("execution/cancel", { execution_id: this.executionId })
  }

  /** The same as `cancel`. */
  kill() {
    return this.cancel()
  }

  /** Drop the remaining output, and wait for the result. */
  async wait() {
    for await (const _ of this);
    return this.result
  }

  resize(rows, cols) {
    return this._transport.call("execution/resize", { execution_id: this.executionId, rows, cols })
  }

  _push({ method, params }) {
    if (method === "execution/output") {
      const data = params.encoding === "base64" ? Buffer.from(params.data, "base64") : params.data
      this._events.push(readable({ stream: params.stream, data }))
      this._count(data.length + SMALL)
    }
    this._seenEnd = method === "execution/exited" || method === "lost"
    if (this._seenEnd) this._exited?.()
    this._wake?.()
  }

  /** The result of an attached execution may arrive before its last output. */
  async _untilExited(result) {
    if (!this._seenEnd) await new Promise((resolve) => { this._exited = resolve })
    return result
  }

  _count(size) {
    this._unread += size
    if (this._ended || this._dropped) this._transport.holds(this.executionId, null)
    else this._transport.holds(this.executionId, this._unread > MOST ? "most" : this._unread > SOME ? "some" : null)
  }
}

module.exports = { Execution }
