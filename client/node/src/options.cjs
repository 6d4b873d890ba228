"use strict"

const { InvalidParams } = require("./errors.cjs")

const POLICY = ["preset", "workspace", "manifest", "timeout", "env"]
const EXECUTE = [
  ...POLICY, "cwd", "stdin", "stdin_open", "stderr", "capture", "pty", "sandbox", "session", "backend", "explain",
  "on_denial", "approval_wait_secs", "execution_id", "signal",
]
/** The options of each method of Client. */
const CLIENT = {
  connect: ["socket", "autostart", "joinSession"],
  execute: EXECUTE,
  stream: EXECUTE,
  start: EXECUTE.filter((name) => name !== "signal"),
  attach: ["stdin", "after", "signal"],
  box: [
    ...POLICY, "backend", "session", "on_denial", "approval_wait_secs", "idle_secs", "name", "scope",
  ],
  check: [...POLICY, "cwd", "backend", "session"],
}
// Names of child_process and others, and what they are called here.
const ELSEWHERE = {
  input: "stdin", maxBuffer: "capture", environment: "env", detached: "detach", command: "argv", killSignal: "signal",
}
const METHODS = { detach: "client.start(argv, …)", stream: "client.stream(argv, …)", argv: "the first argument" }
const MANIFEST = [
  "base", "fs_read_allow", "fs_write_allow", "fs_deny", "network", "image", "syscall_policy", "max_cpu_secs", "max_cpus",
  "max_file_bytes", "max_memory_bytes", "max_output_bytes", "max_processes", "shm_bytes", "tmp_bytes",
]
// Flags of sandboxctl, as fields of the manifest.
const FLAGS = {
  read: "fs_read_allow", write: "fs_write_allow", deny: "fs_deny", net: "network", memory: "max_memory_bytes",
  syscalls: "syscall_policy",
}
const LONGEST = 64 // of a name that is compared

/** Throws InvalidParams for the first option that is not in `known`. `method`: as it is called. */
function checkOptions(method, given, known) {
  const unknown = Object.keys(given ?? {}).find((name) => !known.includes(name))
  if (unknown === undefined) return
  const its = `its options: ${known.join(", ")}`
  const meant = meantBy(unknown, known)
  throw new InvalidParams(`${method} has no option ${unknown}`, {
    kind: "InvalidParams", code: -32602, field: unknown, remedy: meant ? `${meant} ${its}` : its,
  })
}

function meantBy(name, known) {
  const own = (names) => (Object.hasOwn(names, name) ? names[name] : undefined)
  const field = own(FLAGS) ?? name
  if (known.includes("manifest") && MANIFEST.includes(field)) {
    return `it is a field of the manifest: { manifest: { ${field}: … } }.`
  }
  const renamed = own(ELSEWHERE) ?? name
  if (known.includes("stderr") && Object.hasOwn(METHODS, renamed)) return `that is ${METHODS[renamed]}.`
  const near = known.includes(renamed) ? renamed : nearest(name, known)
  return near && `did you mean ${near}?`
}

/** The name that a third of its letters or less, wrong or swapped, tell apart. */
function nearest(name, known) {
  if (name.length > LONGEST) return undefined
  const plain = (text) => text.toLowerCase().replaceAll("_", "")
  const distances = known.map((one) => [distance(plain(name), plain(one)), one])
  const [wrong, near] = distances.reduce((best, one) => (one[0] < best[0] ? one : best))
  return wrong <= Math.max(1, Math.floor(near.length / 3)) ? near : undefined
}

/** Letters to add, drop, replace or swap. */
function distance(a, b) {
  let [before, last] = [[], Array.from({ length: b.length + 1 }, (_, index) => index)]
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      row[j] = Math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1))
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      if (swapped) row[j] = Math.min(row[j], before[j - 2] + 1)
    }
    [before, last] = [last, row]
  }
  return last[b.length]
}

module.exports = { CLIENT, MANIFEST, checkOptions }
