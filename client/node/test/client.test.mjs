// Against a real daemon: SANDBOXD_SOCKET names its socket, WORKSPACE a folder to work in.
import assert from "node:assert/strict"
import { createRequire } from "node:module"
import { connect as netConnect } from "node:net"
import {
  chmodSync, closeSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, renameSync, statSync,
  symlinkSync, writeFileSync,
} from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import { after, before, test } from "node:test"
import {
  Box, Client, FileError, InvalidParams, ExecFailed, ParseError, SandboxdError, TimeoutExpired, UnsafeLink,
} from "../src/index.mjs"
import transfer from "../src/transfer.cjs"

const workspace = mkdtempSync(join(process.env.WORKSPACE, "node-"))
const sandbox = { preset: "workspace-write", workspace }
let client

before(async () => { client = await Client.connect({ autostart: false }) })
after(() => client.close())

test("a command runs to its end", async () => {
  const result = await client.execute(["echo", "hello"], sandbox)
  assert.equal(result.exit_code, 0)
  assert.equal(result.stdout.data, "hello\n")
})

test("text and raw are those of the Python client", async () => {
  const argv = ["printf", "a\\377"]
  const [result, streamed] = [await client.execute(argv, sandbox), client.stream(argv, sandbox)]
  const events = []
  for await (const event of streamed) events.push(event)
  const detached = await client.start(argv, sandbox)
  for (const output of [result.stdout, ...events, (await client.wait(detached.execution_id)).stdout]) {
    assert.equal(output.text, "a\ufffd")
    assert.deepEqual(output.raw, Buffer.from([97, 255]))
  }
  assert.equal((await streamed.result).stderr.text, "")
  assert.ok(!("text" in JSON.parse(JSON.stringify(result.stdout))), "what was sent is as it was")
})

test("the caller's PATH, and env and timeout, reach the command", async () => {
  const shown = ["sh", "-c", "echo $PATH-$MORE-$SECRET"]
  process.env.SECRET = "kept"
  const usual = await client.execute(shown, { preset: "read-only", env: { MORE: "x" } })
  assert.equal(usual.stdout.data, `${process.env.PATH}-x-\n`)
  const own = await client.execute(shown, { preset: "read-only", manifest: { env: { PATH: "/bin" } }, env: { MORE: "y" } })
  assert.equal(own.stdout.data, "/bin-y-\n")
  const late = await client.execute(["sleep", "60"], { preset: "read-only", timeout: "100ms" })
  assert.equal(late.outcome, "timeout")
})

test("output comes while the command runs", async () => {
  const execution = client.stream(["sh", "-c", "echo one; echo two >&2; read x; echo $x"], {
    ...sandbox, stdin_open: true,
  })
  let out = ""
  for await (const { stream, data } of execution) {
    if (stream !== "stdout") continue
    out += data
    if (out === "one\n") await execution.write("typed\n")
  }
  assert.equal(out, "one\ntyped\n")
  assert.equal((await execution.result).exit_code, 0)
})

test("a slow reader loses nothing", async () => {
  let bytes = 0
  for await (const { data } of client.stream(["sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x"], sandbox)) {
    bytes += data.length
    if (bytes % 7 === 0) await new Promise((resolve) => setImmediate(resolve))
  }
  assert.equal(bytes, 20000000)
})

test("output that is not read is in the way of no call", { timeout: 60000 }, async () => {
  const other = await Client.connect({ autostart: false })
  const box = await other.box(sandbox)
  await box.write("note", "here")
  const running = box.start("yes")
  const seen = running[Symbol.asyncIterator]()
  await seen.next()
  for (let before = -1; running._events.length > before;) { // until the client has stopped reading
    before = running._events.length
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  assert.equal(await box.readText("note"), "here")
  await running.kill()
  assert.equal((await running.result).outcome, "cancelled")
  other.close()
})

test("an aborted signal ends the command", async () => {
  const controller = new AbortController()
  const running = client.execute(["sleep", "60"], { ...sandbox, signal: controller.signal })
  setTimeout(() => controller.abort(), 200)
  assert.equal((await running).outcome, "cancelled")
  await assert.rejects(client.execute(["true"], { signal: controller.signal }), { name: "AbortError" })
})

test("errors are classes with a remedy", async () => {
  await assert.rejects(client.execute(["no-such-program-here"], sandbox), ExecFailed)
  await assert.rejects(client.execute([]), (error) => {
    assert.ok(error instanceof InvalidParams && error instanceof SandboxdError)
    assert.equal(error.field, "argv")
    assert.match(error.message, /sh/)
    return true
  })
})

test("a request above the limit is refused before it is sent", async () => {
  await assert.rejects(client.execute(["true", "x".repeat(17 << 20)]), InvalidParams)
  assert.equal((await client.execute(["true"], sandbox)).exit_code, 0)
})

test("text that is not Unicode is refused before it is sent", async () => {
  for (const text of ["\ud800", "a\udfff", "\\\\\ud900"]) {
    await assert.rejects(client.execute(["echo", text]), InvalidParams)
  }
  const fine = "\\ud800 \u{1f600} \\\\ud800"
  assert.equal((await client.execute(["printf", "%s", fine], sandbox)).stdout.data, fine)
})

test("a large input is streamed", async () => {
  const large = Buffer.alloc(17 << 20, 7)
  const counted = await client.execute(["wc", "-c"], { ...sandbox, stdin: large })
  assert.equal(counted.stdout.data.trim(), String(large.length))
  const some = large.subarray(0, 2 << 20)
  const early = await client.execute(["sh", "-c", "exit 3"], { ...sandbox, stdin: some })
  assert.equal(early.exit_code, 3)
  await assert.rejects(client.execute(["no-such-program-here"], { ...sandbox, stdin: some }), ExecFailed)
  const box = await client.box(sandbox)
  assert.equal((await box.run("wc -c", { stdin: some })).stdout.data.trim(), String(some.length))
  await box.close()
  let out = ""
  for await (const { data } of client.stream(["wc", "-c"], { ...sandbox, stdin: some })) out += data
  assert.equal(out.trim(), String(some.length))
})

test("an error without id fails every waiting call", async () => {
  const place = join(mkdtempSync(join(process.env.WORKSPACE, "null-")), "s")
  const server = createServer((socket) => {
    let lines = 0
    socket.on("data", (data) => {
      lines += String(data).split("\n").length - 1
      if (lines === 2) socket.write('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no","data":{"kind":"ParseError"}}}\n')
    })
  })
  await new Promise((resolve) => server.listen(place, resolve))
  const other = await Client.connect({ socket: place, autostart: false })
  const answers = await Promise.allSettled([other.status(), other.status()])
  assert.ok(answers.every(({ reason }) => reason instanceof ParseError))
  other.close()
  server.close()
})

test("a socket in a folder that others can change is not trusted", async () => {
  const folder = mkdtempSync(join(process.env.WORKSPACE, "open-"))
  const server = createServer(() => {})
  await new Promise((resolve) => server.listen(join(folder, "s"), resolve))
  chmodSync(folder, 0o777)
  await assert.rejects(Client.connect({ socket: join(folder, "s"), autostart: false }), { kind: "ServerNotTrusted" })
  chmodSync(folder, 0o700)
  const control = await Client.connect({ socket: join(folder, "s"), autostart: false })
  control.close()
  server.close()
})

test("folders go up and down", async () => {
  const box = await client.box(sandbox)
  const source = mkdtempSync(join(process.env.WORKSPACE, "source-"))
  mkdirSync(join(source, "sub"))
  writeFileSync(join(source, "sub", "program"), "#!/bin/sh\necho ran\n", { mode: 0o755 })
  symlinkSync("../sub/program", join(source, "sub", "up"))
  writeFileSync(join(source, "large"), Buffer.alloc(5 << 20, 1), { mode: 0o444 })
  const seen = []
  await box.upload(source, "copy", { progress: (...now) => seen.push(now) })
  assert.deepEqual(seen[0], [0, seen[0][1]])
  assert.deepEqual(seen.at(-1), [seen[0][1], seen[0][1]])
  assert.equal((await box.run("copy/sub/up")).stdout.data, "ran\n")
  const target = join(source, "..", `${source}-back`)
  await box.download("copy", target)
  assert.equal(statSync(join(target, "sub", "program")).mode & 0o7777, 0o755)
  assert.equal(readlinkSync(join(target, "sub", "up")), "../sub/program")
  assert.equal(readFileSync(join(target, "large")).length, 5 << 20)
  for (const link of ["/etc/passwd", "../..", "sub/../../x"]) {
    await box.run(["ln", "-sfn", link, "copy/out"])
    await assert.rejects(box.download("copy", `${target}-out`), UnsafeLink)
    assert.ok(!existsSync(`${target}-out`))
  }
  await box.download("copy", `${target}-out`, { links: "skip" })
  assert.ok(!existsSync(join(`${target}-out`, "out")))
  await box.close()
})

test("what a mask hides is an error, and left out of a download", async () => {
  const workspace = mkdtempSync(join(process.env.WORKSPACE, "masked-"))
  for (const name of ["token", "plain"]) writeFileSync(join(workspace, name), "CANARY")
  const box = await client.box({ ...sandbox, workspace, manifest: { fs_deny: [join(workspace, "token")] } })
  await assert.rejects(box.read("token"), /is masked/)
  const target = `${workspace}-back`
  mkdirSync(target)
  writeFileSync(join(target, "token"), "mine")
  await box.download(".", target)
  await assert.rejects(box.download("token", join(target, "token")), /is masked/)
  assert.equal(readFileSync(join(target, "token"), "utf8"), "mine")
  assert.equal(readFileSync(join(target, "plain"), "utf8"), "CANARY")
  await box.close()
})

test("nothing is read or written through a link that takes a folder's place", { skip: process.platform !== "linux" }, async () => {
  const place = mkdtempSync(join(process.env.WORKSPACE, "links-"))
  const [folder, outside] = [join(place, "folder"), join(place, "outside")]
  mkdirSync(join(folder, "sub"), { recursive: true })
  mkdirSync(outside)
  writeFileSync(join(outside, "file"), "original")
  const first = async (root, name) => (await transfer.pieces(root, name).next()).value.data.toString()
  await transfer.pinned(folder, async (root) => {
    renameSync(join(folder, "sub"), join(place, "old-sub"))
    symlinkSync(outside, join(folder, "sub"))
    for (const work of [() => transfer.create(root, "sub/file", 0o644), () => transfer.makeFolder(root, "sub/new"),
      () => transfer.makeLink(root, "sub/link", "x"), () => first(root, "sub/file")]) {
      await assert.rejects(async () => work(), /ELOOP|ENOTDIR/)
    }
    renameSync(folder, join(place, "moved"))
    symlinkSync(outside, folder)
    closeSync(transfer.create(root, "file", 0o644))
    assert.equal(await first(root, "file"), "")
  })
  assert.deepEqual(readdirSync(outside), ["file"])
  await transfer.pinned(folder, async (root) => assert.equal(await first(root, "file"), "original")) // the control
})

test("a detached command is attached to", async () => {
  const { execution_id } = await client.start(["sh", "-c", "echo one; read x; echo $x"], { ...sandbox, stdin_open: true })
  const other = await Client.connect({ autostart: false })
  const running = other.attach(execution_id, { stdin: true })
  let out = ""
  for await (const { data } of running) {
    out += data
    if (out === "one\n") await running.write("two\n")
  }
  assert.equal(out, "one\ntwo\n")
  assert.equal((await running.result).exit_code, 0)
  await assert.rejects(other.attach("no-such-id").result, { kind: "NotFound" })
  other.close()
})

test("a box ends with its connection", async () => {
  const other = await Client.connect({ autostart: false })
  const before = (await client.status()).sandboxes.persistent
  await other.box(sandbox)
  assert.equal((await client.status()).sandboxes.persistent, before + 1)
  other.close()
  while ((await client.status()).sandboxes.persistent > before) await new Promise((resolve) => setTimeout(resolve, 20))
})

test("a box has the names of the Python Box", () => {
  const names = ["run", "start", "read", "write", "list", "stat", "mkdir", "remove", "rename", "copy",
    "realpath", "upload", "download", "forward", "unforward", "close"]
  for (const name of names) assert.equal(typeof Box.prototype[name], "function", name)
  assert.equal(typeof Box.attach, "function")
})

test("a box has commands, files and ports", async () => {
  const box = await client.box(sandbox)
  await box.write("dir/file.txt", "content")
  assert.equal(await box.readText("dir/file.txt"), "content")
  assert.equal((await box.run("cat dir/file.txt")).stdout.data, "content")
  assert.equal((await box.run(["sh", "-c", "echo $A"], { env: { A: "1" } })).stdout.data, "1\n")
  assert.deepEqual((await box.list("dir")).map((entry) => entry.name), ["file.txt"])
  assert.equal((await box.stat("dir")).type, "dir")
  await assert.rejects(box.read("missing"), (error) => error instanceof FileError && error.facts.errno === "ENOENT")
  await assert.rejects(box.run("sleep 60", { timeout: 0.3 }), TimeoutExpired)
  await assert.rejects(box.run("sleep 60", { timeout: 0.3 }), /after 0.3 s; timeout gives it another/)
  const merged = await box.run("echo a; echo b >&2; echo c", { merge: true })
  assert.equal(merged.stdout.data, "a\nb\nc\n")
  const large = Buffer.alloc(9 << 20, 7)
  await box.write("large", large)
  assert.ok((await box.read("large")).equals(large))
  assert.equal(Box.attach(client, box.sandbox).sandbox, box.sandbox)
  await box.destroy()
})

test("a server inside is reached", async () => {
  const box = await client.box(sandbox)
  const server = box.start(["node", "-e",
    "require('net').createServer((s) => s.end('pong')).listen(8300, '127.0.0.1', () => console.log('ready'))"])
  for await (const { data } of server) if (String(data).includes("ready")) break
  const { endpoint } = await box.forward(8300)
  const answer = await new Promise((resolve, reject) => {
    let text = ""
    netConnect(endpoint).on("data", (data) => { text += data }).on("end", () => resolve(text)).on("error", reject)
  })
  assert.equal(answer, "pong")
  await server.cancel()
  await box.destroy()
})

test("the package works with require too", () => {
  const required = createRequire(import.meta.url)("../src/index.cjs")
  assert.equal(required.Client, Client)
})

test("every waiting call fails when the connection ends", async () => {
  const other = await Client.connect({ autostart: false })
  const running = other.execute(["sleep", "60"], sandbox)
  setTimeout(() => other.close(), 100)
  await assert.rejects(running, { kind: "ConnectionLost" })
})

test("SANDBOXD_SESSION without a token is an error", async () => {
  process.env.SANDBOXD_SESSION = "se-1"
  try {
    await assert.rejects(Client.connect({ autostart: false }), { kind: "InvalidParams", field: "SANDBOXD_SESSION" })
  } finally {
    delete process.env.SANDBOXD_SESSION
  }
})

test("notifications of its session reach a client, and SANDBOXD_SESSION names that", async () => {
  const opened = await client.call("session/open", { budget: { max_tokens_in: 10 } })
  process.env.SANDBOXD_SESSION = `${opened.session}:${opened.token}`
  const mate = await Client.connect({ autostart: false })
  delete process.env.SANDBOXD_SESSION
  try {
    const told = new Promise((resolve) => mate.onNotice((method, params) => resolve({ method, params })))
    await client.call("session/charge", { tokens_in: 9 })
    const { method, params } = await told
    assert.equal(method, "budget/warning")
    assert.equal(params.session, opened.session)
  } finally {
    mate.close()
  }
})

test("a Box refuses unknown options", async () => {
  const box = Box.attach(client, "never-reached")
  const refused = { name: "InvalidParams", field: "tiemout", message: /box\.run has no option tiemout/, remedy: /timeout/ }
  await assert.rejects(box.run("true", { tiemout: 1 }), refused)
  assert.throws(() => box.start("true", { tiemout: 1 }), InvalidParams)
  await assert.rejects(box.forward(8000, { tcp: true }), { field: "tcp", remedy: /listen/ })
  await assert.rejects(box.write("a", "b", { mod: 0o600 }), { field: "mod" })
  await assert.rejects(box.list(".", { recursiv: true }), { field: "recursiv" })
})
