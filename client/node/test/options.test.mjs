// The names of options, which the client compares before it asks the daemon. Needs no daemon.
import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { test } from "node:test"
import { Client, InvalidParams } from "../src/index.mjs"
import options from "../src/options.cjs"
import policy from "../src/policy.cjs"

const { schemas } = JSON.parse(readFileSync(new URL("../../../proto/openrpc.json", import.meta.url))).components
const unreached = new Client({ send: () => assert.fail("a request was sent"), call: () => assert.fail("a request was sent") })
const fields = (name) => Object.keys(schemas[name].properties)
const sorted = (names) => [...names].sort()

test("a misspelt option is refused with the nearest right one and all of them", async () => {
  const near = { timeuot: "timeout", workspce: "workspace", onDenial: "on_denial", evn: "env", input: "stdin" }
  for (const [wrong, right] of Object.entries(near)) {
    const refused = {
      name: "InvalidParams", field: wrong,
      message: new RegExp(`client\\.execute has no option ${wrong} \\(did you mean ${right}\\? its options: preset, .*signal`),
    }
    await assert.rejects(unreached.execute(["true"], { [wrong]: "5" }), refused)
  }
  await assert.rejects(unreached.execute(["true"], { zzz: 1 }), { remedy: /^its options: preset/ })
})

test("every method with options refuses a misspelt one", async () => {
  const refused = { name: "InvalidParams", field: "workspce", remedy: /did you mean workspace\?/ }
  await assert.rejects(unreached.start(["true"], { workspce: "/" }), refused)
  await assert.rejects(unreached.box({ workspce: "/" }), refused)
  await assert.rejects(unreached.check({ workspce: "/" }), refused)
  assert.throws(() => unreached.stream(["true"], { workspce: "/" }), refused)
  assert.throws(() => unreached.attach("ex-1", { sdtin: true }), InvalidParams)
  await assert.rejects(Client.connect({ soket: "/nowhere" }), { field: "soket", remedy: /socket/ })
})

test("a field of the manifest, a flag and a method's name are told apart from options", async () => {
  await assert.rejects(unreached.execute(["true"], { net: "all" }), { remedy: /manifest: { network: … }/ })
  await assert.rejects(unreached.execute(["true"], { max_processes: 9 }), { remedy: /manifest: { max_processes: … }/ })
  await assert.rejects(unreached.execute(["true"], { detach: true }), { remedy: /client\.start/ })
})

test("the names are those of openrpc.json", () => {
  const own = ["timeout", "env"]
  const execute = fields("ExecuteParams").filter((name) => !["argv", "stream", "detach", "fds"].includes(name))
  assert.deepEqual(sorted(options.CLIENT.execute), sorted([...execute, ...own, "signal"]))
  assert.deepEqual(sorted(options.CLIENT.box), sorted([...fields("SandboxCreateParams"), ...own]))
  assert.deepEqual(sorted(options.CLIENT.check), sorted([...fields("CheckParams"), ...own]))
  assert.deepEqual(sorted([...options.MANIFEST, ...own]), sorted(fields("Manifest")))
})

test("a relative workspace is relative to the program's folder", () => {
  assert.equal(policy.policyOf({ workspace: "sub/.." }).workspace, process.cwd())
  assert.equal(policy.policyOf({ workspace: "/abs" }).workspace, "/abs")
})
