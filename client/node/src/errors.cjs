"use strict"

/** An error answer of the daemon: `kind`, `field` and `remedy` say what to do. */
class SandboxdError extends Error {
  constructor(message, { code = -32603, kind = "InternalError", field, remedy, ...facts } = {}) {
    super(remedy ? `${message} (${remedy})` : message)
    this.name = kind
    this.code = code
    this.kind = kind
    this.field = field
    this.remedy = remedy
    this.facts = facts
  }
}

const KINDS = [
  "ParseError", "InvalidRequest", "MethodNotFound", "InvalidParams", "ManifestInvalid",
  "InternalError", "SandboxUnavailable", "PolicyNotSupported", "PathDenied", "ExecFailed",
  "NotFound", "Unauthorized", "BudgetExceeded", "ApprovalDenied", "Busy", "ShuttingDown",
  "CeilingExceeded", "ApprovalPending", "Conflict", "FileError",
]
const classes = { SandboxdError }
for (const kind of KINDS) {
  classes[kind] = { [kind]: class extends SandboxdError {} }[kind]
}

/** The connection ended before the answer came. */
class ConnectionLost extends SandboxdError {
  constructor(message) {
    super(message, { kind: "ConnectionLost" })
  }
}

/** A command in a Box ran longer than its timeout; `result` has its partial output. */
class TimeoutExpired extends Error {
  constructor(result) {
    const denial = result.denials.find(({ kind }) => kind === "timeout")
    const why = denial?.message ?? "the command was ended by its timeout"
    super(`${why}; timeout gives it another (seconds, "5m" or "none")`)
    this.name = "TimeoutExpired"
    this.result = result
  }
}

/** A symlink that leads out of the folder that is copied. */
class UnsafeLink extends Error {
  constructor(message) {
    super(message)
    this.name = "UnsafeLink"
  }
}

/** The class of an error answer, by its kind. */
function fromWire({ code, message, data }) {
  const kind = data?.kind ?? "InternalError"
  const known = Object.hasOwn(classes, kind) ? classes[kind] : SandboxdError
  return new known(message, { code, ...data, kind })
}

module.exports = { ...classes, ConnectionLost, TimeoutExpired, UnsafeLink, fromWire }
