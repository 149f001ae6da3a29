import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import test from "ava";
import { Queue } from "../../core/queue.ts";
import type { StreamedProgram } from "../../daemon/cri/streaming/remote-command.ts";
import { StreamingServer } from "../../daemon/cri/streaming/streaming-server.ts";
import type { ExecEvent } from "../../guest-init/channel/guest.ts";
import { until } from "../lab/until.ts";
import { PodsApi } from "../peers/kube-api/pods-api.ts";

// Debian's kubectl, through an API server that is played, with the streaming server of the runtime
// interface. Programs are processes of this host: machines are in test/vm/cri-containers.test.ts.

const kubectlProgram = resolve(import.meta.dirname, "../../build/kubectl/usr/bin/kubectl");

let home: string;
let streams: StreamingServer;
let api: PodsApi;
/** Programs that were started. */
const children: ChildProcess[] = [];

test.before(async () => {
  if (!existsSync(kubectlProgram))
    throw new Error("There is no kubectl: run scripts/unpack-kubectl");
  home = mkdtempSync(join(tmpdir(), "podnet-kubectl-"));
  streams = await StreamingServer.open("127.0.0.1", 0);
  api = await PodsApi.open((what, query) =>
    what === "portforward"
      ? streams.urlFor({ kind: what, ports: [], connect: toLoopback })
      : streams.urlFor({
          kind: what,
          wanted: {
            stdin: query.get("stdin") === "true",
            stdout: query.get("stdout") === "true",
            stderr: query.get("stderr") === "true",
            tty: query.get("tty") === "true",
          },
          start: (gone) => Promise.resolve(run(query.getAll("command"), gone)),
        }),
  );
});
test.after.always(async () => {
  for (const child of children) child.kill("SIGKILL");
  await api?.[Symbol.asyncDispose]();
  await streams?.[Symbol.asyncDispose]();
  rmSync(home, { recursive: true, force: true });
});

/** A process of this host, in the place of one in a container. */
function run([program = "cat", ...args]: readonly string[], gone: AbortSignal): StreamedProgram {
  const child = spawn(program, args, { stdio: "pipe" });
  children.push(child);
  const events = new Queue<ExecEvent>();
  child.stdout.on("data", (data: Buffer) => events.push({ kind: "stdout", data }));
  child.stderr.on("data", (data: Buffer) => events.push({ kind: "stderr", data }));
  child.stdin.on("error", () => {});
  child.on("close", (code, signal) => {
    events.push({ kind: "exit", code: signal === null ? (code ?? 0) : 137 });
    events.end();
  });
  gone.addEventListener("abort", () => child.kill("SIGKILL"), { once: true });
  return {
    events,
    write: (data) => new Promise((done) => void child.stdin.write(data, () => done())),
    closeInput: () => Promise.resolve(void child.stdin.end()),
    resize: () => Promise.resolve(),
  };
}

async function toLoopback(port: number) {
  const socket = connect({ host: "127.0.0.1", port, allowHalfOpen: true });
  await once(socket, "connect");
  return {
    output: socket,
    write: async (data: Uint8Array) => void socket.write(data),
    endInput: () => void socket.end(),
    close: () => void socket.destroy(),
  };
}

interface Ran {
  readonly code: number | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

function start(...words: readonly string[]): ChildProcess {
  const child = spawn(kubectlProgram, ["--server", api.url, ...words], {
    env: { HOME: home, PATH: process.env["PATH"] },
    stdio: "pipe",
  });
  children.push(child);
  return child;
}

async function kubectl(input: Uint8Array | undefined, ...words: readonly string[]): Promise<Ran> {
  const child = start(...words);
  const [out, err]: [Buffer[], Buffer[]] = [[], []];
  child.stdout?.on("data", (data: Buffer) => out.push(data));
  child.stderr?.on("data", (data: Buffer) => err.push(data));
  child.stdin?.on("error", () => {});
  if (input !== undefined) child.stdin?.end(input);
  const [code] = (await once(child, "close")) as [number | null];
  return { code, stdout: Buffer.concat(out), stderr: Buffer.concat(err).toString() };
}

test("kubectl exec has output, errors and exit code of a program", async (t) => {
  const ran = await kubectl(
    undefined,
    "exec",
    "web",
    "--",
    "sh",
    "-c",
    "echo out; echo err >&2; exit 7",
  );
  t.is(ran.stdout.toString(), "out\n");
  t.regex(ran.stderr, /^err\n/);
  t.regex(ran.stderr, /exit code 7/);
  t.is(ran.code, 7);
  const good = await kubectl(undefined, "exec", "web", "--", "true");
  t.deepEqual([good.code, good.stderr], [0, ""]);
});

test("kubectl exec -i carries megabytes both ways, and ends with its input", async (t) => {
  const input = Buffer.alloc(8 * 1024 * 1024);
  for (let i = 0; i < input.length; i += 4) input.writeUInt32LE((i * 2654435761) >>> 0, i);
  const { code, stdout, stderr } = await kubectl(input, "exec", "-i", "web", "--", "cat");
  t.deepEqual([code, stderr], [0, ""]);
  t.true(stdout.equals(input));
  // The program ends without reading its input.
  const deaf = await kubectl(input, "exec", "-i", "web", "--", "sh", "-c", "exec 0<&-; exit 5");
  t.is(deaf.code, 5);
});

test("with a kubectl that is killed the program ends", async (t) => {
  const before = children.length;
  const child = start("exec", "web", "--", "sleep", "1000");
  const isSleep = (each: ChildProcess): boolean =>
    each.spawnargs[0] === "sleep" && each.spawnargs[1] === "1000";
  await until("the program", () => Promise.resolve(children.slice(before).some(isSleep)));
  child.kill("SIGKILL");
  const program = children.slice(before).find(isSleep);
  await until("its end", () => Promise.resolve(program?.signalCode === "SIGKILL"));
  t.pass();
});

test("kubectl attach has the output of a program, and is over with it", async (t) => {
  const { code, stdout } = await kubectl(Buffer.from("typed"), "attach", "-i", "web");
  t.is(code, 0);
  t.is(stdout.toString(), "typed");
});

test("kubectl port-forward carries connections, several at once", async (t) => {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => {});
    socket.pipe(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const child = start("port-forward", "pod/web", `:${port}`);
  let text = "";
  child.stdout?.on("data", (data: Buffer) => (text += data.toString()));
  const here = await until("the port", () =>
    Promise.resolve(/127\.0\.0\.1:(\d+)/.exec(text)?.[1] ?? false),
  );
  const echo = async (data: Buffer): Promise<Buffer> => {
    const socket = connect({ host: "127.0.0.1", port: Number(here), allowHalfOpen: true });
    socket.end(data);
    const parts: Buffer[] = [];
    for await (const part of socket) parts.push(part as Buffer);
    return Buffer.concat(parts);
  };
  const sent = ["a", "b", "c"].map((letter) => Buffer.alloc(300_000, letter));
  const came = await Promise.all(sent.map((data) => echo(data)));
  t.true(came.every((data, i) => data.equals(sent[i] as Buffer)));
  child.kill("SIGTERM");
});
