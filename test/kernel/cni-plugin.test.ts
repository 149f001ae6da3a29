import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Socket } from "node:net";
import path from "node:path";
import { text } from "node:stream/consumers";
import test, { type ExecutionContext } from "ava";
import { parseExchange } from "../../cni/protocol/exchange.ts";
import { parsePending } from "../../cni/protocol/pending.ts";
import { bootMoment } from "../../linux/processes/boot-moment.ts";

const program = path.resolve(import.meta.dirname, "../../build/cni-plugin/podnet-cni");

const attachment = {
  CNI_CONTAINERID: "c1",
  CNI_NETNS: "/run/netns/blue",
  CNI_IFNAME: "eth0",
  CNI_PATH: "/opt/cni/bin",
};

interface Ended {
  readonly exit: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the plugin as a runtime does. */
async function plugin(
  env: Readonly<Record<string, string>>,
  stdin: string | Uint8Array,
): Promise<Ended> {
  const child = spawn(program, [], { env, stdio: ["pipe", "pipe", "pipe"] });
  // It need not read what it does not want.
  child.stdin.on("error", () => {});
  child.stdin.end(stdin);
  const [stdout, stderr, [exit, signal]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "close") as Promise<[number | null, string | null]>,
  ]);
  return { exit, signal, stdout, stderr };
}

/**
 * A place with a socket, if a server is given: it gets each connection and the request's bytes once
 * they are whole.
 */
async function place(
  t: ExecutionContext,
  serve?: (connection: Socket, body: Uint8Array, head: string) => void,
) {
  const directory = mkdtempSync("/tmp/podnet-cni-");
  t.teardown(() => rmSync(directory, { recursive: true, force: true }));
  const socket = path.join(directory, "cni.sock");
  const pendingDirectory = path.join(directory, "state", "cni-pending");
  const config = {
    cniVersion: "1.1.0",
    name: "podnet",
    type: "podnet-cni",
    socket,
    pendingDirectory,
    prevResult: { cniVersion: "1.1.0", ips: [] },
    "cni.dev/valid-attachments": [],
  };
  if (serve !== undefined) {
    const connections = new Set<Socket>();
    const server = createServer((connection) => {
      connections.add(connection);
      connection.on("error", () => {});
      let bytes = Buffer.alloc(0);
      connection.on("data", (chunk) => {
        bytes = Buffer.concat([bytes, chunk]);
        const end = bytes.indexOf("\r\n\r\n");
        const head = bytes.subarray(0, end).toString();
        const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? Number.NaN);
        if (end >= 0 && bytes.length >= end + 4 + length)
          serve(connection, bytes.subarray(end + 4), head);
      });
    });
    server.listen(socket);
    await once(server, "listening");
    t.teardown(() => {
      for (const connection of connections) connection.destroy();
      server.close();
    });
  }
  const run = (
    command: string,
    more: object = {},
    env: Readonly<Record<string, string>> = attachment,
  ): Promise<Ended> =>
    plugin({ ...env, CNI_COMMAND: command }, JSON.stringify({ ...config, ...more }));
  return { directory, socket, pendingDirectory, config, run };
}

const http = (body: string, status = "200 OK"): string =>
  `HTTP/1.1 ${status}\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`;
const outcome = (exit: number, stdout: string): string => http(JSON.stringify({ exit, stdout }));

/** The number of an error that was printed as one. */
function code(t: ExecutionContext, ended: Ended): number {
  t.is(ended.exit, 1);
  t.is(ended.stderr, "");
  const said = JSON.parse(ended.stdout) as { code: number; msg: string };
  t.not(said.msg, "");
  return said.code;
}

test("a call is handed on as it is, and answered as podnetd says", async (t) => {
  const seen: { env: object; stdin: string }[] = [];
  const here = await place(t, (connection, body, head) => {
    t.regex(head, /^POST \/cni\/v1 HTTP\/1\.1\r\n/);
    const { env, stdin } = parseExchange(body);
    seen.push({ env, stdin: Buffer.from(stdin).toString() });
    connection.end(outcome(seen.length === 2 ? 3 : 0, seen.length === 3 ? "" : '{"é":1}'));
  });
  const env = { ...attachment, CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAME=é" };
  const first = await here.run("ADD", {}, { ...env, HOME: "/root" });
  t.deepEqual(first, { exit: 0, signal: null, stdout: '{"é":1}\n', stderr: "" });
  t.deepEqual(seen, [{ env: { ...env, CNI_COMMAND: "ADD" }, stdin: JSON.stringify(here.config) }]);
  t.like(await here.run("CHECK"), { exit: 3, stdout: '{"é":1}\n' });
  t.like(await here.run("DEL"), { exit: 0, stdout: "" });
  t.false(existsSync(here.pendingDirectory));
});

test("an answer that comes byte by byte is whole at its end", async (t) => {
  const bytes = Buffer.from(outcome(0, '{"cniVersion":"1.1.0"}'));
  const here = await place(t, (connection) => {
    connection.setNoDelay(true);
    const drip = (at: number): void => {
      if (at === bytes.length) connection.end();
      else connection.write(bytes.subarray(at, at + 1), () => setImmediate(drip, at + 1));
    };
    drip(0);
  });
  t.like(await here.run("ADD"), { exit: 0, stdout: '{"cniVersion":"1.1.0"}\n' });
});

test("an answer that does not come in time is to be tried again", async (t) => {
  const here = await place(t, (connection) => connection.write("HTTP/1.1 200 OK\r\n"));
  const ended = await here.run("DEL", { timeoutSeconds: 1 });
  t.is(code(t, ended), 11);
  t.regex(ended.stdout, /DEADLINE_EXCEEDED/);
});

test("what is no answer of podnetd's is refused", async (t) => {
  const answers: readonly (readonly [string, number])[] = [
    ["SSH-2.0-OpenSSH\r\n\r\n", 999],
    ["HTTP/1.1 200 OK\r\n\r\n{}", 999],
    ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n123456", 999],
    [`HTTP/1.1 200 OK\r\nContent-Length: ${2 ** 29}\r\n\r\n`, 999],
    ["x".repeat(20_000), 999],
    [http("{}"), 6],
    [http('{"exit":256}'), 6],
    [http("no room", "503 Service Unavailable"), 11],
    [http("no", "403 Forbidden"), 999],
  ];
  let answer = "";
  const here = await place(t, (connection) => connection.end(answer));
  for (const [bytes, wanted] of answers) {
    answer = bytes;
    t.is(code(t, await here.run("ADD")), wanted, bytes.slice(0, 60));
  }
});

for (const [how, serve] of [
  ["is away", undefined],
  [
    "goes away in the middle",
    (connection: Socket) => connection.end(outcome(0, "{}").slice(0, 50)),
  ],
  ["hangs up", (connection: Socket) => connection.destroy()],
] as const)
  test(`while podnetd ${how} a DEL is written down, and the rest is to be tried again`, async (t) => {
    const here = await place(t, serve);
    for (const [command, wanted] of [
      ["ADD", 11],
      ["CHECK", 11],
      ["GC", 11],
      ["STATUS", 50],
    ] as const)
      t.is(code(t, await here.run(command)), wanted, command);
    t.false(existsSync(here.pendingDirectory));
    // What is no DEL that podnetd could do is refused as podnetd would.
    t.is(code(t, await here.run("DEL", {}, { ...attachment, CNI_IFNAME: "" })), 4);
    t.is(code(t, await here.run("DEL", { name: "" })), 7);
    const begin = Date.now();
    for (let i = 0; i < 2; i++)
      t.deepEqual(await here.run("DEL"), { exit: 0, signal: null, stdout: "", stderr: "" });
    t.deepEqual(readdirSync(here.pendingDirectory), ["c1@eth0.json"]);
    const file = path.join(here.pendingDirectory, "c1@eth0.json");
    // podnetd need not be root, and no other user is let into the directory.
    t.is(statSync(file).mode & 0o777, 0o644);
    t.is(statSync(here.pendingDirectory).mode & 0o777, 0o700);
    const record = parsePending(readFileSync(file));
    t.deepEqual(record.env, { ...attachment, CNI_COMMAND: "DEL" });
    t.is(Buffer.from(record.stdin).toString(), JSON.stringify(here.config));
    t.true(record.atMs >= begin - 1000);
    // By the clock that podnetd compares it with.
    const now = bootMoment();
    t.is(record.moment?.boot, now.boot);
    const ago = now.us - (record.moment?.us ?? 0);
    t.true(ago > 0 && ago < 60_000_000, `${ago} µs ago`);
  });

test("a podnetd that comes while a DEL is being written down does it, and no record stays", async (t) => {
  let connections = 0;
  const here = await place(t, (connection) => {
    connections++;
    if (connections === 1) connection.destroy();
    else connection.end(outcome(0, ""));
  });
  t.like(await here.run("DEL"), { exit: 0, stdout: "", stderr: "" });
  t.is(connections, 2);
  t.deepEqual(readdirSync(here.pendingDirectory), []);
});

test("a podnetd that is full writes down a DEL and is to be asked again for the rest, as one that does not run", async (t) => {
  let large = "";
  // It answers before it has read anything, and reads nothing.
  const here = await place(t, undefined);
  const server = createServer({ pauseOnConnect: true }, (connection) => {
    connection.on("error", () => {});
    connection.end(http("no room\n", "503 Service Unavailable"), () => connection.destroy());
  });
  server.listen(here.socket);
  await once(server, "listening");
  t.teardown(() => server.close());
  for (const length of [0, 600_000]) {
    large = "x".repeat(length);
    for (const [command, wanted] of [
      ["ADD", 11],
      ["CHECK", 11],
      ["GC", 11],
      ["STATUS", 50],
    ] as const) {
      const ended = await here.run(command, { large });
      t.is(code(t, ended), wanted, command);
      t.regex(ended.stdout, /LIMIT_REACHED.*busy|busy.*LIMIT_REACHED/);
    }
    t.deepEqual(await here.run("DEL", { large }), {
      exit: 0,
      signal: null,
      stdout: "",
      stderr: "",
    });
    t.deepEqual(readdirSync(here.pendingDirectory), ["c1@eth0.json"]);
  }
});

test("a DEL that cannot be written down is to be tried again", async (t) => {
  const here = await place(t);
  writeFileSync(path.join(here.directory, "file"), "");
  const ended = await here.run("DEL", { pendingDirectory: `${here.directory}/file/pending` });
  t.is(code(t, ended), 11);
  t.regex(ended.stdout, /cannot be written down/);
});

test("the protocol's version is printed without podnetd and without input", async (t) => {
  const ended = await plugin({ CNI_COMMAND: "VERSION" }, "");
  t.like(ended, { exit: 0, stderr: "" });
  t.like(JSON.parse(ended.stdout) as object, { cniVersion: "1.1.0" });
  const about = await plugin({}, "");
  t.like(about, { exit: 0, stdout: "" });
  t.regex(about.stderr, /^podnet-cni /);
});

test("input and environment are bounded", async (t) => {
  let length = 0;
  const here = await place(t, (connection, body) => {
    length = parseExchange(body).stdin.length;
    connection.end(outcome(0, ""));
  });
  const env = { ...attachment, CNI_COMMAND: "ADD" };
  const plain = JSON.stringify(here.config);
  const largest = plain + " ".repeat(1024 * 1024 - plain.length);
  t.is((await plugin(env, largest)).exit, 0);
  t.is(length, 1024 * 1024);
  t.is(code(t, await plugin(env, `${largest} `)), 5);
  const half = "x".repeat(70_000);
  t.is((await plugin({ ...env, CNI_A: half }, plain)).exit, 0);
  t.is(code(t, await plugin({ ...env, CNI_A: half, CNI_B: half }, plain)), 4);
  // Others' variables are none of its business.
  t.is((await plugin({ ...env, A: half, B: half }, plain)).exit, 0);
});

test("no input makes it end without an error that can be read", async (t) => {
  const here = await place(t);
  const env = { ...attachment, CNI_COMMAND: "ADD" };
  for (const [stdin, wanted] of [
    ["", 6],
    ["{", 6],
    ["[]", 6],
    ["\0\xff", 6],
    ["[".repeat(20_000), 6],
    // Deeper than its stack.
    ["[".repeat(1024 * 1024), 6],
  ] as const)
    t.is(code(t, await plugin(env, stdin)), wanted, stdin.slice(0, 10));
  for (const command of ["", "UPDATE"]) t.is(code(t, await here.run(command)), 4);
  t.regex((await here.run("ADD", { socket: "/x".repeat(100) })).stdout, /SYSCALL_FAILED socket/);
});

test("an output without a reader, and an input that is closed, are no crash", async (t) => {
  const child = spawn(program, [], {
    env: { CNI_COMMAND: "ADD" },
    stdio: ["pipe", "pipe", "pipe"],
  });
  const ended = once(child, "close");
  const closed = once(child.stdout, "close");
  child.stdout.destroy();
  await closed;
  // It has been waiting for its input until here.
  child.stdin.end("{");
  t.is(await text(child.stderr), "");
  t.deepEqual(await ended, [1, null]);

  const script = 'CNI_COMMAND=ADD "$0" <&-; CNI_COMMAND=VERSION "$0" >&-; echo $?';
  const shell = spawn("sh", ["-c", script, program], { stdio: ["ignore", "pipe", "pipe"] });
  const [stdout, stderr] = await Promise.all([text(shell.stdout), text(shell.stderr)]);
  const [error = "", status = ""] = stdout.split("\n");
  t.is((JSON.parse(error) as { code: number }).code, 5);
  t.is(status, "1");
  t.is(stderr, "");
});
