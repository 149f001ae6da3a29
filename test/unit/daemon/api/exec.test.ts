import type { MessageInitShape } from "@bufbuild/protobuf";
import test from "ava";
import type { Podnet } from "../../../../api/client.ts";
import type { ExecRequestSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import { parseSignalProcess } from "../../../../guest-init/protocol/process-messages.ts";
import { begin, finish, serve } from "./fixtures/exec-server.ts";

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
    const process = await begin(peer);
    t.is(Buffer.from((await peer.input()).data).toString(), "words");
    const end = await peer.input();
    t.deepEqual([end.stream, end.data.length], [process.stdio, 0]);
    await peer.output(process.stdio, Buffer.from("the end"));
    await finish(peer, process, 3);
    t.deepEqual(await reading, ["the end", "exit 3"]);
    t.is(peer.inputWaiting, 0);
  });
}

test("input that is refused ends a program that says nothing by itself", async (t) => {
  await using served = await serve();
  const { peer, client } = served;
  const wrong: Input = { input: { case: "signal", value: { signal: 99 } } };
  const reading = t.throwsAsync(read(client, unended(start, wrong)), { code: "INVALID_ARGUMENT" });
  const process = await begin(peer);
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
  const process = await begin(peer);
  await peer.command(command.signalProcess);
  await peer.say(command.error);
  await peer.output(process.stdio, Buffer.from("late words"));
  await finish(peer, process, 0);
  t.deepEqual(await reading, ["late words", "exit 0"]);
});
