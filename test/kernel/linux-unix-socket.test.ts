import { type ChildProcess, spawn } from "node:child_process";
import { getEventListeners, once } from "node:events";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import {
  connectUnix,
  descriptorOf,
  listenPath,
  maxSocketPath,
  peerCredentials,
} from "../../linux/sockets/unix-socket.ts";

/** A directory whose sockets' paths exceed sun_path; removed with the test. */
function deepDirectory(t: ExecutionContext): string {
  const root = mkdtempSync("/tmp/podnet-unix-");
  const deep = join(root, "d".repeat(60), "e".repeat(60));
  mkdirSync(deep, { recursive: true });
  t.teardown(() => rmSync(root, { recursive: true, force: true }));
  return deep;
}

async function listen(t: ExecutionContext, path: string): Promise<Server> {
  const short = listenPath(path);
  const connections = new Set<Socket>();
  const server = createServer((connection) => connections.add(connection));
  server.listen(short.path);
  await once(server, "listening");
  t.teardown(async () => {
    const closed = once(server, "close");
    server.close();
    // A test that failed half way has left its own open.
    for (const connection of connections) connection.destroy();
    await closed;
    short.close();
  });
  return server;
}

/** A process that listens, and takes no connection. */
async function listenOnly(
  t: ExecutionContext,
  directory: string,
): Promise<{ readonly child: ChildProcess; readonly path: string }> {
  const idle = `
import socket, sys
s = socket.socket(socket.AF_UNIX); s.bind("i.sock"); s.listen(0); print("listening", flush=True); sys.stdin.read()`;
  const child = spawn("python3", ["-c", idle], {
    cwd: directory,
    stdio: ["pipe", "pipe", "inherit"],
  });
  t.teardown(() => child.kill());
  await once(child.stdout, "data");
  return { child, path: join(directory, "i.sock") };
}

// Receives bytes and descriptors as QEMU does: with recvmsg, in another process. Prints what it
// got.
const receiver = `
import array, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1]); server.listen(1); print("listening", flush=True)
peer, _ = server.accept()
data = b""; got = []
while True:
    part, ancillary, flags, _ = peer.recvmsg(65536, 256)
    if not part: break
    for level, kind, value in ancillary:
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        fds = array.array("i"); fds.frombytes(value)
        # One recvmsg may begin with earlier bytes, and ends with those the descriptor came with.
        for fd in fds: got.append([len(data) + len(part), os.pread(fd, 100, 0).decode()])
    data += part
import hashlib, json
print(json.dumps({"length": len(data), "sha256": hashlib.sha256(data).hexdigest(), "files": got}))
`;

interface Received {
  readonly length: number;
  readonly sha256: string;
  /** Stream position after the bytes each file came with, and what it held. */
  readonly files: readonly (readonly [number, string])[];
}

async function startReceiver(
  t: ExecutionContext,
  directory: string,
): Promise<{ path: string; received: Promise<Received> }> {
  const child = spawn("python3", ["-c", receiver, "r.sock"], {
    cwd: directory,
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(() => child.kill());
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
  while (!output.includes("listening")) await once(child.stdout, "data");
  const received = once(child, "close").then(
    () => JSON.parse(output.slice(output.indexOf("\n"))) as Received,
  );
  return { path: join(directory, "r.sock"), received };
}

function fileWith(t: ExecutionContext, directory: string, text: string): number {
  const path = join(directory, "handed-over");
  writeFileSync(path, text);
  const fd = openSync(path, "r");
  t.teardown(() => closeSync(fd));
  return fd;
}

async function sha256(bytes: Uint8Array): Promise<string> {
  return Buffer.from(await crypto.subtle.digest("SHA-256", bytes.slice())).toString("hex");
}

test("listens and connects on a path longer than sun_path", async (t) => {
  const path = join(deepDirectory(t), "a.sock");
  t.true(path.length > maxSocketPath);
  const server = await listen(t, path);
  const accepted = once(server, "connection") as Promise<[Socket]>;
  using connection = await connectUnix(path);
  const [peer] = await accepted;
  connection.socket.write("hello");
  const [data] = (await once(peer, "data")) as [Buffer];
  t.is(data.toString(), "hello");
  peer.end("bye");
  const [answer] = (await once(connection.socket, "data")) as [Buffer];
  t.is(answer.toString(), "bye");
});

test("reports who is connected", async (t) => {
  const path = join(deepDirectory(t), "a.sock");
  const server = await listen(t, path);
  const accepted = once(server, "connection") as Promise<[Socket]>;
  using connection = await connectUnix(path);
  const [peer] = await accepted;
  const me = { pid: process.pid, uid: process.getuid?.(), gid: process.getgid?.() };
  t.like(peerCredentials(descriptorOf(peer) as number), me);
  t.like(peerCredentials(connection.fd), me);
  peer.destroy();
  t.is(descriptorOf(peer), undefined);
  t.throws(() => peerCredentials(-1), { code: "SYSCALL_FAILED", message: /EBADF/ });
});

test("hands a descriptor over at its place in the stream", async (t) => {
  const directory = deepDirectory(t);
  const { path, received } = await startReceiver(t, directory);
  const connection = await connectUnix(path);
  const fd = fileWith(t, directory, "the tap");
  // What is still queued must go first and whole: 1 MiB does not fit the socket's buffer.
  const before = new Uint8Array(1 << 20).fill(97);
  connection.socket.write(before);
  await connection.sendWithFd(Buffer.from("getfd\n"), fd);
  await connection.sendWithFd(Buffer.from("again\n"), fd);
  connection.socket.end("after");
  const all = Buffer.concat([before, Buffer.from("getfd\nagain\nafter")]);
  t.deepEqual(await received, {
    length: all.length,
    sha256: await sha256(all),
    files: [
      [before.length + 6, "the tap"],
      [before.length + 12, "the tap"],
    ],
  });
  connection.close();
});

test("finishes a short send", async (t) => {
  const directory = deepDirectory(t);
  const { path, received } = await startReceiver(t, directory);
  const connection = await connectUnix(path);
  const line = new Uint8Array(4 << 20).map((_, i) => i % 251);
  await connection.sendWithFd(line, fileWith(t, directory, "the tap"));
  connection.socket.end();
  t.like(await received, { length: line.length, sha256: await sha256(line) });
  connection.close();
});

test("reports why a connection fails", async (t) => {
  const directory = deepDirectory(t);
  const missing = join(directory, "missing.sock");
  const error = await t.throwsAsync(connectUnix(missing), { code: "SYSCALL_FAILED" });
  t.like(error, { details: { errno: "ENOENT", syscall: "connect" } });
  await t.throwsAsync(connectUnix(join(directory, "none", "a.sock")), {
    message: /directory .* ENOENT/,
  });
  await t.throwsAsync(connectUnix(join(directory, "x".repeat(200))), { code: "INVALID_ARGUMENT" });
  const aborted = AbortSignal.abort();
  await t.throwsAsync(connectUnix(missing, aborted), { code: "CANCELLED" });
});

test("waits while the listener's backlog is full, and stops when aborted", async (t) => {
  const directory = deepDirectory(t);
  const { path } = await listenOnly(t, directory);
  const waiting: AbortController = new AbortController();
  const first = await connectUnix(path);
  const second = connectUnix(path, waiting.signal);
  waiting.abort();
  await t.throwsAsync(second, { code: "CANCELLED" });
  first.close();
});

test("a peer that dies before a listener is added to the connection ends nothing, and is reported then", async (t) => {
  const directory = deepDirectory(t);
  const { child, path } = await listenOnly(t, directory);
  const connection = await connectUnix(path);
  // One that was not accepted is reset.
  child.kill("SIGKILL");
  await once(child, "exit");
  for (let round = 0; round < 5; round++) await new Promise(setImmediate);
  const [error] = (await once(connection.socket, "error")) as [NodeJS.ErrnoException];
  t.is(error.code, "ECONNRESET");
});

test("waits for a peer that does not read, and stops when aborted", async (t) => {
  const path = join(deepDirectory(t), "a.sock");
  const server = await listen(t, path);
  const accepted = once(server, "connection") as Promise<[Socket]>;
  using connection = await connectUnix(path);
  const [peer] = await accepted;
  const fd = openSync("/dev/null", "r");
  t.teardown(() => closeSync(fd));
  const line = Buffer.alloc(8192);
  let sent = 0;
  const fill = async (count: number, signal: AbortSignal): Promise<void> => {
    for (; sent < count; sent++) await connection.sendWithFd(line, fd, signal);
  };
  // More than the socket holds, so only the signal ends it.
  await t.throwsAsync(fill(1000, AbortSignal.timeout(100)), { code: "DEADLINE_EXCEEDED" });
  const limit = AbortSignal.timeout(30_000);
  const rest = fill(sent + 50, limit);
  let received = 0;
  peer.on("data", (data: Buffer) => (received += data.length));
  await rest;
  t.is(getEventListeners(limit, "abort").length, 0);
  connection.socket.end();
  await once(peer, "end");
  t.is(received, sent * line.length);
  peer.destroy();
});

test("waits for what is queued before a descriptor, and stops when aborted", async (t) => {
  const path = join(deepDirectory(t), "a.sock");
  const server = await listen(t, path);
  const accepted = once(server, "connection") as Promise<[Socket]>;
  using connection = await connectUnix(path);
  const [peer] = await accepted;
  const fd = openSync("/dev/null", "r");
  t.teardown(() => closeSync(fd));
  const queued = Buffer.alloc(4 << 20);
  connection.socket.write(queued);
  const waiting: AbortController = new AbortController();
  const sending = connection.sendWithFd(Buffer.from("getfd\n"), fd, waiting.signal);
  waiting.abort();
  await t.throwsAsync(sending, { code: "CANCELLED" });
  t.is(getEventListeners(waiting.signal, "abort").length, 0);
  let received = 0;
  peer.on("data", (data: Buffer) => (received += data.length));
  connection.socket.end();
  await once(peer, "end");
  t.is(received, queued.length, "what was cancelled is not sent");
  peer.destroy();
});

test("a descriptor leaks to no child process", async (t) => {
  const path = join(deepDirectory(t), "a.sock");
  await listen(t, path);
  using connection = await connectUnix(path);
  const flags = readFileSync(`/proc/self/fdinfo/${connection.fd}`, "latin1").match(
    /flags:\s+(\d+)/,
  );
  t.true((Number.parseInt(flags?.[1] as string, 8) & 0o2000000) !== 0);
});
