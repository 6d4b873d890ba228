"""Python, node, npm and curl."""

from __future__ import annotations

from strict.program import program

PYTHON_CODE = """
import asyncio, concurrent.futures, ctypes, hashlib, mmap, multiprocessing, os, signal, socket
import sqlite3, ssl, subprocess, sys, tempfile, threading, time

with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print("threads", sum(pool.map(len, ["ab"] * 8)))
print("subprocess", subprocess.run(["sh", "-c", "exit 7"]).returncode)

database = sqlite3.connect("data.db")
database.execute("pragma journal_mode=wal")
with database:
    database.execute("create table t (n)")
    database.executemany("insert into t values (?)", [(n,) for n in range(10)])
print("sqlite", *database.execute("select sum(n) from t").fetchone())


def context(side):
    made = ssl.SSLContext(side)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers("aNULL:@SECLEVEL=0")  # anonymous: no certificate to expire
    return made


here, there = socket.socketpair()


def serve():
    with context(ssl.PROTOCOL_TLS_SERVER).wrap_socket(there, server_side=True) as stream:
        stream.sendall(stream.recv(16)[::-1])


thread = threading.Thread(target=serve)
thread.start()
with context(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(here) as stream:
    stream.sendall(b"tls")
    print("ssl", stream.recv(16).decode())
thread.join()


def child(queue):
    queue.put(os.getpid() != os.getppid())


if hasattr(os, "memfd_create"):
    os.close(os.memfd_create("m"))
queue = multiprocessing.Queue()
process = multiprocessing.Process(target=child, args=(queue,))
process.start()
print("multiprocessing", queue.get())
process.join()


async def main():
    process = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()


print("asyncio", asyncio.run(main()))
with tempfile.TemporaryFile() as file:
    file.truncate(4096)
    with mmap.mmap(file.fileno(), 4096) as view:
        view[:2] = b"mm"
        print("mmap", view[:2].decode())
os.sched_getaffinity(0)
os.getloadavg()
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
time.sleep(0.05)
"""

NODE_CODE = """
const { Worker, isMainThread, parentPort } = require("worker_threads");
if (!isMainThread) {
  parentPort.postMessage(6 * 7);
} else {
  const fs = require("fs");
  const http = require("http");
  const { execFileSync, fork } = require("child_process");
  (async () => {
    fs.writeFileSync("f", "text");
    console.log("promises", await fs.promises.readFile("f", "utf8"));
    console.log("worker", await new Promise((done) => new Worker(__filename).on("message", done)));
    console.log("child", execFileSync("echo", ["hi"]).toString().trim());
    console.log("crypto", require("crypto").scryptSync("a", "b", 4).length);
    require("os").networkInterfaces();
    require("os").cpus();
    const watcher = fs.watch(".", () => {});
    watcher.close();
    const server = http.createServer((request, response) => response.end("served"));
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    const answer = await fetch(`http://127.0.0.1:${server.address().port}/`);
    console.log("http", await answer.text());
    server.closeAllConnections();
    server.close();
    const wasm = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]);
    console.log("wasm", (await WebAssembly.instantiate(wasm)).module !== undefined);
  })();
}
"""

RUNTIMES = (
    program(
        "python3",
        "python3",
        "python3 program.py; python3 -m venv --without-pip env; env/bin/python -c 'print(1 + 1)'",
        """
        threads 16
        subprocess 7
        sqlite 45
        ssl slt
        multiprocessing True
        asyncio hi
        mmap mm
        alarm
        2
        """,
        files={"program.py": PYTHON_CODE},
    ),
    program(
        "node",
        "nodejs",
        "node program.js",
        """
        promises text
        worker 42
        child hi
        crypto 4
        http served
        wasm true
        """,
        files={"program.js": NODE_CODE},
        network=True,
    ),
    program(
        "npm",
        "nodejs npm",
        """
        export npm_config_update_notifier=false npm_config_fund=false npm_config_audit=false
        (cd dependency && npm pack --silent --pack-destination ..)
        cd project; npm install --offline --silent ../dependency-1.0.0.tgz
        npm install --offline --silent ../linked; npm run --silent start; npm ls --parseable | wc -l
        """,
        """
        dependency-1.0.0.tgz
        from the tarball
        from the folder
        3
        """,
        needs="node npm",
        files={
            "dependency/package.json": """
            {"name": "dependency", "version": "1.0.0", "main": "i.js"}
            """,
            "dependency/i.js": "module.exports = 'from the tarball'\n",
            "linked/package.json": """
            {"name": "linked", "version": "1.0.0", "main": "i.js",
             "scripts": {"postinstall": "echo built > built"}}
            """,
            "linked/i.js": "module.exports = 'from the folder'\n",
            "project/package.json": """
            {"name": "project", "version": "1.0.0", "scripts": {"start": "node main.js"}}
            """,
            "project/main.js": """
            console.log(require("dependency"));
            console.log(require("linked"));
            """,
        },
    ),
    program(
        "curl",
        "curl python3",
        """
        echo payload >file
        python3 -c '
        import http.server, socketserver
        with socketserver.TCPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as s:
            open("port.new", "w").write(str(s.server_address[1]))
            __import__("os").rename("port.new", "port")
            s.handle_request(); s.handle_request()
        ' 2>log &
        while [ ! -e port ]; do sleep 0.05; done
        curl -sS "http://127.0.0.1:$(cat port)/file"
        curl -sS -o /dev/null -w '%{http_code}\\n' "http://localhost:$(cat port)/missing"
        wait
        """,
        """
        payload
        404
        """,
        needs="curl python3",
        network=True,
    ),
)
