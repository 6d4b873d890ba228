// Write src/types.d.ts from proto/openrpc.json. `--check` fails when it has drifted.
import { readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { compile } from "json-schema-to-typescript"
import { schema } from "./draft-07.mjs"

const here = fileURLToPath(new URL("..", import.meta.url))
const whole = schema()
for (const one of Object.values(whole.definitions)) {
  one.additionalProperties ??= false
}
const text = await compile(whole, "Schemas", {
  bannerComment: "/* Generated from proto/openrpc.json by `npm run types`. Do not edit. */",
  strictIndexSignatures: true,
  format: false,
})
const target = `${here}/src/types.d.ts`
if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") !== text) {
    console.error("src/types.d.ts has drifted from proto/openrpc.json: run `npm run types`")
    process.exit(1)
  }
} else {
  writeFileSync(target, text)
}
