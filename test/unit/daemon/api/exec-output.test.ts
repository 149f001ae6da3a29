import { connect } from "node:net";
import { createClient, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import type { MessageInitShape } from "@bufbuild/protobuf";
import test from "ava";
import {
  type ExecRequestSchema,
  PodService,
} from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { ProcessSpec } from "../../../../guest-init/protocol/process-messages.ts";
import { begin, finish, serve, type Served } from "./fixtures/exec-server.ts";

type Input = MessageInitShape<typeof ExecRequestSchema>;

async function* start(): AsyncGenerator<Input> {
  yield { input: { case: "start", value: { idOrName: "one", args: ["dd"] } } };
}

const formats = {
  Connect: createConnectTransport,
  "Connect with JSON": (options: Parameters<typeof createConnectTransport>[0]) =>
    createConnectTransport({ ...options, useBinaryFormat: false }),
  gRPC: createGrpcTransport,
  "gRPC-Web": createGrpcWebTransport,
} as const;

const transportOf = (served: Served, make: (typeof formats)[keyof typeof formats]): Transport =>
  make({
    baseUrl: "http://podnet",
    httpVersion: "2",
    nodeOptions: { createConnection: () => connect({ path: served.socket }) },
  });

/** Bytes that are another's at each place and in each program. */
const pattern = (program: number, length: number): Buffer =>
  Buffer.from(Uint32Array.from({ length: length / 4 }, (_, i) => program * 0x1000000 + i).buffer);

interface Seen {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly exit: number | undefined;
}

async function read(transport: Transport, { most = Infinity, pauseMs = 0 } = {}): Promise<Seen> {
  const parts: Record<"stdout" | "stderr", Uint8Array[]> = { stdout: [], stderr: [] };
  let exit: number | undefined;
  let length = 0;
  const leaving = new AbortController();
  const { signal } = leaving;
  for await (const { output } of createClient(PodService, transport).exec(start(), { signal })) {
    if (output.case === "stdout" || output.case === "stderr") {
      parts[output.case].push(output.value);
      length += output.value.length;
      if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
    if (output.case === "exit") exit = output.value.code;
    if (length >= most) break;
  }
  // (A client of Connect's that stops reading does not say so.)
  leaving.abort();
  return { stdout: Buffer.concat(parts.stdout), stderr: Buffer.concat(parts.stderr), exit };
}

/** Sizes of frames: pieces are shared by some, and no frame ends where a read does. */
const sizes = [32_000, 4, 20_000, 32_752, 400, 16_384] as const;

/** The guest writes so much of each program's output, in turns. */
async function write(served: Served, programs: readonly ProcessSpec[], all: readonly Buffer[]) {
  const at = all.map(() => 0);
  for (let turn = 0; at.some((place, i) => place < (all[i] as Buffer).length); turn++) {
    for (const [i, program] of programs.entries()) {
      const [from, size] = [at[i] as number, sizes[(turn + i) % sizes.length] as number];
      const part = (all[i] as Buffer).subarray(from, from + size);
      at[i] = from + part.length;
      if (part.length > 0) await served.peer.output(program.stdio, part);
    }
  }
}

for (const [name, make] of Object.entries(formats)) {
  test(`much output of programs at once comes whole and to its own caller: ${name}`, async (t) => {
    await using served = await serve();
    const transport = transportOf(served, make);
    const total = 2 * 1024 * 1024;
    const readings: Promise<Seen>[] = [];
    const programs: ProcessSpec[] = [];
    // The third one's caller goes away in the middle, the second is slow.
    for (const how of [{}, { pauseMs: 2 }, { most: total / 4 }]) {
      const reading = read(transport, how);
      readings.push(reading);
      reading.catch(() => {});
      programs.push(await begin(served.peer));
    }
    const all = programs.map((_, i) => pattern(i + 1, total));
    await write(served, programs, all);
    const [first, second] = programs as [ProcessSpec, ProcessSpec];
    await served.peer.output(first.stderr, pattern(9, 40_000 - (40_000 % 4)).subarray(0, 30_000));
    await finish(served.peer, first, 3);
    await finish(served.peer, second, 0);
    const [one, two, three] = (await Promise.all(readings)) as [Seen, Seen, Seen];
    t.true(one.stdout.equals(all[0] as Buffer));
    t.true(one.stderr.equals(pattern(9, 40_000).subarray(0, 30_000)));
    t.is(one.exit, 3);
    t.true(two.stdout.equals(all[1] as Buffer));
    t.is(two.exit, 0);
    t.true(three.stdout.equals((all[2] as Buffer).subarray(0, three.stdout.length)));
    t.true(three.stdout.length >= total / 4);
  });
}
