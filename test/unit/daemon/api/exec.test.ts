import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import test from "ava";
import { connectPodnet, type Podnet } from "../../../../api/client.ts";
import {
  type ExecRequestSchema,
  PodService,
} from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addService } from "../../../../api/service.ts";
import { serveApi } from "../../../../daemon/api/api-server.ts";
import type { ServiceParts } from "../../../../daemon/api/context.ts";
import { streamExec } from "../../../../daemon/api/exec-stream.ts";
import { openGuest } from "../../../../guest-init/channel/session.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import {
  encodeProcessEvent,
  parseExecCmd,
  parseSignalProcess,
} from "../../../../guest-init/protocol/process-messages.ts";
import { ScriptedGuest } from "../../../peers/scripted-guest.ts";
import { rootOnly, usualLimits } from "../../api/fixtures/limits.ts";

const never = new AbortController().signal;

interface Served extends AsyncDisposable {
  readonly peer: ScriptedGuest;
  readonly client: Podnet;
}

/** The exec of a real server and client, with a guest whose every word is the test's. */
async function serve(): Promise<Served> {
  await using opened = new AsyncDisposableStack();
  const peer = opened.use(await ScriptedGuest.start());
  const { channelPath, ttyPath } = peer;
  const guest = openGuest({ channelPath, ttyPath, reattach: false });
  opened.defer(() => guest.close());
  await peer.say(command.ready);
  await peer.introduce("ours");
  await guest.ready(never);

  const parts = {
    pods: { running: () => ({ guest, plan: { podId: "abcdefghijkl" } }) },
  } as unknown as ServiceParts;
  const socket = join(mkdtempSync(join(tmpdir(), "podnet-exec-")), "api.sock");
  const api = await serveApi({
    unix: { path: socket, group: undefined },
    tcp: undefined,
    routes: (router) =>
      addService(router, PodService, {
        exec: (requests, context) => streamExec(requests, parts, context.signal),
      }),
    metrics: () => Promise.resolve({ type: "text/plain", text: "" }),
    health: (page) => Promise.resolve({ ok: page === "healthz", text: `${page}\n` }),
    access: rootOnly,
    limits: usualLimits,
    refused: () => {},
  });
  opened.defer(() => api.close(200));
  const client = opened.use(connectPodnet({ socket }));
  const held = opened.move();
  return { peer, client, [Symbol.asyncDispose]: () => held.disposeAsync() };
}

type Input = MessageInitShape<typeof ExecRequestSchema>;
const start: Input = { input: { case: "start", value: { idOrName: "one", args: ["cat"] } } };

/** What a caller sends, and then nothing more for as long as the test runs. */
async function* unended(...messages: readonly Input[]): AsyncGenerator<Input> {
  yield* messages;
  await new Promise(() => {});
}

async function read(client: Podnet, input: AsyncIterable<Input>): Promise<string[]> {
  const seen: string[] = [];
  for await (const { output } of client.pods.exec(input)) {
    if (output.case === "stdout") seen.push(Buffer.from(output.value).toString());
    if (output.case === "exit") seen.push(`exit ${output.value.code}`);
  }
  return seen;
}

const finished = (process: string, status: number): Uint8Array =>
  encodeProcessEvent({ container: "hyperstart", process, event: "finished", status });

for (const [how, closes] of [
  ["half-closes", []],
  ["says so and half-closes", [{ input: { case: "closeStdin" as const, value: {} } }]],
] as const) {
  test(`a caller who ${how} ends the program's input, once, and still gets its output`, async (t) => {
    await using served = await serve();
    const { peer, client } = served;
    async function* input(): AsyncGenerator<Input> {
      yield start;
      yield { input: { case: "stdin", value: Buffer.from("words") } };
      yield* closes;
    }
    const reading = read(client, input());
    const { process } = parseExecCmd((await peer.command(command.execCmd)).payload);
    await peer.say(command.ack);
    t.is(Buffer.from((await peer.input()).data).toString(), "words");
    const end = await peer.input();
    t.deepEqual([end.stream, end.data.length], [process.stdio, 0]);
    await peer.output(process.stdio, Buffer.from("the end"));
    await peer.output(process.stdio);
    await peer.say(command.processAsyncEvent, finished(process.id, 3));
    t.deepEqual(await reading, ["the end", "exit 3"]);
    t.is(peer.inputWaiting, 0);
  });
}

test("input that is refused ends a program that says nothing by itself", async (t) => {
  await using served = await serve();
  const { peer, client } = served;
  const wrong: Input = { input: { case: "signal", value: { signal: 99 } } };
  const reading = t.throwsAsync(read(client, unended(start, wrong)), { code: "INVALID_ARGUMENT" });
  const { process } = parseExecCmd((await peer.command(command.execCmd)).payload);
  await peer.say(command.ack);
  const killed = parseSignalProcess((await peer.command(command.signalProcess)).payload);
  t.like(killed, { process: process.id, signal: 9 });
  await peer.say(command.ack);
  await reading;
});

test("a program that has ended before a signal reaches it still gives its exit", async (t) => {
  await using served = await serve();
  const { peer, client } = served;
  const term: Input = { input: { case: "signal", value: { signal: 15 } } };
  const reading = read(client, unended(start, term));
  const { process } = parseExecCmd((await peer.command(command.execCmd)).payload);
  await peer.say(command.ack);
  await peer.command(command.signalProcess);
  await peer.say(command.error);
  await peer.output(process.stdio, Buffer.from("late words"));
  await peer.output(process.stdio);
  await peer.say(command.processAsyncEvent, finished(process.id, 0));
  t.deepEqual(await reading, ["late words", "exit 0"]);
});
