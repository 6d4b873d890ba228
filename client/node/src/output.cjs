"use strict"

const ACCESSORS = {
  raw: {
    get() {
      if (typeof this.data !== "string") return this.data
      return Buffer.from(this.data, this.encoding === "base64" ? "base64" : "utf8")
    },
  },
  text: { get() { return this.raw.toString("utf8") } },
}

/** With `text` and `raw`, as in the Python client. They are no fields: JSON and copies are as sent. */
function readable(output) {
  return Object.defineProperties(output, ACCESSORS)
}

/** The result of a command, whose streams are `readable`. */
function withReadableStreams(result) {
  for (const output of [result.stdout, result.stderr]) if (output) readable(output)
  return result
}

module.exports = { readable, withReadableStreams }
