// Talks to sandboxd the way an editor does and prints, as one JSON object, what it saw.
// usage: node drive.js SOCKET    (NODE_PATH leads to vscode-jsonrpc)
"use strict";

const net = require("net");
const rpc = require("vscode-jsonrpc/node");

function connect(path) {
  return new Promise((resolve, reject) => {
    const socket = net.createConnection(path);
    socket.once("error", reject);
    socket.once("connect", () => {
      const reader = new rpc.SocketMessageReader(socket);
      const writer = new rpc.SocketMessageWriter(socket);
      resolve({ socket, connection: rpc.createMessageConnection(reader, writer) });
    });
  });
}

const failure = (error) => ({ code: error.code, message: error.message, data: error.data });

// The notifications of one execution in the order of their arrival, and a wait for one of them.
function follow(connection, id) {
  const events = [];
  const waiting = [];
  for (const name of ["started", "output", "denial", "exited"]) {
    connection.onNotification(`execution/${name}`, (params) => {
      if (params.execution_id !== id) return;
      events.push({ name, ...params });
      waiting.filter((w) => w.name === name).forEach((w) => w.resolve());
    });
  }
  const seen = (name) => new Promise((resolve) => waiting.push({ name, resolve }));
  return { events, seen };
}

async function streaming(connection) {
  const { events } = follow(connection, "streamed");
  const script = "echo to stderr >&2; seq 1 20000; printf 'Grüße'";
  const result = await connection.sendRequest("execute", {
    argv: ["sh", "-c", script],
    manifest: { network: "deny" },
    stream: true,
    execution_id: "streamed",
  });
  events.push({ name: "answer" });
  return { events, result };
}

async function cancelling(connection) {
  const { events, seen } = follow(connection, "cancelled");
  const cancel = new rpc.CancellationTokenSource();
  const started = seen("started");
  const answer = connection
    .sendRequest(
      "execute",
      { argv: ["sleep", "600"], stream: true, execution_id: "cancelled" },
      cancel.token,
    )
    .then((result) => ({ result }), (error) => ({ error: failure(error) }));
  await started;
  cancel.cancel();
  return { events, ...(await answer) };
}

async function interactive(connection) {
  const answer = connection.sendRequest("execute", {
    argv: ["cat"],
    stdin_open: true,
    execution_id: "typed",
  });
  // Not awaited before: the execution exists before the next frame is read.
  await connection.sendRequest("execution/write", { execution_id: "typed", data: "typed\n" });
  await connection.sendRequest("execution/close_stdin", { execution_id: "typed" });
  return await answer;
}

async function overtaking(connection) {
  const order = [];
  const slow = connection
    .sendRequest("execute", { argv: ["cat"], stdin_open: true, execution_id: "slow" })
    .then(() => order.push("slow"));
  await connection.sendRequest("execute", { argv: ["true"] }).then(() => order.push("quick"));
  await connection.sendRequest("execution/close_stdin", { execution_id: "slow" });
  await slow;
  return order;
}

async function errors(connection) {
  const asked = {
    exec: ["execute", { argv: ["/no/such/program"] }],
    path: ["execute", { argv: ["true"], manifest: { fs_read_allow: ["relative"] } }],
    field: ["execute", { argv: ["true"], manifest: { netwrk: "deny" } }],
    id: ["execution/cancel", { execution_id: "nobody's" }],
    method: ["no/such/method", {}],
    positional: ["execute", ["true"], 1],
  };
  const seen = {};
  for (const [name, request] of Object.entries(asked)) {
    seen[name] = await connection.sendRequest(...request).then(
      (result) => ({ result }),
      failure,
    );
  }
  return seen;
}

async function main() {
  const { socket, connection } = await connect(process.argv[2]);
  connection.listen();
  const seen = {};
  seen.initialize = await connection.sendRequest("initialize", {
    client: { name: "drive.js", version: "1" },
  });
  seen.status = await connection.sendRequest("status");
  seen.streaming = await streaming(connection);
  seen.cancelling = await cancelling(connection);
  seen.interactive = await interactive(connection);
  seen.overtaking = await overtaking(connection);
  seen.errors = await errors(connection);
  seen.after = await connection.sendRequest("execute", { argv: ["echo", "still here"] });
  connection.dispose();
  socket.destroy();
  process.stdout.write(JSON.stringify(seen));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
