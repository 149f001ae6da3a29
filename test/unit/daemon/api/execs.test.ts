import test from "ava";
import type { Podnet } from "../../../../api/client.ts";
import { mostDetached } from "../../../../daemon/pods/execs/execs.ts";
import { command } from "../../../../guest-init/protocol/codes.ts";
import { parseSignalProcess } from "../../../../guest-init/protocol/process-messages.ts";
import { begin, finish, serve } from "./fixtures/exec-server.ts";

const start = { idOrName: "one", args: ["make", "all"] };

/** Starts a program without a caller: its id, and what the guest was asked. */
async function startIn({ client, peer }: Awaited<ReturnType<typeof serve>>, more = {}) {
  const started = client.pods.startExec({ start: { ...start, ...more } });
  const process = await begin(peer);
  const { exec } = await started;
  return { id: exec?.id ?? "", exec, process };
}

async function follow(
  client: Podnet,
  execId: string,
  noFollow = false,
  onOutput = () => {},
): Promise<string[]> {
  const seen: string[] = [];
  for await (const { output } of client.pods.followExec({ execId, noFollow })) {
    if (output.case === "stdout" || output.case === "stderr")
      seen.push(`${output.case} ${Buffer.from(output.value).toString()}`);
    if (seen.length > 0) onOutput();
    if (output.case === "skipped") seen.push(`skipped ${output.value}`);
    if (output.case === "exec") seen.push(`${output.value.state} ${output.value.code}`);
  }
  return seen;
}

test("a program without a caller: listed, followed, waited for, its end kept", async (t) => {
  await using served = await serve();
  const { client, peer } = served;
  const { id, exec, process } = await startIn(served, { user: "web:adm", workdir: "/srv" });
  t.like(process, { user: "web", group: "adm", workdir: "/srv", args: ["make", "all"] });
  t.like(exec, { podId: "abcdefghijkl", podName: "one", state: "running", detached: true });
  t.like(exec, { user: "web:adm", workdir: "/srv", args: ["make", "all"] });
  t.is(exec?.finishedAt, undefined);
  t.is((await peer.input()).data.length, 0, "its input has ended");

  await peer.output(process.stdio, Buffer.from("early"));
  const [first, second] = [follow(client, id), follow(client, id)];
  const waiting = client.pods.waitExec({ execId: id });
  await peer.output(process.stderr, Buffer.from("wrong"));
  await finish(peer, process, 3);
  for (const seen of [await first, await second, await follow(client, id)])
    t.deepEqual(seen, ["stdout early", "stderr wrong", "exited 3"]);
  const { exec: ended } = await waiting;
  t.like(ended, { id, state: "exited", code: 3, outputBytes: 10n });
  t.true((ended?.finishedAt?.seconds ?? 0n) > 0n);
  t.deepEqual((await client.pods.getExec({ execId: id })).exec, ended);
  t.deepEqual((await client.pods.listExecs({ idOrName: "one" })).execs, [ended]);
  const late = client.pods.signalExec({ execId: id, signal: 15 });
  await t.throwsAsync(late, { code: "WRONG_STATE" });
});

test("a signal reaches a program by its id, also one whose caller is connected", async (t) => {
  await using served = await serve();
  const { client, peer } = served;
  async function* input() {
    yield { input: { case: "start" as const, value: start } };
    await new Promise(() => {});
  }
  const answers = client.pods.exec(input())[Symbol.asyncIterator]();
  const first = answers.next();
  const process = await begin(peer);
  const { output } = (await first).value ?? { output: undefined };
  const id = output?.case === "started" ? output.value.execId : "";
  t.like((await client.pods.getExec({ execId: id })).exec, { state: "running", detached: false });
  await t.throwsAsync(follow(client, id), { code: "UNSUPPORTED" });
  const signalled = client.pods.signalExec({ execId: id, signal: 10 });
  const asked = parseSignalProcess((await peer.command(command.signalProcess)).payload);
  t.like(asked, { process: process.id, signal: 10 });
  await peer.say(command.ack);
  await signalled;
  await finish(peer, process, 0);
  while ((await answers.next()).done !== true);
  await t.throwsAsync(client.pods.getExec({ execId: id }), { code: "EXEC_NOT_FOUND" });
});

test("32 programs run without a caller; the first that ended makes room", async (t) => {
  await using served = await serve();
  const { client, peer } = served;
  const all: Awaited<ReturnType<typeof startIn>>[] = [];
  for (let i = 0; i < mostDetached; i++) all.push(await startIn(served));
  await t.throwsAsync(client.pods.startExec({ start }), { code: "LIMIT_REACHED" });
  const [first, second] = all;
  for (const each of [second, first]) {
    if (each === undefined) throw new Error("Too few were started");
    await finish(peer, each.process, 0);
    await client.pods.waitExec({ execId: each.id });
  }
  await startIn(served);
  await t.throwsAsync(client.pods.getExec({ execId: second?.id ?? "" }), {
    code: "EXEC_NOT_FOUND",
  });
  t.is((await client.pods.getExec({ execId: first?.id ?? "" })).exec?.state, "exited");
});

test("time that is up kills a program, whatever the guest says of it", async (t) => {
  await using served = await serve();
  const { client, peer } = served;
  const { id, process } = await startIn(served, { timeoutMs: 1 });
  const asked = parseSignalProcess((await peer.command(command.signalProcess)).payload);
  t.like(asked, { process: process.id, signal: 9 });
  // The guest says nothing more.
  const { exec } = await client.pods.waitExec({ execId: id });
  t.like(exec, { state: "failed", code: undefined });
  t.is(exec?.error?.code, "DEADLINE_EXCEEDED");
});

test("a guest that is lost leaves it unknown how its programs ended", async (t) => {
  await using served = await serve();
  const { client, peer } = served;
  const { id, process } = await startIn(served);
  await peer.output(process.stdio, Buffer.from("words"));
  // Output that podnetd has not read when the guest is lost is lost, too.
  const isRead = Promise.withResolvers<void>();
  const following = follow(client, id, false, () => isRead.resolve());
  await isRead.promise;
  await peer.say(command.ready);
  t.deepEqual(await following, ["stdout words", "failed undefined"]);
  t.is((await client.pods.getExec({ execId: id })).exec?.error?.code, "AGENT_DISCONNECTED");
});

test("what a caller may say: no such program, no id, none to start", async (t) => {
  await using served = await serve();
  const { pods } = served.client;
  const none = { execId: "0123456789abcdef" };
  for (const call of [pods.getExec(none), pods.waitExec(none), follow(served.client, none.execId)])
    await t.throwsAsync(call, { code: "EXEC_NOT_FOUND" });
  await t.throwsAsync(pods.getExec({ execId: "../x" }), { code: "INVALID_ARGUMENT" });
  await t.throwsAsync(pods.startExec({}), { code: "INVALID_ARGUMENT" });
  await t.throwsAsync(pods.signalExec({ ...none, signal: 0 }), { code: "INVALID_ARGUMENT" });
});

test("a start that the guest refuses leaves nothing", async (t) => {
  await using served = await serve();
  const { client, peer } = served;
  const started = client.pods.startExec({ start: { ...start, user: "no-such-user" } });
  started.catch(() => {});
  await peer.command(command.execCmd);
  await peer.say(command.error, Buffer.from('There is no user "no-such-user" in the guest'));
  await t.throwsAsync(started, { code: "AGENT_REFUSED" });
  t.deepEqual((await client.pods.listExecs({})).execs, []);
});
