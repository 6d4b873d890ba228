// The types are generated, and a strict TypeScript program can use them.
import { execFileSync } from "node:child_process"
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { test } from "node:test"
import assert from "node:assert/strict"
import { schema } from "../scripts/draft-07.mjs"

const here = fileURLToPath(new URL("..", import.meta.url))

test("types.d.ts is what openrpc.json says", () => {
  execFileSync("node", ["scripts/generate-types.mjs", "--check"], { cwd: here, stdio: "inherit" })
})

test("a strict program compiles", () => {
  const folder = mkdtempSync(join(tmpdir(), "sandboxd-types-"))
  writeFileSync(join(folder, "main.ts"), `
import { Client, type ExecuteResult } from "${here}src/index"
async function main(): Promise<number | null> {
  const client = await Client.connect()
  const result: ExecuteResult = await client.execute(["true"], { preset: "read-only" })
  for (const denial of result.denials) console.log(denial.kind, denial.message)
  for await (const { text, raw } of client.stream(["true"])) console.log(text.length, raw.byteLength)
  console.log(result.stdout.text.length, result.stderr.raw.byteLength)
  return result.exit_code
}
void main()
`)
  execFileSync("node", [join(here, "node_modules/typescript/bin/tsc"), "--strict", "--noEmit",
    "--target", "es2022", "--module", "nodenext", "--moduleResolution", "nodenext",
    "--typeRoots", join(here, "node_modules/@types"), "--types", "node", join(folder, "main.ts")],
  { cwd: here, stdio: "inherit" })
})

// Fields that hold a part of a manifest or another document: any tool knows them as maps.
const OPEN = /\b(nothing|add|because|remedy|client|data|manifest|missing)\b/i

/** What quicktype makes of the schemas. */
function quicktype(language, ...options) {
  const folder = mkdtempSync(join(tmpdir(), "sandboxd-quicktype-"))
  writeFileSync(join(folder, "schema.json"), JSON.stringify(schema()))
  const out = join(folder, `types.${language}`)
  execFileSync("node", [join(here, "node_modules/quicktype/dist/index.js"), "--src-lang", "schema",
    "--lang", language, "--top-level", "Sandboxd", ...options, "-o", out, join(folder, "schema.json")],
  { cwd: here, stdio: ["ignore", "ignore", "ignore"] })
  return { folder, out, text: readFileSync(out, "utf8") }
}

test("quicktype makes types for Go that compile", () => {
  const { folder, out, text } = quicktype("go", "--package", "sandboxd")
  assert.match(text, /Outcome +Outcome +`json:"outcome"`/)
  assert.match(text, /ExitCode +\*int64 +`json:"exit_code"`/)
  assert.match(text, /Denials +\[\]Denial +`json:"denials"`/)
  const untyped = text.split("\n").filter((line) => /interface\{\}.*json:/.test(line) && !OPEN.test(line))
  assert.deepEqual(untyped, [])
  try {
    execFileSync("go", ["version"], { stdio: "ignore" })
  } catch {
    return // the types were made; no Go is here that could compile them
  }
  execFileSync("go", ["vet", out], { cwd: folder, stdio: "inherit",
    env: { ...process.env, GOCACHE: join(folder, "cache"), GO111MODULE: "off", GOFLAGS: "" } })
})

test("quicktype makes types for Rust", () => {
  const { text } = quicktype("rust")
  assert.match(text, /pub enum Outcome/)
  assert.match(text, /exit_code: Option<i64>,/)
  assert.match(text, /denials: Vec<Denial>,/)
  const untyped = text.split("\n").filter((line) => /^ .*serde_json::Value/.test(line) && !OPEN.test(line))
  assert.deepEqual(untyped, [])
})
