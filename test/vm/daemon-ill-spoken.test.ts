import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { once } from "node:events";
import { connect } from "node:net";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import type { Rig } from "./daemon-rig.ts";
import { create, eventually, openStandInRig } from "./standin-rig.ts";

// Guests that say what would steer a terminal, forge lines of a log, or fill either:
// test/standin-vm/agent.ts, illSpoken.

let rig: Rig;
test.serial.before(async () => {
  rig = await openStandInRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/** Everything that steers: newlines too, where a text is one line. */
const steers = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/;

/** Nothing in it steers but what separates lines. */
function calm(t: ExecutionContext, what: string, text: string): void {
  const found = steers.exec(text.replaceAll("\n", ""));
  t.is(
    found,
    null,
    `${what}: ${JSON.stringify(text.slice(Math.max(0, (found?.index ?? 0) - 60), (found?.index ?? 0) + 60))}`,
  );
}

/** Every text in a message. */
function texts(value: unknown): string[] {
  if (typeof value === "string") return [value];
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return [];
  return Object.entries(value).flatMap(([key, each]) =>
    key === "$typeName" ? [] : [key, ...texts(each)],
  );
}

test.serial("what an ill-spoken guest says is escaped wherever it is shown", async (t) => {
  const pod = await create(rig.client, "ill", "standin.agent=ill-spoken");
  t.regex(pod.guest?.hostname ?? "", /\\u001b\]0;owned/);
  const version = await t.throwsAsync(create(rig.client, "vers", "standin.agent=ill-version"));
  const error = await t.throwsAsync(create(rig.client, "rude", "standin.agent=ill-refusal"));
  if (!isPodnetError(error)) throw new Error("It was not refused as it should be");
  const { message, hint, field, details } = error;
  const refusal = { message, hint, field, details };
  for (const text of texts(refusal)) t.true(text.length <= 4096);
  process.kill(pod.vm?.pid as number, "SIGKILL");
  await eventually(
    rig.client,
    (event) => event.pod?.name === "ill" && event.error !== undefined,
    0n,
  );
  const { pod: failed } = await rig.client.pods.get({ idOrName: "ill" });
  const events: unknown[] = [];
  const ended = new AbortController();
  for await (const event of rig.client.pods.watch({}, { signal: ended.signal })) {
    events.push(event);
    if (events.length >= 2) break;
  }
  ended.abort();
  const reported = [pod, failed, refusal, version?.message, events];
  for (const text of texts(reported)) calm(t, "API", text);
  for (const [command, ...args] of [
    ["list"],
    ["get", "ill"],
    ["get", "ill", "-o", "json"],
    ["get", "ill", "-o", "yaml"],
    ["info"],
    ["create", "--name", "rude", "--cmdline", "standin.agent=ill-refusal"],
  ] as const) {
    const { stdout, stderr } = await rig.daemon.tryPodnet(command, ...args);
    calm(t, `podnet ${command}: standard output`, stdout);
    calm(t, `podnet ${command}: standard error`, stderr);
  }
  const log = rig.daemon.log();
  calm(t, "log", log);
  // No line of it is the guest's: each is one object of ours.
  for (const line of log.trim().split("\n"))
    t.not((JSON.parse(line) as { msg: string }).msg, "forged");
  // Whoever asks for a console's bytes gets them as they are.
  t.true(readFileSync(path.join(rig.directory, "podnetd.log")).length < 1 << 20);
  await rig.client.pods.delete({ idOrName: "ill" });
});

test.serial("a guest that restarts its agent without end does not flood the log", async (t) => {
  await create(rig.client, "storm", "standin.agent=restart:250");
  const before = rig.daemon.log().split("\n").length;
  await delay(4000);
  const lines = rig.daemon.log().split("\n").length - before;
  t.true(lines < 40, `${lines} lines in 4 s`);
  const { newest } = await newestCursor();
  await delay(3000);
  const events = (await newestCursor()).newest - newest;
  t.true(events < 30n, `${events} events in 3 s`);
  // What is not logged is counted, and there is a line that says so.
  const metrics = await scrape();
  t.true(
    Number(/^podnet_guest_dropped_total\{what="agent_restarts"\} (\d+)/m.exec(metrics)?.[1]) > 5,
  );
  t.regex(
    rig.daemon.log(),
    /"counts":\{"agent_restarts":\d+\},"msg":"Guest events dropped: rate limit"/,
  );
  await rig.client.pods.delete({ idOrName: "storm" });
});

const counted = async (what: RegExp): Promise<number> =>
  Number(what.exec(await scrape())?.[1] ?? Number.NaN);

test.serial("what an ill-spoken QEMU says when it refuses is escaped, and short", async (t) => {
  for (const [command, code] of [
    ["netdev_add", "QMP_FAILED"],
    ["qom-list", "QMP_FAILED"],
  ] as const) {
    const words = `standin.qemu=ill-refuse:${command}`;
    const error = await t.throwsAsync(create(rig.client, "refused", words));
    if (!isPodnetError(error)) throw new Error("It was not refused as it should be");
    t.is(error.code, code);
    const { message, hint, details } = error;
    t.regex(message, /\\u001b\]0;owned/);
    for (const text of texts({ message, hint, details })) {
      t.true(text.length <= 4096, `${text.length} characters`);
      calm(t, command, text);
    }
    const { stderr } = await rig.daemon.tryPodnet(
      "create",
      "--name",
      "refused",
      "--cmdline",
      words,
    );
    calm(t, `podnet create: ${command}`, stderr);
    t.true(stderr.length < 8192, `${stderr.length} characters`);
  }
  const log = rig.daemon.log();
  calm(t, "log", log);
  for (const line of log.trim().split("\n")) {
    t.not((JSON.parse(line) as { msg: string }).msg, "forged");
    t.true(line.length < 65_536, `${line.length} characters`);
  }
});

test.serial("a storm of QEMU's events is one event and one line, and counted", async (t) => {
  const before = { log: rig.daemon.log().length, ...(await newestCursor()) };
  const pod = await create(rig.client, "stormy", "standin.qemu=storm:2500");
  t.is(pod.name, "stormy");
  const machine = /^podnet_guest_dropped_total\{what="machine_events"\} (\d+)/m;
  const notes = /^podnet_guest_dropped_total\{what="guest_notes"\} (\d+)/m;
  for (let i = 0; i < 300 && !((await counted(machine)) >= 5000); i++) await delay(100);
  // 6,000 that mean nothing, less a hundred in each second.
  t.true((await counted(machine)) >= 5000, String(await counted(machine)));
  t.true((await counted(notes)) >= 1900, String(await counted(notes)));
  const { newest } = await newestCursor();
  t.true(newest - before.newest < 40n, `${newest - before.newest} events`);
  const log = rig.daemon.log().slice(before.log);
  t.true(log.split("\n").length < 60, log);
  calm(t, "log", log);
  t.is((await rig.client.pods.get({ idOrName: "stormy" })).pod?.state, PodState.RUNNING);
  await rig.client.pods.delete({ idOrName: "stormy" });
});

test.serial("what a console loses is counted, and who is connected", async (t) => {
  await create(rig.client, "chatty", `standin.agent=chatter:${3 << 20}`);
  const lost = /^podnet_console_overwritten_bytes_total (\d+)/m;
  for (let i = 0; i < 1200 && !((await counted(lost)) >= 2 << 20); i++) await delay(100);
  const bytes = await counted(lost);
  t.true(bytes >= 2 << 20 && bytes < 3 << 20, `${bytes} bytes`);
  const connections = /^podnet_api_connections (\d+)$/m;
  const first = await counted(connections);
  const more = [1, 2, 3].map(() => connect(rig.daemon.socket));
  await Promise.all(more.map((socket) => once(socket, "connect")));
  for (let i = 0; i < 100 && (await counted(connections)) !== first + 3; i++) await delay(50);
  t.is(await counted(connections), first + 3);
  for (const socket of more) socket.destroy();
  await rig.client.pods.delete({ idOrName: "chatty" });
});

async function scrape(): Promise<string> {
  const args = ["-sS", "--unix-socket", rig.daemon.socket, "http://podnet/metrics"];
  return (await promisify(execFile)("curl", args)).stdout;
}

async function newestCursor(): Promise<{ newest: bigint }> {
  return { newest: (await rig.client.pods.list({})).cursor };
}
